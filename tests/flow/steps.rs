//! Attempts: retries, errors, panics, timeouts, blocking bodies, limits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use workflow_runtime::journal::{AttemptFailed, Event, Journal, Outcome};
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, ResultExt, RunError, RunHandle, Workflow, WorkflowCall,
    get_step_metadata, step, workflow,
};
use workflow_tests::{Ledger, steps};

/// Starts a run on an engine with a ledger.
async fn start<W: Workflow>(call: WorkflowCall<W>) -> (Engine, RunHandle<W>, Arc<Ledger>) {
    start_with(call, |builder| builder).await
}

async fn start_with<W: Workflow>(
    call: WorkflowCall<W>,
    configure: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> (Engine, RunHandle<W>, Arc<Ledger>) {
    let ledger = Ledger::shared();
    let builder = Engine::builder()
        .register::<W>()
        .resource_arc(ledger.clone());
    let engine = configure(builder).open_in_memory().await.expect("opens");
    let run = engine.start(call).await.expect("starts");
    (engine, run, ledger)
}

fn failures(journal: &Journal) -> Vec<AttemptFailed> {
    journal
        .records()
        .iter()
        .filter_map(|record| match &record.event {
            Event::AttemptFailed(failed) => Some(failed.clone()),
            _ => None,
        })
        .collect()
}

#[step(max_attempts = 3, backoff = "2ms..4ms")]
async fn failing(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("failing");
    Err(Error::new(format!(
        "attempt {} failed",
        get_step_metadata().attempt
    )))
}

#[workflow]
async fn always_failing() -> Result<u32> {
    failing().await
}

#[tokio::test]
async fn a_failing_step_is_tried_as_often_as_it_says_with_backoff_in_between() {
    let began = Instant::now();
    let (engine, run, ledger) = start(always_failing()).await;
    let error = run.result().await.expect_err("fails");
    assert!(matches!(&error, RunError::Failed(e) if e.to_string() == "attempt 3 failed"));
    assert!(
        began.elapsed() >= Duration::from_millis(4),
        "two waits of 2 ms at least"
    );
    let attempts: Vec<_> = ledger.attempts().into_iter().map(|(_, n)| n).collect();
    assert_eq!(attempts, [1, 2, 3]);

    let journal = engine.journal(run.id()).await.expect("reads");
    let failed = failures(&journal);
    assert_eq!(failed.iter().map(|f| f.attempt).collect::<Vec<_>>(), [1, 2]);
    for (failed, record) in failed.iter().zip(&journal.records()[1..]) {
        let wait = failed.next_at.since(record.time);
        assert!(wait <= Duration::from_millis(4), "{wait:?}");
        let Outcome::Err(payload) = &failed.failure else {
            panic!("{failed:?}");
        };
        let error: Error = rmp_serde::from_slice(payload).expect("is an error");
        assert_eq!(
            error.to_string(),
            format!("attempt {} failed", failed.attempt)
        );
    }
    let outcome = &steps(&journal)[0];
    assert_eq!(outcome.attempts, 3);
    assert!(matches!(outcome.outcome, Outcome::Err(_)));
}

#[workflow]
async fn configured_by_the_call() -> Result<u32> {
    let slow = Duration::from_secs(60);
    failing().max_attempts(1).backoff(slow, slow).await
}

#[tokio::test]
async fn a_call_can_say_otherwise() {
    let (_engine, run, ledger) = start(configured_by_the_call()).await;
    run.result().await.expect_err("fails");
    assert_eq!(ledger.asked(), 1);
}

#[step]
async fn by_the_engine(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("x");
    Err(Error::new("no"))
}

#[workflow]
async fn engine_policy() -> Result<u32> {
    by_the_engine().await
}

#[tokio::test]
async fn the_engine_says_how_often_steps_are_tried_that_do_not() {
    let ms = Duration::from_millis(1);
    let (_engine, run, ledger) =
        start_with(engine_policy(), |b| b.max_attempts(6).backoff(ms, ms)).await;
    run.result().await.expect_err("fails");
    assert_eq!(ledger.asked(), 6);
}

#[step(max_attempts = 3, backoff = "60ms")]
async fn slowly_failing(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("slowly_failing");
    match get_step_metadata().attempt {
        3 => Ok(3),
        _ => Err(Error::new("later")),
    }
}

#[workflow]
async fn waits_between_attempts() -> Result<u32> {
    slowly_failing().await
}

#[tokio::test]
async fn attempts_and_the_wait_for_the_next_survive_a_restart() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = || {
        Engine::builder()
            .register::<waits_between_attempts>()
            .resource_arc(ledger.clone())
    };
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine
        .start(waits_between_attempts())
        .await
        .expect("starts");
    let began = Instant::now();
    while store.writes() < 2 {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let engine = builder()
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = engine
        .run::<waits_between_attempts>(run.id())
        .await
        .expect("there");
    assert_eq!(run.result().await.expect("ends well"), 3);
    assert!(
        began.elapsed() >= Duration::from_millis(115),
        "{:?}",
        began.elapsed()
    );
    let attempts: Vec<_> = ledger.attempts().into_iter().map(|(_, n)| n).collect();
    assert_eq!(attempts, [1, 2, 3]);
}

#[step]
async fn fatal(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("fatal");
    "twelve".parse::<u32>().fatal()
}

#[step(backoff = "10s")]
async fn come_back_soon(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("come back soon");
    match get_step_metadata().attempt {
        1 => Err(Error::retry_after("busy", Duration::from_millis(20))),
        n => Ok(n),
    }
}

#[workflow]
async fn hints() -> Result<(String, u32)> {
    let error = fatal().await.expect_err("it fails");
    Ok((error.to_string(), come_back_soon().await?))
}

#[tokio::test]
async fn an_error_can_ask_not_to_be_retried_or_when() {
    let began = Instant::now();
    let (_engine, run, ledger) = start(hints()).await;
    let (error, attempt) = run.result().await.expect("ends well");
    assert_eq!(error, "invalid digit found in string");
    assert_eq!(attempt, 2);
    assert_eq!(ledger.asked(), 3);
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(20) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Declined {
    Busy,
    NoMoney { missing: u64 },
}

fn is_busy(error: &Declined) -> bool {
    *error == Declined::Busy
}

type Alias<T> = std::result::Result<T, Declined>;

#[step(retry_if = is_busy, backoff = "1ms")]
async fn card(#[resource] ledger: &Ledger) -> Alias<u32> {
    ledger.act("card");
    match get_step_metadata().attempt {
        1 => Err(Declined::Busy),
        _ => Err(Declined::NoMoney { missing: 5 }),
    }
}

#[workflow]
async fn typed() -> Result<u32, Declined> {
    card().await
}

#[tokio::test]
async fn typed_errors_come_back_as_they_are_and_retry_if_decides() {
    let (engine, run, ledger) = start(typed()).await;
    let error = run.result().await.expect_err("fails");
    assert!(matches!(
        error,
        RunError::Failed(Declined::NoMoney { missing: 5 })
    ));
    assert_eq!(ledger.asked(), 2);
    let journal = engine.journal(run.id()).await.expect("reads");
    assert!(
        matches!(steps(&journal)[0].outcome, Outcome::Err(_)),
        "an alias of Result is one"
    );
}

#[step]
async fn plain(n: u32) -> u32 {
    n + 1
}

#[step]
async fn nothing() {}

#[workflow]
async fn plain_returns(n: u32) -> u32 {
    nothing().await;
    plain(n).await
}

#[tokio::test]
async fn steps_and_workflows_may_return_plain_values() {
    let (_engine, run, _) = start(plain_returns(4)).await;
    assert_eq!(run.result().await.expect("ends well"), 5);
}

#[step(backoff = "1ms")]
async fn panics(#[resource] ledger: &Ledger, until: u32) -> Result<u32> {
    ledger.act("panics");
    let attempt = get_step_metadata().attempt;
    assert!(attempt >= until, "attempt {attempt} went wrong");
    Ok(attempt)
}

#[workflow]
async fn panicking(until: u32) -> Result<u32> {
    panics(until).await
}

#[tokio::test]
async fn a_panic_is_caught_retried_and_in_the_end_an_error() {
    let (_engine, run, _) = start(panicking(3)).await;
    assert_eq!(run.result().await.expect("ends well"), 3);
    let (engine, run, ledger) = start(panicking(9)).await;
    let error = run.result().await.expect_err("fails");
    assert!(
        matches!(&error, RunError::Failed(e) if e.to_string() == "step `panics` panicked: attempt 4 went wrong"),
        "{error:?}"
    );
    assert_eq!(ledger.asked(), 4);
    let journal = engine.journal(run.id()).await.expect("reads");
    assert!(matches!(steps(&journal)[0].outcome, Outcome::Broken(_)));
}

#[step(backoff = "1ms", max_attempts = 2)]
async fn panics_without_a_place(#[resource] ledger: &Ledger) -> u32 {
    ledger.act("panics");
    panic!("no value")
}

#[workflow]
async fn no_place() -> u32 {
    panics_without_a_place().await
}

#[tokio::test]
async fn a_step_that_can_give_no_value_fails_the_run_by_name() {
    let (_engine, run, ledger) = start(no_place()).await;
    let error = run.result().await.expect_err("fails");
    let RunError::Broken(error) = error else {
        panic!("{error:?}");
    };
    let text = format!("{error:#}");
    assert!(text.contains("step `panics_without_a_place` at"), "{text}");
    assert!(text.contains("panicked: no value"), "{text}");
    assert_eq!(ledger.asked(), 2);
}

#[step(timeout = "10ms", backoff = "1ms", max_attempts = 2)]
async fn hangs(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("hangs");
    match get_step_metadata().attempt {
        1 => std::future::pending().await,
        n => Ok(n),
    }
}

#[workflow]
async fn timing_out() -> Result<u32> {
    hangs().await
}

#[tokio::test]
async fn a_timeout_ends_one_attempt_and_the_next_has_its_own() {
    let (engine, run, ledger) = start(timing_out()).await;
    assert_eq!(run.result().await.expect("ends well"), 2);
    assert_eq!(ledger.asked(), 2);
    let journal = engine.journal(run.id()).await.expect("reads");
    let Outcome::Broken(payload) = &failures(&journal)[0].failure else {
        panic!("{journal}");
    };
    let error: Error = rmp_serde::from_slice(payload).expect("is an error");
    assert_eq!(error.to_string(), "step `hangs` took longer than its 10ms");
}

#[derive(Default)]
struct Busy {
    now: AtomicU32,
    overlapped: AtomicBool,
    attempts: Mutex<Vec<u32>>,
}

#[step(blocking, timeout = "5ms", backoff = "1ms", max_attempts = 20)]
fn grind(#[resource] busy: Arc<Busy>, for_ms: u64) -> Result<u32> {
    let attempt = get_step_metadata().attempt;
    busy.attempts.lock().expect("no panic").push(attempt);
    if busy.now.fetch_add(1, Ordering::SeqCst) > 0 {
        busy.overlapped.store(true, Ordering::SeqCst);
    }
    if attempt == 1 {
        std::thread::sleep(Duration::from_millis(for_ms));
    }
    busy.now.fetch_sub(1, Ordering::SeqCst);
    Ok(attempt)
}

#[workflow]
async fn grinding(for_ms: u64) -> Result<u32> {
    grind(for_ms).await
}

#[tokio::test]
async fn a_blocking_body_that_timed_out_returns_before_the_next_attempt() {
    let busy = Arc::new(Busy::default());
    let (engine, run, _) = start_with(grinding(40), |b| b.resource_arc(busy.clone())).await;
    // More than two attempts only where a machine takes 5 ms to get to the second.
    let last = run.result().await.expect("ends well");
    let attempts = busy.attempts.lock().expect("no panic").clone();
    assert_eq!(attempts, (1..=last).collect::<Vec<_>>());
    assert!(last >= 2);
    assert!(
        !busy.overlapped.load(Ordering::SeqCst),
        "two attempts at once"
    );
    let journal = engine.journal(run.id()).await.expect("reads");
    assert!(matches!(failures(&journal)[0].failure, Outcome::Broken(_)));
}

#[step(blocking, backoff = "1ms")]
fn blocking_panic(#[resource] ledger: Arc<Ledger>) -> Result<u32> {
    ledger.act("blocking");
    let attempt = get_step_metadata().attempt;
    assert!(attempt > 1, "first");
    Ok(attempt)
}

#[workflow]
async fn blocking_panics() -> Result<u32> {
    blocking_panic().await
}

#[tokio::test]
async fn a_panic_in_a_blocking_body_is_retried_too() {
    let (_engine, run, ledger) = start(blocking_panics()).await;
    assert_eq!(run.result().await.expect("ends well"), 2);
    assert_eq!(ledger.asked(), 2);
}
