//! No silent loss of durability: what is used in the wrong place is refused with the way out, and
//! what is asked for in the right place is there.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use workflow_runtime::journal::Outcome;
use workflow_runtime::store::ParkReason;
use workflow_runtime::{
    Engine, Error, Result, RunError, StepCall, get_step_metadata, get_workflow_metadata, hook,
    nondeterministic, now, publish, random, resource, signals, sleep, start_child, step, timeout,
    try_get_step_metadata, try_get_workflow_metadata, uuid, wait_for, workflow,
};
use workflow_tests::{Ledger, steps};

#[step]
async fn work(#[resource] ledger: &Ledger, n: u32) -> Result<u32> {
    ledger.act("work");
    Ok(n)
}

/// What a future panics with.
async fn panic_of<T>(future: impl Future<Output = T>) -> String {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(_) => panic!("it did not panic"),
        Err(panic) => text_of(panic.as_ref()),
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .expect("a panic has a text")
}

#[tokio::test]
async fn a_step_outside_a_run_is_refused_with_its_line_and_the_way_out() {
    let text = panic_of(work(1)).await;
    let line = line!() - 1;
    assert!(text.contains("step `work`"), "{text}");
    assert!(
        text.contains(&format!("tests/flow/misuse.rs:{line}")),
        "{text}"
    );
    assert!(
        text.contains("outside a workflow run") && text.contains(".direct()"),
        "{text}"
    );
}

#[step]
async fn listens() -> Result<u32> {
    wait_for("in a step").await
}

#[workflow]
async fn talkative() -> Result<u32> {
    listens().await
}

#[tokio::test]
async fn talking_outside_a_workflow_is_refused_with_the_way_out() {
    let texts = [
        panic_of(wait_for::<u32>("x")).await,
        panic_of(signals::<u32>("x").next()).await,
        panic_of(hook::<u32>("x")).await,
        panic_of(async { publish("x", &1) }).await,
        panic_of(talkative()).await,
        panic_of(async { start_child(talkative()).await }).await,
        panic_of(timeout(
            Duration::from_secs(1),
            std::future::pending::<()>(),
        ))
        .await,
    ];
    for text in texts {
        assert!(text.contains("outside a workflow"), "{text}");
        assert!(text.contains("misuse.rs:"), "{text}");
    }
}

#[tokio::test]
async fn a_wait_in_a_step_is_refused_and_not_tried_again() {
    let engine = Engine::builder()
        .register::<talkative>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(talkative()).await.expect("starts");
    let error = run.result().await.expect_err("is refused").to_string();
    assert!(error.contains("inside step `listens`"), "{error}");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(steps(&journal)[0].attempts, 1, "{journal}");
}

#[tokio::test]
async fn durable_time_and_chance_are_refused_outside_a_workflow() {
    let text = panic_of(sleep(Duration::ZERO)).await;
    assert!(text.contains("tokio::time::sleep"), "{text}");
    let text = panic_of(async { now() }).await;
    assert!(text.contains("SystemTime::now()"), "{text}");
    let text = panic_of(async { random::<u8>() }).await;
    assert!(text.contains("random() was called outside"), "{text}");
    let text = panic_of(async { uuid() }).await;
    assert!(text.contains("Uuid::new_v4()"), "{text}");
}

#[tokio::test]
async fn metadata_is_refused_outside_and_the_try_forms_say_so_without_a_panic() {
    assert!(try_get_step_metadata().is_none());
    assert!(try_get_workflow_metadata().is_none());
    let text = panic_of(async { get_step_metadata() }).await;
    assert!(text.contains("outside a step"), "{text}");
    let text = panic_of(async { get_workflow_metadata() }).await;
    assert!(text.contains("outside a workflow"), "{text}");
    let text = panic_of(async { resource::<Ledger>() }).await;
    assert!(text.contains("outside a step"), "{text}");
}

#[step]
async fn nesting(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("nesting");
    work(2).await
}

