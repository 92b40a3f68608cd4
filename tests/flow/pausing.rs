//! Pausing: of a run, a workflow, everything; what stops, what goes on, and that it lasts.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::join;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use workflow_runtime::journal::Event;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Result, RunError, RunId, RunStatus, sleep, step, wait_for,
    workflow,
};
use workflow_tests::Ledger;

const LONG: Duration = Duration::from_secs(5);

/// Opens and shuts the way of steps that are in flight.
struct Gate(Semaphore);

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[step]
async fn pass(#[resource] ledger: &Ledger, #[resource] gate: &Gate, what: &str) -> Result<()> {
    ledger.act(what);
    gate.0.acquire().await?.forget();
    Ok(())
}

#[workflow]
async fn passing() -> Result<u32> {
    pass("first").await?;
    act("second").await?;
    Ok(2)
}

#[workflow]
async fn napping(millis: u64) -> Result<()> {
    act("before").await?;
    sleep(Duration::from_millis(millis)).await;
    act("after").await
}

#[workflow]
async fn listening() -> Result<u32> {
    let ((), answer) = join!(sleep(Duration::from_millis(5)), wait_for::<u32>("answer"));
    let answer = answer?;
    act("heard").await?;
    Ok(answer)
}

#[workflow]
async fn failing() -> Result<()> {
    act("before").await?;
    std::panic::panic_any("on purpose");
}

fn engine(ledger: &Arc<Ledger>, gate: &Arc<Gate>) -> EngineBuilder {
    Engine::builder()
        .register::<passing>()
        .register::<napping>()
        .register::<listening>()
        .register::<failing>()
        .resource_arc(ledger.clone())
        .resource_arc(gate.clone())
}

fn world() -> (Arc<Ledger>, Arc<Gate>) {
    (Ledger::shared(), Arc::new(Gate(Semaphore::new(0))))
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn assert_paused(engine: &Engine, run: RunId) {
    let RunStatus::Parked(parking) = engine.status(run).await.expect("is there") else {
        panic!("it is not parked");
    };
    assert_eq!(parking.reason, ParkReason::Paused);
}

#[tokio::test]
async fn a_paused_run_finishes_what_it_began_begins_nothing_and_stays_paused() {
    let (ledger, gate) = world();
    let store = MemoryStore::new();
    let opened = engine(&ledger, &gate).open_with(store.clone()).await;
    let first = opened.expect("opens");
    let run = first.start(passing()).key("p").await.expect("starts");
    settle().await;
    let pausing = tokio::spawn({
        let (engine, run) = (first.clone(), run.id());
        async move { engine.pause(run).await }
    });
    settle().await;
    assert!(!pausing.is_finished(), "a body is in flight");
    gate.0.add_permits(1);
    let paused = timeout(LONG, pausing).await.expect("does not hang");
    paused.expect("no panic").expect("pauses");
    assert_paused(&first, run.id()).await;
    assert_eq!(ledger.effects(), ["first"]);
    let journal = first.journal(run.id()).await.expect("reads");
    let last = journal.records().last().expect("a record");
    assert!(matches!(last.event, Event::StepCompleted(_)), "{journal}");
    first.pause(run.id()).await.expect("twice is fine");
    let error = run.result().await.expect_err("is parked");
    assert!(matches!(error, RunError::Parked(_)), "{error}");
    drop(first);

    let store = store.reopen(Surviving::Synced);
    let opened = engine(&ledger, &gate).open_with(store).await;
    let next = opened.expect("opens");
    settle().await;
    assert_paused(&next, run.id()).await;
    assert_eq!(next.paused().await.expect("lists").runs, [run.id()]);
    next.resume(run.id()).await.expect("resumes");
    let run = next.run::<passing>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 2);
    assert_eq!(ledger.asked(), 2, "nothing was run twice");
    let refused = next.pause(run.id()).await.expect_err("it has ended");
    assert!(matches!(refused, EngineError::Ended(_)), "{refused}");
}

