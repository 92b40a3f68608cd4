//! Types whose `Serialize` and `Deserialize` do not do their part.

use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};
use workflow_runtime::{Engine, step, workflow};

/// Is written as something that it is not read from.
#[derive(Debug, Clone, Deserialize)]
struct OneWay;

impl Serialize for OneWay {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("nothing that a unit is read from")
    }
}

#[workflow]
async fn takes_one_way(input: OneWay) -> String {
    format!("{input:?}")
}

#[tokio::test]
async fn an_input_that_cannot_be_read_back_is_refused_at_the_start() {
    let engine = Engine::builder()
        .register::<takes_one_way>()
        .open_in_memory()
        .await
        .expect("opens");
    let refused = engine.start(takes_one_way(OneWay)).await;
    let message = refused.expect_err("refused").to_string();
    assert!(message.contains("takes_one_way"), "{message}");
    assert!(message.contains("cannot be read back"), "{message}");
    assert!(engine.runs().await.expect("lists").runs.is_empty());
}

/// Panics when it is written.
#[derive(Debug, Deserialize)]
struct Explosive;

impl Serialize for Explosive {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("it went off")
    }
}

static EXPLOSIONS: AtomicU32 = AtomicU32::new(0);

#[step]
async fn explode() -> workflow_runtime::Result<Explosive> {
    EXPLOSIONS.fetch_add(1, Ordering::SeqCst);
    Ok(Explosive)
}

#[workflow]
async fn survives_explosion() -> String {
    match explode().await {
        Ok(_) => "no".into(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_panic_while_an_output_is_written_is_a_recorded_failure_and_not_retried() {
    let engine = Engine::builder()
        .register::<survives_explosion>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(survives_explosion()).await.expect("starts");
    let message = run.result().await.expect("ends");
    assert!(message.contains("it went off"), "{message}");
    assert_eq!(EXPLOSIONS.load(Ordering::SeqCst), 1);
}
