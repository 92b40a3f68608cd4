//! Start, run, finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use workflow_runtime::{Engine, Result, get_step_metadata, sleep, step, workflow};

#[derive(Default)]
struct Calls(AtomicU32);

#[step]
async fn double(#[resource] calls: &Calls, n: u32) -> Result<u32> {
    calls.0.fetch_add(1, Ordering::SeqCst);
    assert_eq!(get_step_metadata().attempt, 1);
    Ok(n * 2)
}

#[workflow]
async fn quadruple(n: u32) -> Result<u32> {
    let twice = double(n).await?;
    sleep(Duration::from_millis(5)).await;
    double(twice).await
}

#[tokio::test]
async fn a_workflow_runs_its_steps_and_gives_its_result() -> Result<()> {
    let calls = Arc::new(Calls::default());
    let engine = Engine::builder()
        .register::<quadruple>()
        .resource_arc(calls.clone())
        .open_in_memory()
        .await?;
    let run = engine.start(quadruple(3)).await?;
    assert_eq!(run.result().await?, 12);
    assert_eq!(calls.0.load(Ordering::SeqCst), 2);
    Ok(())
}
