//! `#[step(at_most_once)]`: its intent is durable before its body starts, and found again without an
//! outcome it is not run but interrupted.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use workflow_runtime::journal::{Event, Journal, Outcome, StepIntent};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{Durability, ParkReason};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Interrupted, Result, RunError, RunHandle, RunStatus, Workflow,
    get_step_metadata, step, workflow,
};
use workflow_tests::{Ledger, frames, live_until_the_crash, steps, survive};

/// Has its effect and then takes for ever, unless it is told otherwise.
#[step(at_most_once)]
async fn ship(#[resource] ledger: &Ledger, hangs: bool) -> Result<u32> {
    ledger.act("shipped");
    if hangs {
        pending::<()>().await;
    }
    Ok(1)
}

/// Gives what is known of an interrupted step: the attempt, and when it began.
#[workflow]
async fn send(hangs: bool) -> Result<(u32, Option<SystemTime>)> {
    match ship(hangs).await {
        Ok(shipped) => Ok((shipped, None)),
        Err(error) => {
            let interrupted = error.interrupted().ok_or(error)?;
            Ok((100 + interrupted.attempt(), Some(interrupted.started_at())))
        }
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<send>()
        .register::<send_typed>()
        .register::<send_in_time>()
        .register::<send_badly>()
        .register::<send_twice>()
        .resource_arc(ledger.clone())
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn intents(journal: &Journal) -> Vec<(SystemTime, StepIntent)> {
    let records = journal.records().iter();
    let intents = records.filter_map(|record| match &record.event {
        Event::StepIntent(intent) => Some((record.time.into(), intent.clone())),
        _ => None,
    });
    intents.collect()
}

/// Starts a run whose step hangs, and lets the process die there.
async fn die_in_the_body<W: Workflow>(
    ledger: &Arc<Ledger>,
    builder: EngineBuilder,
    call: workflow_runtime::WorkflowCall<W>,
) -> (MemoryStore, RunHandle<W>) {
    let store = MemoryStore::new();
    let first = builder.open_with(store.clone()).await.expect("opens");
    let run = first.start(call).await.expect("starts");
    settle().await;
    assert_eq!(ledger.effects(), ["shipped"]);
    (store.reopen(Surviving::Synced), run)
}

#[tokio::test]
async fn an_intent_is_durable_before_the_body_starts() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    store.hold();
    let start = tokio::spawn(engine.start(send(false)).into_future());
    settle().await;
    store.release();
    store.hold();
    let run = start.await.expect("joins").expect("starts");
    settle().await;
    assert_eq!(frames(&store, run.id()).await.len(), 2, "start and intent");
    assert_eq!(ledger.asked(), 0, "the body waits for the disk");
    store.release();
    assert_eq!(run.result().await.expect("ends well"), (1, None));
    let journal = engine.journal(run.id()).await.expect("reads");
    let intents = intents(&journal);
    let done = &steps(&journal)[0];
    assert_eq!(intents.len(), 1, "{journal}");
    assert_eq!(
        (intents[0].1.step, intents[0].1.attempt),
        (done.step, done.attempts)
    );
    assert_eq!(store.writes(), 4, "start, intent, outcome, end");
}

#[tokio::test]
async fn found_again_without_an_outcome_it_is_not_run_but_interrupted() {
    let ledger = Ledger::shared();
    let (store, run) = die_in_the_body(&ledger, engine(&ledger), send(true)).await;
    ledger.forget_asking();
    let again = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = again.run::<send>(run.id()).await.expect("is there");
    let (attempt, started_at) = run.result().await.expect("ends well");
    assert_eq!((attempt, ledger.asked()), (101, 0));
    let journal = again.journal(run.id()).await.expect("reads");
    assert_eq!(started_at, Some(intents(&journal)[0].0));
    assert!(
        matches!(steps(&journal)[0].outcome, Outcome::Interrupted(_)),
        "{journal}"
    );
    assert!(
        journal.to_string().contains("interrupted, began")
            && journal.to_string().contains("attempt 1 is about to begin"),
        "{journal}"
    );
}

#[tokio::test]
async fn an_interruption_is_recorded_once_and_stays() {
    for write in 0..4 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let ledger = Ledger::shared();
            let (store, run) = die_in_the_body(&ledger, engine(&ledger), send(true)).await;
            // Mark, recovery, interruption, end.
            store.set_faults(FaultPlan::at(write, fault));
            live_until_the_crash(engine(&ledger), &store).await;
            ledger.forget_asking();
            let third = engine(&ledger)
                .open_with(store.reopen(Surviving::Synced))
                .await
                .expect("opens");
            let run = third.run::<send>(run.id()).await.expect("is there");
            assert_eq!(run.result().await.expect("ends well").0, 101);
            assert_eq!(ledger.asked(), 0);
            let journal = third.journal(run.id()).await.expect("reads");
            assert_eq!(steps(&journal).len(), 1, "{journal}");
        }
    }
}

