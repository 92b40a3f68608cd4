//! What becomes of the key of a run that does not complete.

use workflow_runtime::{EngineError, OnFailure, RunHandle, RunId, RunStatus};

use super::*;

#[workflow(on_failure = "release")]
async fn releasing(fate: Fate) -> Result<u64> {
    match fate {
        Fate::Fails => Err(Error::fatal("told to")),
        _ => charge(1).await,
    }
}

#[step(max_attempts = 1)]
async fn flaky(#[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("flaky");
    match ledger.asked() {
        1 => Err(Error::new("the first time")),
        _ => Ok(()),
    }
}

#[workflow(on_failure = "release")]
async fn fails_once() -> Result<()> {
    flaky().await
}

const DID_NOT_COMPLETE: [Fate; 3] = [Fate::Fails, Fate::Aborts, Fate::Waits];

/// Ends a run that does not complete.
async fn end(run: &RunHandle<fated>, fate: Fate) {
    if fate == Fate::Waits {
        run.cancel().await.expect("asks");
    }
    run.result().await.expect_err("does not complete");
}

#[tokio::test]
async fn a_key_of_a_run_that_did_not_complete_is_kept() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    for fate in DID_NOT_COMPLETE {
        let key = format!("{fate:?}");
        let run = engine.start(fated(fate)).key(&key).await.expect("starts");
        end(&run, fate).await;
        let again = engine.start(fated(fate)).key(&key);
        // Who asks later does not decide.
        let again = again.on_failure(OnFailure::Release).await;
        assert_eq!(again.expect("is found").id(), run.id());
        let other = engine.start(fated(Fate::Completes)).key(&key).await;
        assert!(matches!(other, Err(EngineError::Conflict { .. })));
    }
}

#[tokio::test]
async fn a_key_is_released_by_a_run_that_did_not_complete_if_that_was_said() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger).on_failure(OnFailure::Release);
    let engines = [
        engine(&ledger).open_in_memory().await.expect("opens"),
        builder.open_in_memory().await.expect("opens"),
    ];
    for (engine, said) in engines.iter().zip([Some(OnFailure::Release), None]) {
        for fate in DID_NOT_COMPLETE {
            let start = |fate| {
                let start = engine.start(fated(fate)).key("k");
                match said {
                    Some(said) => start.on_failure(said),
                    None => start,
                }
            };
            let run = start(fate).await.expect("starts");
            end(&run, fate).await;
            let again = start(fate).await.expect("starts");
            assert_ne!(again.id(), run.id(), "the same input, too");
            end(&again, fate).await;
        }
        let done = engine.start(fated(Fate::Completes)).key("k").await;
        let done = done.expect("starts");
        done.result().await.expect("ends well");
        let again = engine.start(fated(Fate::Completes)).key("k").await;
        assert_eq!(again.expect("is found").id(), done.id(), "completed: kept");
    }
}

#[tokio::test]
async fn a_workflow_says_that_its_keys_are_released() {
    let builder = engine(&Ledger::shared()).register::<releasing>();
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(releasing(Fate::Fails)).key("k").await;
    let run = run.expect("starts");
    run.result().await.expect_err("fails");
    let start = engine.start(releasing(Fate::Fails)).key("k");
    let kept = start.on_failure(OnFailure::Keep).await.expect("starts");
    assert_ne!(kept.id(), run.id());
    kept.result().await.expect_err("fails");
    let again = engine.start(releasing(Fate::Fails)).key("k").await;
    assert_eq!(again.expect("is found").id(), kept.id());
}

#[tokio::test]
async fn a_parked_run_has_not_ended_and_holds_its_key() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    let start = || {
        let start = engine.start(fated(Fate::Panics)).key("k");
        start.on_failure(OnFailure::Release).key_ttl(Duration::ZERO)
    };
    let run = start().await.expect("starts");
    run.result().await.expect_err("is parked");
    assert!(matches!(
        run.status().await.expect("reads"),
        RunStatus::Parked(_)
    ));
    assert_eq!(start().await.expect("is found").id(), run.id());
    let refused = engine.start(fated(Fate::Completes)).key("k").await;
    assert!(matches!(refused, Err(EngineError::Conflict { .. })));
}

#[tokio::test]
async fn a_failed_run_whose_key_went_to_a_newer_one_is_not_retried() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger).register::<fails_once>();
    let engine = builder.open_in_memory().await.expect("opens");
    let old = engine.start(fails_once()).key("k").await.expect("starts");
    old.result().await.expect_err("fails");
    let new = engine.start(fails_once()).key("k").await.expect("starts");
    new.result().await.expect("ends well");
    let refused = old.retry().await;
    let Err(EngineError::NotFailed { how, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert!(how.contains("newer run"), "{how}");
}

/// A retry and a start race for the key of a failed run. Says whether each got it.
async fn race(first_yields: usize) -> (bool, bool) {
    let ledger = Ledger::shared();
    let store = workflow_tests::Edited {
        store: MemoryStore::new(),
        edit: |_: &mut Vec<bytes::Bytes>| {},
    };
    let builder = engine(&ledger).register::<fails_once>();
    let engine = builder.open_with(store).await.expect("opens");
    let old = engine.start(fails_once()).key("k").await.expect("starts");
    old.result().await.expect_err("fails");
    let retrying = {
        let (engine, old) = (engine.clone(), old.id());
        tokio::spawn(async move { engine.retry(old).await.is_ok() })
    };
    let starting = {
        let (engine, old) = (engine.clone(), old.id());
        tokio::spawn(async move {
            for _ in 0..first_yields {
                tokio::task::yield_now().await;
            }
            let run = engine.start(fails_once()).key("k").await.expect("starts");
            let id: RunId = run.id();
            run.result().await.expect("ends well");
            id != old
        })
    };
    let retried = retrying.await.expect("no panic");
    (retried, starting.await.expect("no panic"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_and_a_start_never_both_get_the_key() {
    for round in 0..200 {
        let (retried, started_anew) = race(round % 13).await;
        assert_ne!(retried, started_anew, "round {round}");
    }
}
