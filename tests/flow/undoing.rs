//! Undoing: in reverse order of completion, journaled, retried, through crashes; and the ends that
//! lead to it: failure, abort, cancellation.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunStatus, abort, abort_keep,
    get_step_metadata, sleep, step, undo_with, workflow,
};
use workflow_tests::Ledger;

#[step(undo = release)]
async fn reserve(#[resource] ledger: &Ledger, item: &str) -> Result<u32> {
    ledger.act(&format!("reserve {item}"));
    Ok(item.len() as u32)
}

#[step(backoff = "1ms..2ms")]
async fn release(
    #[resource] ledger: &Ledger,
    item: String,
    reservation: Option<u32>,
) -> Result<()> {
    ledger.act(&format!("release {item} {reservation:?}"));
    if get_step_metadata().attempt == 1 && item == "flaky" {
        return Err(Error::new("not yet"));
    }
    if item == "stuck" {
        return Err(Error::fatal("cannot be released"));
    }
    Ok(())
}

#[step]
async fn note(#[resource] ledger: &Ledger, text: String) -> Result<()> {
    ledger.act(&text);
    Ok(())
}

#[step(undo = release)]
async fn refused(#[resource] ledger: &Ledger, item: &str) -> Result<u32> {
    ledger.act(&format!("refused {item}"));
    Err(Error::fatal("sold out"))
}

#[step]
async fn release_slow(
    #[resource] ledger: &Ledger,
    item: String,
    _millis: u64,
    reservation: Option<u32>,
) -> Result<()> {
    ledger.act(&format!("release {item} {reservation:?}"));
    Ok(())
}

#[step(undo = release_slow)]
async fn slow(#[resource] ledger: &Ledger, item: &str, millis: u64) -> Result<u32> {
    ledger.act(&format!("slow {item}"));
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(1)
}

#[workflow]
async fn buying(how: String) -> Result<u32> {
    reserve("flaky").await?;
    undo_with(note("kept call".into()));
    reserve("stuck").await?;
    reserve("last").await?;
    match &*how {
        "fail" => return refused("none").await,
        "abort" => abort("edge expired").await,
        "keep" => abort_keep("edge expired").await,
        "wait" => sleep(Duration::from_secs(3600)).await,
        "slow" => drop(slow("bed", 600).await?),
        "too slow" => drop(slow("bed", 3_600_000).await?),
        _ => {}
    }
    Ok(3)
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<buying>()
        .cancel_grace(Duration::from_secs(2))
        .resource_arc(ledger.clone())
}

/// What undoing `buying` does, last done first.
const UNDONE: [&str; 4] = [
    "release last Some(4)",
    "release stuck Some(5)",
    "kept call",
    "release flaky Some(5)",
];

/// The effects that are not reservations, in the order of their first doing.
fn undone(ledger: &Ledger) -> Vec<String> {
    let mut seen = Vec::new();
    for effect in ledger.in_order() {
        if !effect.starts_with("reserve") && !effect.starts_with("slow") {
            seen.push(effect);
        }
    }
    seen
}

#[tokio::test]
async fn a_failed_run_undoes_its_steps_in_reverse_order_and_a_failing_undo_stops_no_other() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(buying("fail".into())).await.expect("starts");
    let error = run.result().await.expect_err("fails");
    assert!(matches!(error, RunError::Failed(_)), "{error}");
    let mut expected = vec!["refused none", "release none None"];
    expected.extend(UNDONE);
    assert_eq!(undone(&ledger), expected);
    let warned = engine
        .warnings()
        .iter()
        .any(|w| w.message.contains("`reserve` failed"));
    assert!(warned, "{:?}", engine.warnings());
}

#[tokio::test]
async fn an_aborted_run_is_neither_a_success_nor_a_failure_and_is_undone() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(buying("abort".into())).await.expect("starts");
    let error = run.result().await.expect_err("aborts");
    assert!(
        matches!(&error, RunError::Aborted { reason } if reason == "edge expired"),
        "{error}"
    );
    assert_eq!(run.status().await.expect("is there"), RunStatus::Aborted);
    assert_eq!(undone(&ledger), UNDONE);
}

#[tokio::test]
async fn abort_keep_leaves_what_was_done() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(buying("keep".into())).await.expect("starts");
    run.result().await.expect_err("aborts");
    assert_eq!(undone(&ledger), [""; 0]);
}

#[tokio::test]
async fn a_completed_run_undoes_nothing() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine
        .start(buying("complete".into()))
        .await
        .expect("starts");
    assert_eq!(run.result().await.expect("completes"), 3);
    assert_eq!(undone(&ledger), [""; 0]);
}

async fn cancelled(how: &str) -> Vec<String> {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(buying(how.into())).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(20)).await;
    run.cancel().reason("why not").await.expect("asks");
    run.cancel().await.expect("twice is fine");
    let error = run.result().await.expect_err("cancelled");
    assert!(
        matches!(&error, RunError::Cancelled { reason } if reason == "why not"),
        "{error}"
    );
    undone(&ledger)
}

#[tokio::test]
async fn a_cancelled_run_undoes_what_it_did_and_lets_bodies_finish_within_their_grace() {
    assert_eq!(cancelled("wait").await, UNDONE);
    let mut finished = vec!["release bed Some(1)"];
    finished.extend(UNDONE);
    assert_eq!(cancelled("slow").await, finished);
    let mut dropped = vec!["release bed None"];
    dropped.extend(UNDONE);
    assert_eq!(cancelled("too slow").await, dropped);
}

#[tokio::test]
async fn a_terminated_run_ends_at_once_and_undoes_nothing() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine
        .start(buying("too slow".into()))
        .await
        .expect("starts");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    tokio::task::yield_now().await;
    engine
        .terminate(run.id())
        .reason("now")
        .await
        .expect("terminates");
    for result in [run.result().await, waiting.await.expect("no panic")] {
        let error = result.expect_err("terminated");
        assert!(
            matches!(&error, RunError::Cancelled { reason } if reason == "now"),
            "{error}"
        );
    }
    assert_eq!(undone(&ledger), [""; 0]);
    let refused = engine.terminate(run.id()).await.expect_err("it has ended");
    assert!(matches!(refused, EngineError::Ended(_)), "{refused}");
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
}

/// Runs `buying` to its end through one crash, cancelling it if it waits.
async fn through(how: &str, plan: FaultPlan) -> (String, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine
                .start(buying(how.into()))
                .key("story")
                .await
                .expect("starts");
            if how == "wait" {
                tokio::time::sleep(Duration::from_millis(10)).await;
                match run.cancel().reason("why not").await {
                    Ok(()) | Err(EngineError::Ended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            run.result()
                .await
                .expect_err("does not complete")
                .to_string()
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            error = living => return (error, ledger.effects(), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_undoes_everything_once() {
    for how in ["fail", "abort", "wait"] {
        let (error, effects, writes) = through(how, FaultPlan::none()).await;
        for write in 0..writes {
            for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
                let after = through(how, FaultPlan::at(write, fault)).await;
                assert_eq!(after.0, error, "{how} {write} {fault:?}");
                assert_eq!(after.1, effects, "{how} {write} {fault:?}");
            }
        }
    }
}
