//! Retention: what is swept and when, and keys that never name the same run again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{RunQuery, Store};
use workflow_runtime::{
    CatchUp, Engine, EngineBuilder, EngineError, Error, Overlap, Queue, Result, Retention, RunId,
    RunStatus, sleep, step, wait_for, workflow,
};
use workflow_tests::{Edited, Ledger, ids_of};

#[step]
async fn charge(#[resource] ledger: &Ledger, order: u64) -> Result<u64> {
    ledger.act(&format!("order {order}"));
    Ok(order)
}

#[workflow]
async fn pay(order: u64) -> Result<u64> {
    charge(order).await
}

#[workflow]
async fn audited(order: u64) -> Result<u64> {
    charge(order).await
}

#[workflow]
async fn waiting() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<pay>()
        .register::<audited>()
        .register::<waiting>()
        // What a key promises keeps runs longer than retention does: see `idempotency/lifetimes`.
        .key_ttl(Duration::ZERO)
        .resource_arc(ledger.clone())
}

const AT_ONCE: Retention = Retention::of(Duration::ZERO);

async fn runs_in(store: &MemoryStore) -> usize {
    let query = RunQuery {
        limit: 10_000,
        ..RunQuery::default()
    };
    store.list(query).await.expect("lists").len()
}

#[tokio::test]
async fn a_run_goes_when_its_time_after_its_end_is_over_and_not_before() {
    let ledger = Ledger::shared();
    let keep = Duration::from_millis(50);
    let builder = engine(&ledger).retention(Retention::of(keep));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(pay(1)).await.expect("starts");
    run.result().await.expect("ends well");
    assert_eq!(engine.sweep().await.expect("sweeps"), 0);
    assert_eq!(run.status().await.expect("is kept"), RunStatus::Completed);
    tokio::time::sleep(keep).await;
    assert_eq!(engine.sweep().await.expect("sweeps"), 1);
    for gone in [
        run.status().await.err(),
        engine.journal(run.id()).await.err(),
    ] {
        assert!(matches!(gone, Some(EngineError::UnknownRun(_))), "{gone:?}");
    }
    assert!(engine.runs().await.expect("lists").runs.is_empty());
    assert_eq!(engine.sweep().await.expect("sweeps"), 0);
}

#[tokio::test]
async fn each_workflow_has_its_time_and_what_has_not_ended_stays() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger)
        .retention(AT_ONCE)
        .retention_of::<audited>(Retention::forever());
    let engine = builder.open_in_memory().await.expect("opens");
    let paid = engine.start(pay(1)).await.expect("starts");
    let kept = engine.start(audited(2)).await.expect("starts");
    let waits = engine.start(waiting()).await.expect("starts");
    paid.result().await.expect("ends well");
    kept.result().await.expect("ends well");
    assert_eq!(engine.sweep().await.expect("sweeps"), 1);
    assert!(paid.status().await.is_err());
    assert_eq!(kept.status().await.expect("is kept"), RunStatus::Completed);
    assert_eq!(waits.status().await.expect("is kept"), RunStatus::Active);
}

#[tokio::test]
async fn without_retention_nothing_is_ever_deleted() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(pay(1)).key("k").await.expect("starts");
    run.result().await.expect("ends well");
    assert_eq!(engine.sweep().await.expect("sweeps"), 0);
    assert_eq!(run.status().await.expect("is kept"), RunStatus::Completed);
}

#[tokio::test]
async fn more_runs_than_a_batch_are_swept_by_the_background_task() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger);
    let first = builder.open_with(store.clone()).await.expect("opens");
    for order in 0..250 {
        let start = first.start(pay(order));
        let run = if order % 2 == 0 {
            start.key(order)
        } else {
            start
        };
        run.await
            .expect("starts")
            .result()
            .await
            .expect("ends well");
    }
    first.start(waiting()).await.expect("starts");
    first.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::Synced);
    let builder = engine(&ledger).retention(AT_ONCE);
    let _engine = builder.open_with(store.clone()).await.expect("opens");
    for _ in 0..5000 {
        if runs_in(&store).await == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} runs are left", runs_in(&store).await);
}