#[workflow]
async fn nested() -> Result<u32> {
    nesting().await
}

#[tokio::test]
async fn a_step_inside_a_step_is_refused_and_not_retried() {
    let ledger = Ledger::shared();
    let engine = Engine::builder()
        .register::<nested>()
        .resource_arc(ledger.clone())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(nested()).await.expect("starts");
    let error = run.result().await.expect_err("fails");
    let text = format!("{error:?}");
    assert!(text.contains("step `work` was called at"), "{text}");
    assert!(text.contains("inside step `nesting`"), "{text}");
    assert_eq!(ledger.effects(), ["nesting"]);
    assert_eq!(ledger.asked(), 1, "no retry can mend it");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert!(matches!(steps(&journal)[0].outcome, Outcome::Broken(_)));
}

#[step(blocking)]
fn nesting_deeper() -> Result<u32> {
    tokio::runtime::Handle::current().block_on(work(3))
}

#[workflow]
async fn nested_deeper() -> Result<u32> {
    nesting_deeper().max_attempts(1).await
}

#[tokio::test]
async fn a_step_inside_a_blocking_step_is_refused_too() {
    let ledger = Ledger::shared();
    let engine = Engine::builder()
        .register::<nested_deeper>()
        .resource_arc(ledger.clone())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(nested_deeper()).await.expect("starts");
    let error = run.result().await.expect_err("fails");
    let text = format!("{error:?}");
    assert!(text.contains("inside step `nesting_deeper`"), "{text}");
    assert_eq!(ledger.asked(), 0);
}

#[workflow]
async fn carried_to_a_task() -> Result<String> {
    let call = work(1);
    let task = nondeterministic!(tokio::spawn(call));
    let panic = task.await.expect_err("panics").into_panic();
    Ok(text_of(panic.as_ref()))
}

#[workflow]
async fn made_in_a_task() -> Result<String> {
    let task = nondeterministic!(tokio::spawn(async { work(1).await }));
    let panic = task.await.expect_err("panics").into_panic();
    Ok(text_of(panic.as_ref()))
}

#[tokio::test]
async fn a_step_in_a_spawned_task_is_refused() {
    let ledger = Ledger::shared();
    let engine = Engine::builder()
        .register::<carried_to_a_task>()
        .register::<made_in_a_task>()
        .resource_arc(ledger.clone())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(carried_to_a_task()).await.expect("starts");
    let text = run.result().await.expect("tells");
    assert!(
        text.contains("spawned task") && text.contains("join!"),
        "{text}"
    );
    let run = engine.start(made_in_a_task()).await.expect("starts");
    let text = run.result().await.expect("tells");
    assert!(
        text.contains("was made in") || text.contains("outside a workflow run"),
        "{text}"
    );
    assert_eq!(ledger.asked(), 0);
}

static LEFT_BEHIND: Mutex<Option<StepCall<'static, Result<u32>>>> = Mutex::new(None);

#[workflow]
async fn leaves_a_call_behind() -> Result<u32> {
    *LEFT_BEHIND.lock().expect("no panic") = Some(work(1));
    Ok(0)
}

#[workflow]
async fn finds_a_call() -> Result<u32> {
    let call = LEFT_BEHIND.lock().expect("no panic").take();
    call.expect("was left").await
}

#[tokio::test]
async fn a_call_that_is_moved_to_another_run_parks_that_run() {
    let ledger = Ledger::shared();
    let engine = Engine::builder()
        .register::<leaves_a_call_behind>()
        .register::<finds_a_call>()
        .resource_arc(ledger.clone())
        .open_in_memory()
        .await
        .expect("opens");
    let first = engine.start(leaves_a_call_behind()).await.expect("starts");
    first.result().await.expect("ends well");
    let run = engine.start(finds_a_call()).await.expect("starts");
    let Err(RunError::Parked(parking)) = run.result().await else {
        panic!("is parked");
    };
    assert_eq!(parking.reason, ParkReason::Panicked);
    let detail = engine.parked_detail(run.id()).await.expect("reads");
    let detail = detail.expect("the message");
    assert!(detail.contains(&first.id().to_string()), "{detail}");
    assert!(detail.contains(&run.id().to_string()), "{detail}");
    assert_eq!(ledger.asked(), 0);
}

