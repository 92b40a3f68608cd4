//! Signals: kept when early, in order, once per key, refused when too late.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Result, Sent, signals, step, timeout, wait_for, workflow,
};
use workflow_tests::Ledger;

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[workflow]
async fn collecting(count: usize) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let mut names = signals::<String>("name");
    for _ in 0..count {
        let name = names.next().await?;
        act(&name).await?;
        seen.push(name);
    }
    Ok(seen)
}

#[workflow]
async fn hurried() -> Result<String> {
    let waited = timeout(Duration::from_millis(20), wait_for::<String>("name")).await;
    match waited {
        Ok(name) => name,
        Err(elapsed) => Ok(elapsed.to_string()),
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<collecting>()
        .register::<hurried>()
        .resource_arc(ledger.clone())
}

#[tokio::test]
async fn signals_are_received_in_the_order_they_were_accepted() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(collecting(3)).await.expect("starts");
    for name in ["ada", "bob", "cyd"] {
        let sent = run.signal("name", name).await.expect("sends");
        assert_eq!(sent, Sent::Accepted);
    }
    assert_eq!(
        run.result().await.expect("ends well"),
        ["ada", "bob", "cyd"]
    );
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(
        journal.to_string().matches("✉ name").count(),
        3,
        "{journal}"
    );
}

#[tokio::test]
async fn a_signal_with_a_key_counts_once() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(collecting(2)).await.expect("starts");
    let send = |name: &'static str, key: &'static str| run.signal("name", name).key(key);
    assert_eq!(send("ada", "1").await.expect("sends"), Sent::Accepted);
    assert_eq!(send("ada", "1").await.expect("sends"), Sent::Duplicate);
    assert_eq!(send("bob", "2").await.expect("sends"), Sent::Accepted);
    assert_eq!(run.result().await.expect("ends well"), ["ada", "bob"]);
}

#[tokio::test]
async fn a_signal_to_a_finished_run_is_refused_by_name() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(hurried()).await.expect("starts");
    assert_eq!(run.result().await.expect("ends"), "not done within 20ms");
    let refused = run.signal("name", "late").await.expect_err("too late");
    assert!(
        matches!(refused, EngineError::Ended(id) if id == run.id()),
        "{refused}"
    );
}

#[tokio::test]
async fn the_sender_hears_that_a_wait_asks_for_another_type() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(collecting(1)).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(20)).await; // until it waits
    let refused = run.signal("name", &17).await.expect_err("not a name");
    assert!(matches!(refused, EngineError::Signal { .. }), "{refused}");
    run.signal("name", "ada").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), ["ada"]);
}

/// Sends all signals under keys, as a sender does that does not know what arrived, and ends
/// the run, through one crash.
async fn collect_through(plan: FaultPlan) -> (Vec<String>, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine
                .start(collecting(3))
                .key("story")
                .await
                .expect("starts");
            for name in ["ada", "bob", "cyd"] {
                match run.signal("name", name).key(name).await {
                    Ok(_) | Err(EngineError::Ended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            run.result().await.expect("ends well")
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            seen = living => return (seen, ledger.effects(), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_and_repeats_no_signal() {
    let (seen, effects, writes) = collect_through(FaultPlan::none()).await;
    assert_eq!(seen, ["ada", "bob", "cyd"]);
    assert!(writes >= 8, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let after = collect_through(FaultPlan::at(write, fault)).await;
            assert_eq!((&after.0, &after.1), (&seen, &effects), "{write} {fault:?}");
        }
    }
}
