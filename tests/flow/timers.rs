//! Durable sleep: never early, once, through restarts; and time that never runs backwards.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::{Either, select};
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunStatus, now, sleep, sleep_until, step, workflow,
};
use workflow_tests::{Ledger, frames};

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[workflow]
async fn sleeping(millis: u64) -> Result<Duration> {
    let before = now();
    sleep(Duration::from_millis(millis)).await;
    let slept = now().duration_since(before)?;
    act("awake").await?;
    Ok(slept)
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<sleeping>()
        .register::<sleeping_until>()
        .register::<timed>()
        .resource_arc(ledger.clone())
}

fn count(journal: &Journal, which: impl Fn(&Event) -> bool) -> usize {
    let records = journal.records().iter();
    records.filter(|record| which(&record.event)).count()
}

#[tokio::test]
async fn a_sleep_never_ends_early_and_fires_once() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    for millis in [0, 1, 7, 30] {
        let began = Instant::now();
        let run = engine.start(sleeping(millis)).await.expect("starts");
        let slept = run.result().await.expect("ends well");
        assert!(
            slept >= Duration::from_millis(millis),
            "{slept:?} of {millis} ms"
        );
        assert!(began.elapsed() >= Duration::from_millis(millis));
        let journal = engine.journal(run.id()).await.expect("reads");
        let set = journal
            .records()
            .iter()
            .find_map(|record| match &record.event {
                Event::TimerSet(set) => Some((set.deadline, set.timer)),
                _ => None,
            });
        let (deadline, timer) = set.expect("is on record");
        let fired = journal
            .records()
            .iter()
            .find_map(|record| match &record.event {
                Event::TimerFired(fired) => Some((record.time, fired.timer)),
                _ => None,
            });
        let (fired_at, fired) = fired.expect("is on record");
        assert!(fired == timer && fired_at >= deadline, "{journal}");
        assert_eq!(count(&journal, |e| matches!(e, Event::TimerFired(_))), 1);
    }
}

#[tokio::test]
async fn a_restart_does_not_begin_a_sleep_anew() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let began = Instant::now();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(sleeping(60)).key("k").await.expect("starts");
    while store.writes() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(40)).await;
    drop(first);
    let again = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = again.run::<sleeping>(run.id()).await.expect("is there");
    assert_eq!(ledger.asked(), 0);
    run.result().await.expect("ends well");
    assert!(began.elapsed() >= Duration::from_millis(60), "early");
    let journal = again.journal(run.id()).await.expect("reads");
    assert_eq!(
        count(&journal, |e| matches!(e, Event::TimerSet(_))),
        1,
        "{journal}"
    );
    let Event::TimerSet(set) = &journal.records()[1].event else {
        panic!("{journal}");
    };
    let set_at = journal.records()[1].time;
    assert!(set.deadline.since(set_at) <= Duration::from_millis(60));
}

#[tokio::test]
async fn a_run_that_is_resumed_after_its_deadline_goes_on_at_once() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(sleeping(25)).await.expect("starts");
    while store.writes() < 2 {
        tokio::task::yield_now().await;
    }
    drop(first);
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(ledger.asked(), 0);
    let began = Instant::now();
    let again = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = again.run::<sleeping>(run.id()).await.expect("is there");
    run.result().await.expect("ends well");
    assert!(
        began.elapsed() < Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
}

#[workflow]
async fn sleeping_until(time: SystemTime) -> Result<()> {
    sleep_until(time).await;
    act("awake").await
}

#[tokio::test]
async fn a_sleep_until_a_moment_ends_then_and_at_once_if_it_is_past() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let later = SystemTime::now() + Duration::from_millis(20);
    let run = engine.start(sleeping_until(later)).await.expect("starts");
    run.result().await.expect("ends well");
    assert!(SystemTime::now() >= later);
    let run = engine.start(sleeping_until(SystemTime::UNIX_EPOCH)).await;
    run.expect("starts").result().await.expect("ends well");
    let never = SystemTime::now() + Duration::from_secs(1_000_000_000);
    let run = engine.start(sleeping_until(never)).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(run.status().await.expect("reads"), RunStatus::Active);
}

#[workflow]
async fn timed(limit_ms: u64) -> Result<bool> {
    let limit = Box::pin(sleep(Duration::from_millis(limit_ms)));
    let in_time = match select(Box::pin(act("raced")), limit).await {
        Either::Left((acted, _)) => {
            acted?;
            true
        }
        Either::Right(..) => false,
    };
    sleep(Duration::from_millis(15)).await;
    act("after").await?;
    Ok(in_time)
}

#[tokio::test]
async fn a_timer_that_lost_its_race_never_fires() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(timed(5)).await.expect("starts");
    assert!(run.result().await.expect("ends well"));
    let journal = first.journal(run.id()).await.expect("reads");
    assert_eq!(count(&journal, |e| matches!(e, Event::TimerSet(_))), 2);
    assert_eq!(
        count(&journal, |e| matches!(e, Event::TimerFired(_))),
        1,
        "{journal}"
    );

    let recorded = frames(&store, run.id()).await;
    for records in 1..recorded.len() {
        let before = workflow_tests::cut(journal.header(), &recorded, records).await;
        let again = engine(&ledger).open_with(before).await.expect("opens");
        let run = again.run::<timed>(run.id()).await.expect("is there");
        run.result().await.expect("ends well");
        let journal = again.journal(run.id()).await.expect("reads");
        assert!(
            journal.records().is_sorted_by_key(|record| record.time),
            "time runs backwards in\n{journal}"
        );
    }
}
