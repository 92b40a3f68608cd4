//! Lines through crashes at every write: each thing is done once, no signal is lost, none comes twice.

use workflow_runtime::store::Store;
use workflow_runtime::store::memory::{Fault, FaultPlan};
use workflow_tests::survive;

use super::*;

const FAULTS: [Fault; 3] = [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear];

async fn is_sound(store: &MemoryStore, ledger: &Arc<Ledger>) {
    let after = engine(ledger).open_with(store.reopen(Surviving::Synced));
    let after = after.await.expect("opens");
    let verified = after.verify().await.expect("verifies");
    assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
}

#[tokio::test]
async fn a_crash_at_any_write_changes_neither_result_nor_effects() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || living(0, 3), []).await;
    assert_eq!(result.expect("ends well"), 3);
    let effects = ledger.effects();
    assert_eq!(effects.len(), 4);
    for write in 0..store.writes() {
        for fault in FAULTS {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let (result, store) = survive(|| engine(&ledger), || living(0, 3), [plan]).await;
            assert_eq!(result.expect("ends well"), 3, "{write} {fault:?}");
            assert_eq!(ledger.effects(), effects, "{write} {fault:?}");
            is_sound(&store, &ledger).await;
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_passes_and_runs_loses_neither() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || passing(0), []).await;
    assert_eq!(result.expect("ends well"), 5);
    for write in 0..store.writes() {
        for fault in FAULTS {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let (result, store) = survive(|| engine(&ledger), || passing(0), [plan]).await;
            assert_eq!(result.expect("ends well"), 5, "{write} {fault:?}");
            assert_eq!(ledger.effects().len(), 6, "{write} {fault:?}");
            is_sound(&store, &ledger).await;
        }
    }
}

const TEXTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Starts the line and sends it all texts, each under its own key and to the first run, in every process anew.
async fn talk(store: &MemoryStore, ledger: &Arc<Ledger>) -> Vec<String> {
    let engine = engine(ledger).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let start = engine.start(listening(Vec::new(), TEXTS.len()));
    let run = start.key("story").await.expect("is started");
    let first = engine.lineage(run.id()).await.expect("is there").first;
    for text in TEXTS {
        match engine.signal(first, "text", text).key(text).await {
            Ok(_) | Err(EngineError::Ended(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    run.result().await.expect("ends well")
}

/// Talks through one crash per plan.
async fn talk_through(plans: &[FaultPlan]) -> MemoryStore {
    let ledger = Ledger::shared();
    let mut left = plans.iter().cloned();
    let mut store = MemoryStore::with_faults(left.next().unwrap_or_default());
    let heard = loop {
        tokio::select! {
            biased;
            () = store.crashed() => {}
            heard = talk(&store, &ledger) => break heard,
        }
        store = store.reopen(Surviving::Synced);
        let unfinished = store.unfinished().await.expect("reads").len();
        assert!(unfinished <= 1, "half of a write was made: {plans:?}");
        store.set_faults(left.next().unwrap_or_default());
    };
    assert_eq!(heard, TEXTS, "{plans:?}");
    assert_eq!(ledger.effects().len(), TEXTS.len(), "{plans:?}");
    is_sound(&store, &ledger).await;
    store
}

#[tokio::test]
async fn a_crash_at_any_write_loses_no_signal_and_repeats_none() {
    let writes = talk_through(&[]).await.writes();
    for write in 0..writes + 4 {
        for fault in FAULTS {
            talk_through(&[FaultPlan::at(write, fault)]).await;
        }
    }
}

#[tokio::test]
async fn two_crashes_at_any_writes_lose_no_signal_and_repeat_none() {
    let writes = talk_through(&[]).await.writes();
    for first in 0..writes {
        for second in 0..writes - first {
            let plans = [
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ];
            talk_through(&plans).await;
        }
    }
}

/// Waits for a line and does one thing after it.
#[workflow]
async fn waiting() -> Result<u64> {
    let lived = living(0, 2).await?;
    act("after".into()).await?;
    Ok(lived)
}

#[tokio::test]
async fn a_crash_at_any_write_keeps_a_line_and_its_parent_together() {
    let builder = |ledger: &Arc<Ledger>| engine(ledger).register::<waiting>();
    let ledger = Ledger::shared();
    let (result, store) = survive(|| builder(&ledger), waiting, []).await;
    assert_eq!(result.expect("ends well"), 2);
    for write in 0..store.writes() {
        for fault in FAULTS {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let (result, _) = survive(|| builder(&ledger), waiting, [plan]).await;
            assert_eq!(result.expect("ends well"), 2, "{write} {fault:?}");
            assert_eq!(ledger.effects().len(), 4, "{write} {fault:?}");
        }
    }
}
