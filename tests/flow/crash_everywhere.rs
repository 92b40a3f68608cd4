//! A crash at every journal write: the resumed run ends the same and the outside world saw every
//! effect once.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use futures::join;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, get_step_metadata, sleep, step,
    workflow,
};
use workflow_tests::{Ledger, ids_of, survive};

#[step(backoff = "1ms..2ms")]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

/// Has its effect, then fails twice: the effect must still be one.
#[step(backoff = "1ms..2ms")]
async fn flaky(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    if get_step_metadata().attempt < 3 {
        return Err(Error::new("not yet"));
    }
    Ok(what.len())
}

#[step]
async fn refused(#[resource] ledger: &Ledger) -> Result<usize> {
    ledger.act("refused");
    Err(Error::fatal("card declined"))
}

#[step]
async fn never() -> Result<usize> {
    pending().await
}

#[workflow]
async fn story(fails: bool) -> Result<Vec<usize>> {
    let mut seen = vec![act("first").await?];
    let (a, b) = join!(
        async {
            let n = act("left").await?;
            act(&format!("left {n}")).await
        },
        async { flaky("right").await },
    );
    seen.extend([a?, b?]);
    sleep(Duration::from_millis(2)).await;
    seen.push(
        match select(Box::pin(never()), Box::pin(act("winner"))).await {
            Either::Left((value, _)) | Either::Right((value, _)) => value?,
        },
    );
    if let Err(error) = refused().await {
        seen.push(error.to_string().len());
        if fails {
            return Err(error);
        }
    }
    seen.push(act("last").await?);
    Ok(seen)
}

const EFFECTS: [&str; 7] = [
    "first", "last", "left", "left 4", "refused", "right", "winner",
];
const SEEN: [usize; 6] = [5, 6, 5, 6, 13, 4];

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<story>()
        .resource_arc(ledger.clone())
}

async fn writes_of_a_clean_run() -> u64 {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || story(false), []).await;
    assert_eq!(result.expect("ends well"), SEEN);
    assert_eq!(ledger.effects(), EFFECTS);
    store.writes()
}

async fn ends_the_same(plans: Vec<FaultPlan>) {
    let shown = format!("{plans:?}");
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || story(false), plans).await;
    assert_eq!(result.expect("ends well"), SEEN, "{shown}");
    assert_eq!(ledger.effects(), EFFECTS, "{shown}");
    let engine = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let verification = engine.verify().await.expect("verifies");
    assert!(verification.damaged.is_empty(), "{shown}: {verification:?}");
    let run = engine
        .start(story(false))
        .key("story")
        .await
        .expect("is there");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(ids_of(&journal, "act").len(), 5, "{shown}\n{journal}");
    for seq in journal.records().windows(2) {
        assert!(seq[0].time <= seq[1].time && seq[0].seq + 1 == seq[1].seq);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_changes_neither_result_nor_effects() {
    for write in 0..writes_of_a_clean_run().await {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            ends_the_same(vec![FaultPlan::at(write, fault)]).await;
        }
    }
}

#[tokio::test]
async fn two_crashes_at_any_writes_change_neither_result_nor_effects() {
    let writes = writes_of_a_clean_run().await;
    for first in 0..writes {
        for second in 0..writes + 2 - first {
            ends_the_same(vec![
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ])
            .await;
        }
    }
}

#[tokio::test]
async fn a_run_that_fails_fails_the_same_after_a_crash_at_any_write() {
    for write in 0..writes_of_a_clean_run().await - 1 {
        let ledger = Ledger::shared();
        let plan = FaultPlan::at(write, Fault::CrashBefore);
        let (result, _) = survive(|| engine(&ledger), || story(true), [plan]).await;
        let error = result.expect_err("fails");
        assert!(
            matches!(&error, RunError::Failed(error) if error.to_string() == "card declined"),
            "write {write}: {error:?}"
        );
        let expected: Vec<_> = EFFECTS.into_iter().filter(|e| *e != "last").collect();
        assert_eq!(ledger.effects(), expected, "write {write}");
    }
}

#[tokio::test]
async fn after_a_failed_write_nothing_is_acknowledged_and_a_reopened_store_goes_on() {
    for write in 0..writes_of_a_clean_run().await {
        for fault in [Fault::FailWrite, Fault::FailSync] {
            let ledger = Ledger::shared();
            let store = MemoryStore::with_faults(FaultPlan::at(write, fault));
            let broken = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            match broken.start(story(false)).key("story").await {
                Err(error) => assert!(matches!(error, EngineError::Store(_)), "{error:?}"),
                Ok(run) => {
                    let result = run.result().await;
                    if store.writes() <= write {
                        // A busy machine: writes that were apart in the clean run went together.
                        assert_eq!(result.expect("ends well"), SEEN);
                        continue;
                    }
                    let error = result.expect_err("is not acknowledged");
                    assert!(
                        matches!(error, RunError::Engine(EngineError::Store(_))),
                        "{error:?}"
                    );
                }
            }
            let failure = broken.failure().expect("says so");
            assert!(failure.contains("injected fault"), "{failure}");
            let refused = broken.start(story(false)).key("other").await;
            assert!(matches!(refused, Err(EngineError::Store(_))));
            drop(broken);

            let surviving = Surviving::Random(write);
            let mended = engine(&ledger)
                .open_with(store.reopen(surviving))
                .await
                .expect("opens");
            let run = mended
                .start(story(false))
                .key("story")
                .await
                .expect("starts");
            assert_eq!(run.result().await.expect("ends well"), SEEN);
            assert_eq!(ledger.effects(), EFFECTS, "{fault:?} at {write}");
            assert!(mended.failure().is_none());
        }
    }
}
