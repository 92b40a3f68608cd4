//! What is done to any run of a line is done to the newest.

use workflow_runtime::store::ParkReason;
use workflow_runtime::{ForkPoint, RunError, sleep};

use super::*;

#[step(max_attempts = 1)]
async fn fragile(#[resource] ledger: &Ledger, at: u64) -> Result<()> {
    ledger.act(&format!("fragile {at}"));
    match ledger.effects().contains(&"mended".to_owned()) || at == 0 {
        true => Ok(()),
        false => Err(workflow_runtime::Error::fatal("broken")),
    }
}

#[step]
async fn mend(#[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("mended");
    Ok(())
}

#[workflow]
async fn mending() -> Result<()> {
    mend().await
}

/// Fails in its second run until the world is mended.
#[workflow]
async fn failing(at: u64) -> Result<u64> {
    fragile(at).await?;
    match at {
        1 => Ok(at),
        _ => continue_as_new(failing(at + 1)).await,
    }
}

#[workflow]
async fn resting(at: u64) -> Result<u64> {
    act(format!("rest {at}")).await?;
    match at {
        2 => {
            sleep(Duration::from_secs(3600)).await;
            Ok(at)
        }
        _ => continue_as_new(resting(at + 1)).await,
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    super::engine(ledger)
        .register::<resting>()
        .register::<failing>()
        .register::<mending>()
}

#[tokio::test]
async fn a_cancellation_by_an_old_id_reaches_the_newest_run() {
    for evict in [false, true] {
        let ledger = Ledger::shared();
        let mut builder = engine(&ledger);
        if evict {
            builder = builder.evict_after(Duration::ZERO);
        }
        let engine = builder.open_in_memory().await.expect("opens");
        let run = engine.start(resting(0)).await.expect("starts");
        let line = until_line(&engine, run.id(), 2).await;
        if evict {
            until("it sleeps", async || engine.runs_in_memory() == 0).await;
        }
        engine
            .cancel(run.id())
            .reason("enough")
            .await
            .expect("asks");
        let error = run.result().await.expect_err("was cancelled");
        assert!(
            matches!(&error, RunError::Cancelled { reason } if reason == "enough"),
            "{error}"
        );
        let status = engine.status(line.newest).await.expect("reads");
        assert_eq!(status, RunStatus::Cancelled);
        let status = engine.status(run.id()).await.expect("reads");
        assert_eq!(status, RunStatus::Continued);
        let late = engine.cancel(run.id()).await.expect_err("has ended");
        assert!(matches!(late, EngineError::Ended(_)), "{late}");
    }
}

#[tokio::test]
async fn a_termination_by_an_old_id_ends_the_newest_run() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(resting(0)).await.expect("starts");
    let line = until_line(&engine, run.id(), 2).await;
    engine.terminate(run.id()).await.expect("ends it");
    let status = engine.status(line.newest).await.expect("reads");
    assert_eq!(status, RunStatus::Cancelled);
    assert!(run.result().await.is_err());
    let late = engine.terminate(run.id()).await.expect_err("has ended");
    assert!(matches!(late, EngineError::Ended(_)), "{late}");
}

#[tokio::test]
async fn a_line_that_goes_on_all_the_time_can_be_ended_and_paused() {
    for round in 0..20 {
        let ledger = Ledger::shared();
        let engine = engine(&ledger).open_in_memory().await.expect("opens");
        let run = engine.start(living(0, u64::MAX)).await.expect("starts");
        until_line(&engine, run.id(), 3 + round).await;
        engine.pause(run.id()).await.expect("pauses");
        let paused = engine.paused().await.expect("lists").runs;
        assert_eq!(paused, [newest(&engine, run.id()).await.run]);
        let before = ledger.effects().len();
        engine.resume(run.id()).await.expect("resumes");
        until("it goes on", async || ledger.effects().len() > before).await;
        engine.terminate(run.id()).await.expect("ends it");
        assert!(run.result().await.is_err());
        let after = ledger.effects().len();
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(ledger.effects().len(), after, "nothing of it goes on");
        let unfinished = engine.runs().state(StateKind::Active);
        assert!(unfinished.await.expect("lists").runs.is_empty());
    }
}

#[tokio::test]
async fn pausing_and_resuming_by_an_old_id_act_on_the_newest_run() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger);
    let first = builder.open_with(store.clone()).await.expect("opens");
    let run = first.start(listening(Vec::new(), 2)).await.expect("starts");
    run.signal("text", "a").await.expect("sends");
    let line = until_line(&first, run.id(), 1).await;
    first.pause(run.id()).await.expect("pauses");
    let RunStatus::Parked(parking) = run.status().await.expect("reads") else {
        panic!("it is paused");
    };
    assert_eq!(parking.reason, ParkReason::Paused);
    run.signal("text", "b").await.expect("waits in its mailbox");
    drop(first);
    let store = store.reopen(Surviving::Synced);
    let second = engine(&ledger).open_with(store).await.expect("opens");
    assert_eq!(second.paused().await.expect("lists").runs, [line.newest]);
    let run = second.run::<listening>(run.id()).await.expect("is there");
    second.resume(run.id()).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well"), ["a", "b"]);
}

#[tokio::test]
async fn a_retry_of_a_line_takes_up_its_last_run() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(failing(0)).await.expect("starts");
    run.result().await.expect_err("fails");
    let mending = engine.start(mending()).await.expect("starts");
    mending.result().await.expect("mends");
    run.retry().await.expect("is taken up");
    assert_eq!(run.result().await.expect("ends well"), 1);
    let refused = engine.retry(run.id()).await.expect_err("has not failed");
    assert!(refused.to_string().contains("has completed"), "{refused}");
}

#[tokio::test]
async fn a_fork_of_a_run_that_went_on_is_a_line_of_its_own() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(living(0, 2)).await.expect("starts");
    run.result().await.expect("ends well");
    let second = newest(&engine, run.id()).await.previous.expect("went on");
    for (at, effects) in [(ForkPoint::End, 1), (ForkPoint::Record(2), 2)] {
        let before = ledger.effects().len();
        let fork = engine.fork(second).at(at).await.expect("forks");
        let handle = engine.run::<living>(fork).await.expect("is there");
        assert_eq!(handle.result().await.expect("ends well"), 2);
        let line = newest(&engine, fork).await;
        assert_eq!((line.first, line.ordinal), (fork, 1), "{at}");
        assert_eq!(ledger.effects().len() - before, effects, "{at}");
    }
    let line = newest(&engine, run.id()).await;
    assert_eq!((line.first, line.ordinal), (run.id(), 2), "as it was");
}