#[tokio::test]
async fn a_crash_before_the_intent_is_none_of_its_business() {
    for (write, fault, interrupted) in [
        (0, Fault::CrashAfter, false),
        (1, Fault::CrashBefore, false),
        (1, Fault::Tear, false),
        (1, Fault::CrashAfter, true),
        (2, Fault::CrashBefore, true),
        (2, Fault::CrashAfter, false),
    ] {
        let ledger = Ledger::shared();
        let plan = FaultPlan::at(write, fault);
        let (result, _) = survive(|| engine(&ledger), || send(false), [plan]).await;
        let expected = if interrupted { 101 } else { 1 };
        assert_eq!(result.expect("ends well").0, expected, "{write} {fault:?}");
        assert!(ledger.asked() <= 1, "{write} {fault:?}");
    }
}

#[step(at_most_once, timeout = "20ms")]
async fn ship_in_time(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("shipped");
    pending().await
}

#[workflow]
async fn send_in_time() -> Result<bool> {
    Ok(ship_in_time().await.is_err_and(|e| e.is_interrupted()))
}

#[tokio::test]
async fn a_timeout_interrupts_it_too() -> Result<()> {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await?;
    let run = engine.start(send_in_time()).await?;
    assert!(run.result().await?);
    assert_eq!(ledger.asked(), 1, "it is not tried again");
    let journal = engine.journal(run.id()).await?;
    let Outcome::Interrupted(interrupted) = steps(&journal)[0].outcome else {
        panic!("{journal}");
    };
    assert_eq!(interrupted.attempt(), 1);
    assert!(interrupted.started_at() >= intents(&journal)[0].0);
    Ok(())
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Trouble {
    Refused,
    Unknown(Interrupted),
}

impl From<Interrupted> for Trouble {
    fn from(interrupted: Interrupted) -> Self {
        Self::Unknown(interrupted)
    }
}

#[step(at_most_once)]
async fn ship_typed(#[resource] ledger: &Ledger, refuses: bool) -> Result<u32, Trouble> {
    ledger.act("shipped");
    if refuses {
        return Err(Trouble::Refused);
    }
    pending().await
}

#[workflow]
async fn send_typed(refuses: bool) -> Result<u32> {
    Ok(match ship_typed(refuses).await {
        Ok(shipped) => shipped,
        Err(Trouble::Refused) => 200,
        Err(Trouble::Unknown(interrupted)) => 100 + interrupted.attempt(),
    })
}

#[tokio::test]
async fn an_error_type_that_takes_an_interruption_is_given_it() {
    let ledger = Ledger::shared();
    let (store, run) = die_in_the_body(&ledger, engine(&ledger), send_typed(false)).await;
    let again = engine(&ledger).open_with(store).await.expect("opens");
    let run = again.run::<send_typed>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 101);
}

#[tokio::test]
async fn an_error_is_an_outcome_and_is_not_tried_again() -> Result<()> {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await?;
    let run = engine.start(send_typed(true)).await?;
    assert_eq!(run.result().await?, 200);
    assert_eq!(ledger.asked(), 1);
    Ok(())
}

#[step(at_most_once)]
async fn explode(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("shipped");
    std::panic::resume_unwind(Box::new("bang"))
}

#[workflow]
async fn send_badly() -> Result<String> {
    match explode().await {
        Err(error) if !error.is_interrupted() => Ok(error.to_string()),
        other => Err(Error::fatal(format!("{other:?}"))),
    }
}

#[tokio::test]
async fn a_panic_is_known_and_no_interruption() -> Result<()> {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await?;
    let run = engine.start(send_badly()).await?;
    assert_eq!(run.result().await?, "step `explode` panicked: bang");
    assert_eq!(ledger.asked(), 1);
    Ok(())
}

#[workflow]
async fn send_twice(backoff: bool) -> Result<u32> {
    let call = ship(false).max_attempts(1);
    if backoff {
        return call.backoff(Duration::ZERO, Duration::ZERO).await;
    }
    call.max_attempts(2).await
}

