//! Cancelling: at the next wait, with the children, and clear answers when it is too late.

use std::time::Duration;

use workflow_runtime::{Engine, EngineError, Result, RunError, RunStatus, sleep, workflow};

#[workflow]
async fn sleeper() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

#[workflow]
async fn parent() -> Result<()> {
    sleeper().await
}

async fn engine() -> Engine {
    Engine::builder()
        .register::<sleeper>()
        .register::<parent>()
        .open_in_memory()
        .await
        .expect("opens")
}

#[tokio::test]
async fn a_cancelled_run_ends_where_it_waits_and_so_do_its_children() {
    let engine = engine().await;
    let run = engine.start(parent()).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(20)).await;
    run.cancel().reason("changed my mind").await.expect("asks");
    let error = run.result().await.expect_err("cancelled");
    assert!(
        matches!(&error, RunError::Cancelled { reason } if reason == "changed my mind"),
        "{error}"
    );
    tokio::time::sleep(Duration::from_millis(20)).await;
    for header in engine.runs().await.expect("lists").runs {
        let status = engine.status(header.run).await.expect("is there");
        assert!(matches!(status, RunStatus::Cancelled), "{header:?}");
    }
    let refused = run.cancel().await.expect_err("it has ended");
    assert!(matches!(refused, EngineError::Ended(_)), "{refused}");
}
