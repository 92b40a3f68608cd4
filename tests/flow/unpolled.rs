//! A call that is held and not polled.

use std::pin::pin;
use std::time::Duration;

use workflow_runtime::{Engine, Result, step, workflow};

#[step]
async fn soon(millis: u64) -> Result<u64> {
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(millis)
}

#[step]
async fn meanwhile(millis: u64) -> Result<u64> {
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(millis)
}

#[workflow]
async fn holds_a_call(hold: bool) -> Result<u64> {
    let mut held = pin!(soon(10));
    if hold {
        // Its body begins, can go on after 10 ms, and nobody polls it.
        let polled = futures::poll!(held.as_mut());
        assert!(polled.is_pending());
        return Ok(meanwhile(1_200).await? + held.await?);
    }
    let (held, other) = futures::try_join!(held, meanwhile(1_200))?;
    Ok(held + other)
}

#[tokio::test]
async fn a_woken_body_that_stays_unpolled_for_a_second_is_reported_by_name() {
    let engine = Engine::builder()
        .register::<holds_a_call>()
        .open_in_memory()
        .await
        .expect("opens");
    let awaited = engine.start(holds_a_call(false)).await.expect("starts");
    let held = engine.start(holds_a_call(true)).await.expect("starts");
    assert_eq!(awaited.result().await.expect("ends"), 1_210);
    assert_eq!(held.result().await.expect("ends"), 1_210);
    let warnings = engine.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].run, Some(held.id()));
    assert!(warnings[0].message.contains("step `soon`"), "{warnings:?}");
    assert!(warnings[0].message.contains("unpolled.rs:"), "{warnings:?}");
}
