//! How long a key names its run, and what comes after it.

use std::collections::HashSet;

use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::Surviving;
use workflow_runtime::{EngineError, Retention, RunId, StepId};
use workflow_tests::ids_of;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

#[workflow(key_ttl = "90d")]
async fn for_long(order: u64) -> Result<u64> {
    charge(order).await
}

#[workflow(key_ttl = "1ms")]
async fn briefly(order: u64) -> Result<u64> {
    charge(order).await
}

fn with_lifetimes(ledger: &Arc<Ledger>) -> EngineBuilder {
    engine(ledger).register::<for_long>().register::<briefly>()
}

async fn step_and_generation(engine: &Engine, run: RunId) -> (StepId, u64) {
    let journal = engine.journal(run).await.expect("reads");
    let Event::RunStarted(started) = &journal.records()[0].event else {
        panic!("{journal}");
    };
    (ids_of(&journal, "charge")[0], started.generation)
}

#[tokio::test]
async fn a_key_names_its_run_for_a_day_after_the_end_unless_something_else_is_said() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(pay(1)).key("order").await.expect("starts");
    run.result().await.expect("ends well");
    let again = engine.start(pay(1)).key("order").await.expect("is found");
    assert_eq!(again.id(), run.id());
    let refused = engine.start(pay(2)).key("order").await;
    assert!(matches!(refused, Err(EngineError::Conflict { .. })));
}

#[tokio::test]
async fn a_key_whose_time_is_over_names_a_new_run_with_new_step_ids() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let mut seen = HashSet::new();
    for round in 0..4 {
        // The input may be the same or another one: the old run has nothing to say any more.
        let start = engine.start(pay(round / 2)).key("order");
        let run = start.key_ttl(Duration::ZERO).await.expect("starts");
        run.result().await.expect("ends well");
        let (step, generation) = step_and_generation(&engine, run.id()).await;
        assert_eq!(generation, round);
        assert!(seen.insert((run.id(), step)));
    }
    assert_eq!(ledger.asked(), 4);
}

#[tokio::test]
async fn a_key_never_expires_before_its_run_has_ended() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let start = || engine.start(held(1)).key("order").key_ttl(Duration::ZERO);
    let run = start().await.expect("starts");
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(start().await.expect("is found").id(), run.id());
    let refused = engine.start(held(2)).key("order").await;
    assert!(matches!(refused, Err(EngineError::Conflict { .. })));
    run.signal("go on", &()).await.expect("sends");
    run.result().await.expect("ends well");
    assert_ne!(start().await.expect("starts").id(), run.id());
}

#[tokio::test]
async fn what_was_promised_when_the_run_was_started_holds_whatever_is_said_later() {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let mut runs = Vec::new();
    for (key, time) in [("long", DAY * 90), ("short", Duration::ZERO)] {
        let run = first.start(pay(1)).key(key).key_ttl(time).await;
        let run = run.expect("starts");
        run.result().await.expect("ends well");
        runs.push(run.id());
    }
    first.shutdown().await.expect("stops");
    store = store.reopen(Surviving::Synced);
    let builder = engine(&ledger).key_ttl(Duration::ZERO);
    let second = builder.open_with(store.clone()).await.expect("opens");
    let start = second.start(pay(1)).key("long").key_ttl(Duration::ZERO);
    assert_eq!(start.await.expect("is found").id(), runs[0]);
    let start = second.start(pay(1)).key("short").key_ttl(DAY);
    let renewed = start.await.expect("starts");
    assert_ne!(renewed.id(), runs[1]);
    renewed.result().await.expect("ends well");
    let start = second.start(pay(1)).key("short");
    assert_eq!(start.await.expect("is found").id(), renewed.id());
}

#[tokio::test]
async fn the_call_comes_before_the_workflow_and_the_workflow_before_the_engine() {
    let ledger = Ledger::shared();
    let builder = with_lifetimes(&ledger).key_ttl(Duration::ZERO);
    let engine = builder.open_in_memory().await.expect("opens");
    let wait = Duration::from_millis(3);

    let long = || engine.start(for_long(1)).key("k");
    let run = long().await.expect("starts");
    run.result().await.expect("ends well");
    tokio::time::sleep(wait).await;
    assert_eq!(long().await.expect("is found").id(), run.id());

    let brief = || engine.start(briefly(1)).key("k");
    let run = brief().key_ttl(DAY).await.expect("starts");
    run.result().await.expect("ends well");
    tokio::time::sleep(wait).await;
    assert_eq!(brief().await.expect("is found").id(), run.id());

    let brief = || engine.start(briefly(2)).key("other");
    let run = brief().await.expect("starts");
    run.result().await.expect("ends well");
    tokio::time::sleep(wait).await;
    assert_ne!(brief().await.expect("starts").id(), run.id());

    let plain = || engine.start(pay(1)).key("k");
    let run = plain().await.expect("starts");
    run.result().await.expect("ends well");
    assert_ne!(plain().await.expect("starts").id(), run.id());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixty_four_that_find_a_key_expired_one_makes_the_new_run() {
    for round in 0..20 {
        let ledger = Ledger::shared();
        let store = MemoryStore::new();
        let builder = engine(&ledger);
        let engine = builder.open_with(store.clone()).await.expect("opens");
        let start = engine.start(pay(1)).key("order");
        let old = start.key_ttl(Duration::ZERO).await.expect("starts");
        old.result().await.expect("ends well");
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let start = engine.start(pay(1)).key("order").key_ttl(DAY);
                    start.await.expect("starts or finds").id()
                })
            })
            .collect();
        let mut ids = HashSet::new();
        for task in tasks {
            ids.insert(task.await.expect("no panic"));
        }
        assert_eq!(ids.len(), 1, "round {round}");
        assert!(!ids.contains(&old.id()));
        assert_eq!(all_runs(&store).await.len(), 2, "round {round}");
    }
}

#[tokio::test]
async fn retention_deletes_no_run_that_its_key_still_names() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger).retention(Retention::of(Duration::ZERO));
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let kept = engine.start(pay(1)).key("kept").key_ttl(DAY).await;
    let kept = kept.expect("starts");
    let start = engine.start(pay(2)).key("goes").key_ttl(Duration::ZERO);
    let goes = start.await.expect("starts");
    let unkeyed = engine.start(pay(3)).await.expect("starts");
    for run in [&kept, &goes, &unkeyed] {
        run.result().await.expect("ends well");
    }
    assert_eq!(engine.sweep().await.expect("sweeps"), 2);
    let left: Vec<RunId> = all_runs(&store).await.iter().map(|run| run.run).collect();
    assert_eq!(left, [kept.id()]);
    let again = engine.start(pay(1)).key("kept").await.expect("is found");
    assert_eq!(again.result().await.expect("is there still"), 1);
    let anew = engine.start(pay(2)).key("goes").await.expect("starts");
    assert_ne!(anew.id(), goes.id());
}

#[tokio::test]
async fn an_older_run_of_a_key_goes_when_its_own_time_is_over() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger).retention(Retention::of(Duration::ZERO));
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let start = engine.start(pay(1)).key("order").key_ttl(Duration::ZERO);
    let old = start.await.expect("starts");
    old.result().await.expect("ends well");
    let new = engine.start(pay(1)).key("order").key_ttl(DAY).await;
    let new = new.expect("starts");
    new.result().await.expect("ends well");
    assert_eq!(engine.sweep().await.expect("sweeps"), 1);
    let again = engine.start(pay(1)).key("order").await.expect("is found");
    assert_eq!(again.id(), new.id(), "its generation was not touched");
}