trait Greeter: Send + Sync {
    fn greet(&self) -> String;
}

struct English;

impl Greeter for English {
    fn greet(&self) -> String {
        "hello".into()
    }
}

#[step]
async fn greet(#[resource] greeter: &dyn Greeter, name: &str) -> Result<String> {
    let meta = get_step_metadata();
    assert!(
        try_get_workflow_metadata().is_none(),
        "a step is no workflow"
    );
    let ledger = resource::<Ledger>();
    ledger.act("greet");
    Ok(format!(
        "{} {name}, attempt {}",
        greeter.greet(),
        meta.attempt
    ))
}

#[tokio::test]
async fn a_bare_body_runs_with_the_resources_it_is_given() {
    let ledger = Ledger::shared();
    let direct = greet("Ada")
        .direct()
        .resource_arc::<dyn Greeter>(Arc::new(English))
        .resource_arc(ledger.clone());
    assert_eq!(direct.await.expect("ends well"), "hello Ada, attempt 1");
    assert_eq!(ledger.asked(), 1);
    let text = panic_of(greet("Ada").direct()).await;
    assert!(text.contains("dyn") && text.contains("Greeter"), "{text}");
    assert!(text.contains(".direct().resource(value)"), "{text}");
}

#[workflow]
async fn asks_about_itself(name: String) -> Result<(String, String, u32, Option<String>)> {
    assert!(try_get_step_metadata().is_none(), "a workflow is no step");
    let meta = get_workflow_metadata();
    assert_eq!(meta.run_started_at, now());
    greet(&name).await?;
    Ok((
        meta.workflow_name.to_string(),
        meta.namespace.to_string(),
        meta.version,
        meta.key.map(|key| key.to_string()),
    ))
}

#[workflow]
async fn runs_a_bare_body() -> Result<u32> {
    work(1).direct().await
}

#[tokio::test]
async fn a_workflow_and_its_steps_know_themselves() {
    let engine = Engine::builder()
        .namespace("tenant")
        .register::<asks_about_itself>()
        .register::<runs_a_bare_body>()
        .resource_arc::<dyn Greeter>(Arc::new(English))
        .resource_arc(Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let call = asks_about_itself("Ada".into());
    let run = engine.start(call).key("k").await.expect("starts");
    let (name, namespace, version, key) = run.result().await.expect("ends well");
    assert_eq!(
        (&*name, &*namespace, version),
        ("asks_about_itself", "tenant", 1)
    );
    assert_eq!(key.as_deref(), Some("k"));

    let run = engine.start(runs_a_bare_body()).await.expect("starts");
    let Err(RunError::Parked(_)) = run.result().await else {
        panic!("is parked");
    };
    let detail = engine.parked_detail(run.id()).await.expect("reads");
    let detail = detail.expect("the message");
    assert!(detail.contains("await the call itself"), "{detail}");
}

#[step(backoff = "1ms", max_attempts = 2)]
async fn asks_for_too_much() -> Result<()> {
    drop(resource::<String>());
    Ok(())
}

#[workflow]
async fn asking_for_too_much() -> Result<String> {
    let error: Error = asks_for_too_much().await.expect_err("fails");
    Ok(error.to_string())
}

#[tokio::test]
async fn a_resource_that_is_not_there_is_named() {
    let engine = Engine::builder()
        .register::<asking_for_too_much>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(asking_for_too_much()).await.expect("starts");
    let text = run.result().await.expect("tells");
    assert!(text.contains("alloc::string::String"), "{text}");
}