#[tokio::test]
async fn a_key_whose_run_was_deleted_names_a_new_run_with_new_step_ids() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger).retention(AT_ONCE);
    let mut engine = builder.open_with(store.clone()).await.expect("opens");
    let mut store = store;
    let (mut runs, mut steps) = (HashSet::new(), HashSet::new());
    for generation in 0..4 {
        let run = engine.start(pay(7)).key("order-7").await.expect("starts");
        run.result().await.expect("ends well");
        let journal = engine.journal(run.id()).await.expect("reads");
        assert!(runs.insert(run.id()), "generation {generation}");
        steps.extend(ids_of(&journal, "charge"));
        assert_eq!(engine.sweep().await.expect("sweeps"), 1);
        if generation % 2 == 0 {
            engine.shutdown().await.expect("stops");
            store = store.reopen(Surviving::Synced);
            let builder = self::engine(&ledger).retention(AT_ONCE);
            engine = builder.open_with(store.clone()).await.expect("opens");
        }
    }
    assert_eq!(steps.len(), 4);
    assert_eq!(ledger.asked(), 4);
}

/// Starts under one key, sweeps, starts again, through crashes. Returns the ids of both runs.
async fn live_through(ledger: &Arc<Ledger>, plans: Vec<FaultPlan>) -> (RunId, RunId, MemoryStore) {
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    let mut first = None;
    loop {
        let living = async {
            // Long enough that only the sweep by hand finds it, which is told to wait for it.
            let builder = engine(ledger).retention(Retention::of(Duration::from_millis(4)));
            let engine = builder.open_with(store.clone()).await.expect("opens");
            let before = match first {
                Some(run) => run,
                None => {
                    let run = engine.start(pay(1)).key("order").await.expect("starts");
                    run.result().await.expect("ends well");
                    run.id()
                }
            };
            first = Some(before);
            tokio::time::sleep(Duration::from_millis(5)).await;
            engine.sweep().await.expect("sweeps");
            assert!(engine.status(before).await.is_err(), "it was swept");
            let again = engine.start(pay(2)).key("order").await.expect("starts");
            again.result().await.expect("ends well");
            (before, again.id())
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            (before, again) = living => return (before, again, store),
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    }
}

#[tokio::test]
async fn a_crash_at_any_write_gives_no_generation_twice() {
    let (.., clean) = live_through(&Ledger::shared(), vec![]).await;
    assert!(clean.writes() >= 8, "{}", clean.writes());
    assert_eq!(runs_in(&clean).await, 1);
    for write in 0..clean.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let ledger = Ledger::shared();
            let plans = vec![FaultPlan::at(write, fault)];
            let (before, again, store) = live_through(&ledger, plans).await;
            assert_ne!(before, again, "{fault:?} at {write}");
            // The ledger refuses one id for two orders; both were charged.
            assert!(ledger.effects().contains(&"order 2".to_owned()));
            // The first is gone. The second may have been resumed, have ended and lost its key, but not be old enough
            // to be swept when the third was started.
            let left = runs_in(&store).await;
            assert!((1..=2).contains(&left), "{left} runs, {fault:?} at {write}");
        }
    }
}

#[tokio::test]
async fn starts_beside_sweeps_never_run_a_step_id_twice() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger)
        .retention(AT_ONCE)
        .queue(Queue::named("mail"));
    let slow = Edited {
        store: MemoryStore::new(),
        edit: |_: &mut Vec<Bytes>| {},
    };
    let engine = builder.open_with(slow).await.expect("opens");
    let sweeping = [(), ()].map(|()| {
        let engine = engine.clone();
        tokio::spawn(async move {
            loop {
                engine.sweep().await.expect("sweeps");
                tokio::task::yield_now().await;
            }
        })
    });
    let starting = (0..4).map(|task| {
        let (engine, ledger) = (engine.clone(), ledger.clone());
        tokio::spawn(async move {
            for _ in 0..5000 {
                if ledger.asked() > 50 {
                    return;
                }
                let start = engine.start(pay(3)).key("same");
                let start = if task == 0 {
                    start.queue("mail")
                } else {
                    start
                };
                let run = start.await.expect("starts");
                // It may have been swept before its result was read.
                let _ = run.result().await;
            }
        })
    });
    for task in futures::future::join_all(starting).await {
        task.expect("no panic");
    }
    sweeping.iter().for_each(|sweep| sweep.abort());
    let attempts = ledger.attempts();
    let ids: HashSet<_> = attempts.iter().map(|(step, _)| *step).collect();
    assert!(attempts.len() > 50, "only {} were swept", attempts.len());
    assert_eq!(ids.len(), attempts.len(), "a step id ran twice");
}