#[tokio::test]
async fn a_call_that_asks_for_more_attempts_is_refused() -> Result<()> {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await?;
    for (backoff, option) in [(false, "`.max_attempts()`"), (true, "`.backoff()`")] {
        let run = engine.start(send_twice(backoff)).await?;
        let error = run.result().await.expect_err("is refused");
        assert!(matches!(&error, RunError::Parked(p) if p.reason == ParkReason::Panicked));
        let detail = engine.parked_detail(run.id()).await?.expect("a message");
        assert!(detail.contains(option), "{detail}");
        assert!(detail.contains("it has one attempt"), "{detail}");
    }
    assert_eq!(ledger.asked(), 0);
    Ok(())
}

#[tokio::test]
async fn a_missing_resource_parks_the_run_with_nothing_announced() {
    let store = MemoryStore::new();
    let without = Engine::builder().register::<send>();
    let first = without.open_with(store.clone()).await.expect("opens");
    let run = first.start(send(false)).await.expect("starts");
    let error = run.result().await.expect_err("is parked");
    assert!(matches!(&error, RunError::Parked(p) if p.reason == ParkReason::MissingResource));
    assert_eq!(frames(&store, run.id()).await.len(), 1, "only its start");
    drop(first);
    let ledger = Ledger::shared();
    let again = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = again.run::<send>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), (1, None));
}

#[step]
async fn lacking(#[resource] missing: &std::sync::Mutex<u8>) -> Result<u32> {
    let _ = missing;
    Ok(2)
}

#[workflow]
async fn send_beside() -> Result<u32> {
    let (shipped, other) = futures::join!(ship(false), lacking());
    Ok(shipped? + other?)
}

#[tokio::test]
async fn an_intent_of_a_call_that_is_dropped_at_once_is_taken_back() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = || engine(&ledger).register::<send_beside>();
    let first = builder().open_with(store.clone()).await.expect("opens");
    let run = first.start(send_beside()).await.expect("starts");
    let error = run.result().await.expect_err("is parked");
    assert!(matches!(&error, RunError::Parked(p) if p.reason == ParkReason::MissingResource));
    assert_eq!(frames(&store, run.id()).await.len(), 1, "only its start");
    drop(first);
    let second = builder().resource(std::sync::Mutex::new(0_u8));
    let second = second.open_with(store.reopen(Surviving::Synced)).await;
    let second = second.expect("opens");
    let run = second.run::<send_beside>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 3, "not interrupted");
}

#[tokio::test]
async fn a_shutdown_between_intent_and_body_lets_the_body_run() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    store.hold();
    let start = tokio::spawn(first.start(send(false)).into_future());
    settle().await;
    store.release();
    store.hold();
    let run = start.await.expect("joins").expect("starts");
    settle().await;
    assert_eq!(frames(&store, run.id()).await.len(), 2, "start and intent");
    let shutdown = tokio::spawn(first.shutdown().into_future());
    settle().await;
    assert_eq!(ledger.asked(), 0, "the intent is not durable yet");
    store.release();
    shutdown.await.expect("joins").expect("shuts down");
    assert_eq!(ledger.asked(), 1, "what was announced is as good as begun");
    let again = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = again.run::<send>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), (1, None));
    assert_eq!(ledger.asked(), 1);
}

#[tokio::test]
async fn a_shutdown_that_does_not_wait_for_the_body_interrupts_it() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(send(true)).await.expect("starts");
    settle().await;
    let shutdown = first.shutdown().grace(Duration::from_millis(5));
    shutdown.await.expect("shuts down");
    let again = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = again.run::<send>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well").0, 101);
    assert_eq!(ledger.asked(), 1);
}

#[tokio::test]
async fn in_a_buffered_engine_a_power_cut_does_not_run_it_again() {
    let ledger = Ledger::shared();
    let builder = || engine(&ledger).durability(Durability::Buffered);
    let (store, run) = die_in_the_body(&ledger, builder(), send(true)).await;
    let again = builder().open_with(store).await.expect("opens");
    let run = again.run::<send>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well").0, 101);
    assert_eq!(run.status().await.expect("reads"), RunStatus::Completed);
    assert_eq!(ledger.asked(), 1);
}

#[tokio::test]
async fn the_body_knows_the_id_that_its_intent_names() -> Result<()> {
    #[step(at_most_once)]
    async fn tell() -> Result<String> {
        Ok(get_step_metadata().step_id.to_string())
    }
    #[workflow]
    async fn ask() -> Result<String> {
        tell().await
    }
    let engine = Engine::builder().register::<ask>().open_in_memory().await?;
    let run = engine.start(ask()).await?;
    let told = run.result().await?;
    let journal = engine.journal(run.id()).await?;
    assert_eq!(told, intents(&journal)[0].1.step.to_string());
    Ok(())
}