#[tokio::test]
async fn a_run_that_left_memory_can_be_paused_and_its_timer_does_not_wake_it() {
    let (ledger, gate) = world();
    let builder = engine(&ledger, &gate).evict_after(Duration::from_millis(2));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(napping(60)).await.expect("starts");
    let awake = engine.start(napping(60)).await.expect("starts");
    engine.pause(awake.id()).await.expect("pauses");
    let began = Instant::now();
    while engine.runs_in_memory() > 0 {
        assert!(began.elapsed() < LONG, "still in memory");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.pause(run.id()).await.expect("pauses");
    tokio::time::sleep(Duration::from_millis(150)).await;
    for run in [&run, &awake] {
        assert_paused(&engine, run.id()).await;
        engine.resume(run.id()).await.expect("resumes");
        timeout(LONG, run.result())
            .await
            .expect("goes on")
            .expect("ends well");
    }
    assert_eq!(ledger.asked(), 4);
}

#[tokio::test]
async fn a_paused_run_that_is_cancelled_ends_when_it_is_resumed_and_begins_nothing() {
    let (ledger, gate) = world();
    let builder = engine(&ledger, &gate).cancel_grace(Duration::from_millis(50));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(passing()).await.expect("starts");
    settle().await;
    gate.0.add_permits(1);
    engine.pause(run.id()).await.expect("pauses");
    run.cancel().reason("enough").await.expect("asks");
    settle().await;
    assert_paused(&engine, run.id()).await;
    engine.resume(run.id()).await.expect("resumes");
    let error = run.result().await.expect_err("cancelled");
    assert!(
        matches!(&error, RunError::Cancelled { reason } if reason == "enough"),
        "{error}"
    );
    assert_eq!(ledger.effects(), ["first"]);
}

#[tokio::test]
async fn a_paused_run_can_be_terminated_at_once() {
    let (ledger, gate) = world();
    let opened = engine(&ledger, &gate).open_in_memory().await;
    let engine = opened.expect("opens");
    let run = engine.start(napping(3_600_000)).await.expect("starts");
    engine.pause(run.id()).await.expect("pauses");
    engine.terminate(run.id()).await.expect("terminates");
    let error = run.result().await.expect_err("terminated");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    assert_eq!(engine.paused().await.expect("lists").runs, []);
}

#[tokio::test]
async fn a_resume_that_comes_while_a_run_is_being_paused_is_not_lost() {
    let (ledger, gate) = world();
    let opened = engine(&ledger, &gate).open_in_memory().await;
    let engine = opened.expect("opens");
    let run = engine.start(passing()).await.expect("starts");
    settle().await;
    let (pausing, resuming) = (engine.pause(run.id()), async {
        settle().await;
        engine.resume(run.id()).await
    });
    let opening = async {
        settle().await;
        settle().await;
        gate.0.add_permits(1);
    };
    let all = timeout(LONG, async { join!(pausing, resuming, opening) });
    let (paused, resumed, ()) = all.await.expect("does not hang");
    paused.expect("pauses");
    resumed.expect("resumes");
    let result = timeout(LONG, run.result()).await.expect("goes on");
    assert_eq!(result.expect("ends well"), 2);
}

#[tokio::test]
async fn a_parked_run_that_is_paused_keeps_its_report() {
    let (ledger, gate) = world();
    let opened = engine(&ledger, &gate).open_in_memory().await;
    let engine = opened.expect("opens");
    let run = engine.start(failing()).await.expect("starts");
    run.result().await.expect_err("panics");
    engine.pause(run.id()).await.expect("pauses");
    assert_paused(&engine, run.id()).await;
    let RunStatus::Parked(parking) = run.status().await.expect("is there") else {
        panic!("it is not parked");
    };
    assert!(parking.report.contains("panicked"), "{}", parking.report);
    let detail = engine.parked_detail(run.id()).await.expect("reads");
    assert!(detail.is_some_and(|detail| detail.contains("on purpose")));
    let unknown = engine.pause(RunId::from_bytes([9; 16])).await;
    assert!(matches!(unknown, Err(EngineError::UnknownRun(_))));
}

#[tokio::test]
async fn no_step_of_a_paused_workflow_begins_and_all_else_goes_on_across_restarts() {
    let (ledger, gate) = world();
    let store = MemoryStore::new();
    let opened = engine(&ledger, &gate).open_with(store.clone()).await;
    let first = opened.expect("opens");
    let before = first
        .start(listening())
        .key("before")
        .await
        .expect("starts");
    let passed = first.start(passing()).key("passed").await.expect("starts");
    settle().await;
    first.pause_workflow("listening").await.expect("pauses");
    first.pause_workflow("passing").await.expect("pauses");
    let later = first.start(listening()).key("later").await.expect("starts");
    for run in [&before, &later] {
        run.signal("answer", &4_u32).await.expect("is accepted");
    }
    gate.0.add_permits(1); // what was in flight goes on
    settle().await;
    assert_eq!(ledger.effects(), ["first"]);
    for run in [&before, &later] {
        assert_eq!(run.status().await.expect("is there"), RunStatus::Active);
        let journal = first.journal(run.id()).await.expect("reads");
        let has = |such: fn(&Event) -> bool| journal.records().iter().any(|r| such(&r.event));
        assert!(
            has(|event| matches!(event, Event::TimerFired(_))),
            "{journal}"
        );
        assert!(has(|event| matches!(event, Event::SignalReceived(_))));
    }
    let journal = first.journal(passed.id()).await.expect("reads");
    assert!(matches!(
        journal.records()[1].event,
        Event::StepCompleted(_)
    ));
    let other = first.start(napping(1)).await.expect("starts");
    other.result().await.expect("others go on");
    let paused = first.paused().await.expect("lists");
    assert_eq!((paused.all, paused.runs.len()), (false, 0));
    assert_eq!(paused.workflows, ["listening", "passing"]);
    drop(first);

    let store = store.reopen(Surviving::Synced);
    let opened = engine(&ledger, &gate).open_with(store).await;
    let next = opened.expect("opens");
    settle().await;
    assert!(!ledger.effects().contains(&"heard".to_owned()));
    assert_eq!(next.paused().await.expect("lists").workflows.len(), 2);
    next.resume_workflow("listening").await.expect("resumes");
    for run in [before.id(), later.id()] {
        let run = next.run::<listening>(run).await.expect("is there");
        let result = timeout(LONG, run.result()).await.expect("goes on");
        assert_eq!(result.expect("ends well"), 4);
    }
    settle().await;
    assert!(!ledger.effects().contains(&"second".to_owned()));
    next.resume_workflow("passing").await.expect("resumes");
    let run = next.run::<passing>(passed.id()).await.expect("is there");
    let result = timeout(LONG, run.result()).await.expect("goes on");
    assert_eq!(result.expect("ends well"), 2);
    let refused = next.pause_workflow("nobody").await.expect_err("unknown");
    assert!(refused.to_string().contains("`nobody`"), "{refused}");
}

#[tokio::test]
async fn a_paused_engine_begins_no_step_of_any_workflow_and_ends_what_needs_none() {
    let (ledger, gate) = world();
    let opened = engine(&ledger, &gate).open_in_memory().await;
    let engine = opened.expect("opens");
    let napping = engine.start(napping(5)).await.expect("starts");
    settle().await;
    let effects = ledger.effects().len();
    engine.pause_all().await.expect("pauses");
    assert!(engine.paused().await.expect("lists").all);
    let listening = engine.start(listening()).await.expect("starts");
    let passing = engine.start(passing()).await.expect("starts");
    listening.signal("answer", &1_u32).await.expect("sends");
    settle().await;
    assert_eq!(ledger.effects().len(), effects);
    // Cancelling needs no step here.
    passing.cancel().await.expect("asks");
    let ended = timeout(LONG, passing.result()).await.expect("goes on");
    ended.expect_err("cancelled");
    // A pause by name outlasts that of everything.
    engine.pause_workflow("listening").await.expect("pauses");
    engine.resume_all().await.expect("resumes");
    napping.result().await.expect("ends well");
    settle().await;
    let status = listening.status().await.expect("is there");
    assert_eq!(status, RunStatus::Active);
    engine.resume_workflow("listening").await.expect("resumes");
    let result = timeout(LONG, listening.result()).await.expect("goes on");
    assert_eq!(result.expect("ends well"), 1);
}

/// Runs `napping` to its end with a pause in it, through one crash.
async fn through(plan: FaultPlan) -> (Vec<String>, u64) {
    let (ledger, gate) = world();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let builder = engine(&ledger, &gate).evict_after(Duration::from_millis(1));
            let engine = builder.open_with(store.clone()).await.expect("opens");
            engine.pause_workflow("passing").await.expect("pauses");
            let run = engine.start(napping(6)).key("n").await.expect("starts");
            match engine.pause(run.id()).await {
                Ok(()) => {
                    assert_paused(&engine, run.id()).await;
                    engine.resume(run.id()).await.expect("resumes");
                }
                Err(EngineError::Ended(_)) => {}
                Err(error) => panic!("{error}"),
            }
            run.result().await.expect("ends well");
            gate.0.add_permits(1);
            let run = engine.start(passing()).key("p").await.expect("starts");
            engine.resume_workflow("passing").await.expect("resumes");
            run.result().await.expect("ends well");
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => return (ledger.effects(), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_paused_run_changes_nothing() {
    let (effects, writes) = through(FaultPlan::none()).await;
    assert_eq!(effects.len(), 4);
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let plan = FaultPlan::at(write, fault);
            let after = timeout(LONG, through(plan)).await.expect("does not hang");
            assert_eq!(after.0, effects, "{write} {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runs_that_are_paused_and_resumed_at_any_moment_lose_nothing() {
    let (ledger, gate) = world();
    let builder = engine(&ledger, &gate).evict_after(Duration::from_millis(1));
    let engine = builder.open_in_memory().await.expect("opens");
    let mut tasks = Vec::new();
    for number in 0..40_u64 {
        let engine = engine.clone();
        tasks.push(tokio::spawn(async move {
            let run = engine.start(napping(3 + number % 5)).await.expect("starts");
            for round in 0..10 {
                tokio::time::sleep(Duration::from_micros(150 * (number % 7 + round))).await;
                match engine.pause(run.id()).await {
                    Ok(()) => engine.resume(run.id()).await.expect("resumes"),
                    Err(EngineError::Ended(_)) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            run.result().await.expect("ends well");
        }));
    }
    for task in tasks {
        let ended = timeout(LONG, task).await.expect("does not hang");
        ended.expect("no panic");
    }
    assert_eq!(ledger.asked(), 80, "every step ran once");
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
    let stopping = engine.shutdown().into_future();
    timeout(LONG, stopping)
        .await
        .expect("stops")
        .expect("stops");
}