/// Fails the first time that it is called for an order.
#[step(max_attempts = 1)]
async fn refused_once(#[resource] refused: &Refused, order: u64) -> Result<u64> {
    match refused.0.lock().expect("no panic").insert(order) {
        true => Err(Error::new("not yet")),
        false => Ok(order),
    }
}

#[derive(Default)]
struct Refused(Mutex<HashSet<u64>>);

#[workflow]
async fn pay_at_last(order: u64) -> Result<u64> {
    let paid = refused_once(order).await?;
    wait_for::<()>("go").await?;
    Ok(paid)
}

#[tokio::test]
async fn a_run_that_is_tried_again_beside_a_sweep_holds_its_key() {
    let builder = engine(&Ledger::shared()).register::<pay_at_last>();
    let builder = builder.resource(Refused::default()).retention(AT_ONCE);
    let slow = Edited {
        store: MemoryStore::new(),
        edit: |_: &mut Vec<Bytes>| {},
    };
    let engine = builder.open_with(slow).await.expect("opens");
    let (mut deleted, mut revived) = (0, 0);
    for order in 0..400 {
        let start = || {
            engine
                .start(pay_at_last(order))
                .key(format!("order {order}"))
        };
        let run = start().await.expect("starts");
        run.result().await.expect_err("it fails the first time");
        let (swept, retried) = tokio::join!(engine.sweep(), async {
            for _ in 0..order % 40 {
                tokio::task::yield_now().await;
            }
            engine.retry(run.id()).await
        });
        deleted += swept.expect("sweeps");
        if retried.is_ok() {
            revived += 1;
            let again = start().await.expect("starts");
            assert_eq!(again.id(), run.id(), "order {order}: one key, two runs");
            run.signal("go", &()).await.expect("it goes on");
            assert_eq!(run.result().await.expect("ends well"), order);
        }
    }
    assert!(deleted > 10 && revived > 10, "{deleted}, {revived}");
}

#[tokio::test]
async fn a_tick_whose_run_was_deleted_is_not_run_again() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger).retention(AT_ONCE);
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let now = std::time::SystemTime::now();
    let hour = Duration::from_secs(3600);
    let mut deleted = 0;
    for round in 0..2 {
        let past = engine
            .schedule("past", pay(1))
            .every(hour)
            .start_at(now - hour * 3)
            .end_at(now - hour)
            .overlap(Overlap::Allow)
            .catch_up(CatchUp::All { at_most: 9 });
        let past = past.await.expect("is declared");
        for _ in 0..1000 {
            deleted += engine.sweep().await.expect("sweeps");
            tokio::time::sleep(Duration::from_millis(1)).await;
            let last = past.describe().await.expect("is there").last_tick;
            if last == Some((now - hour).into()) && (round == 1 || deleted == 3) {
                break;
            }
        }
        assert_eq!(deleted, 3, "round {round}");
        past.delete().await.expect("is deleted");
    }
    assert_eq!(ledger.asked(), 3);
}

#[tokio::test]
async fn a_run_that_is_deleted_while_it_is_verified_is_not_called_damaged() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let mut runs = Vec::new();
    for order in 0..3 {
        let run = engine.start(pay(order)).await.expect("starts");
        run.result().await.expect("completes");
        runs.push(run.id());
    }
    engine.shutdown().await.expect("closes");
    let store = store.reopen(Surviving::Synced);
    // The second journal that is read is that of a run which a sweep removes right before.
    let (reads, gone) = (AtomicUsize::new(0), runs[1]);
    let swept = store.clone();
    let edited = Edited {
        store,
        edit: move |frames: &mut Vec<Bytes>| {
            if reads.fetch_add(1, Ordering::Relaxed) == 1 {
                let deleted = swept.delete(vec![gone]).now_or_never();
                assert_eq!(deleted.expect("at once").expect("deleted"), 1);
                frames.clear();
            }
        },
    };
    let engine = Engine::builder().open_with(edited).await.expect("opens");
    let verified = engine.verify().await.expect("verifies");
    assert_eq!(verified.damaged, []);
    assert_eq!(verified.runs, 2, "{verified:?}");
    let unknown = engine.journal(gone).await;
    assert!(matches!(unknown, Err(EngineError::UnknownRun(_))));
}
