//! What a workflow says about the keys of its runs.

use std::borrow::Cow;
use std::time::Duration;

use workflow_runtime::{Engine, Key, KeyPart, OnConflict, OnFailure, Result, workflow};

#[workflow(key_ttl = "90d", on_failure = "release")]
async fn checkout(order: u64) -> Result<u64> {
    Ok(order)
}

#[workflow(on_failure = "keep")]
async fn refund(order: u64) -> Result<u64> {
    Ok(order)
}

struct OrderId(u64);

impl KeyPart for OrderId {
    fn key_part(&self) -> Cow<'_, str> {
        self.0.to_string().into()
    }
}

async fn start(engine: &Engine) -> Result<()> {
    let id = OrderId(7);
    engine
        .start(checkout(7))
        .key(Key::business("order", &id))
        .on_conflict(OnConflict::Replace)
        .on_failure(OnFailure::Keep)
        .key_ttl(Duration::from_secs(60))
        .origin("a test")
        .await?;
    let parts = vec!["a", "b"];
    for key in [
        Key::of((&id, "eu", 7_i32, String::from("x"), 'c', true)),
        Key::of(&parts),
        Key::of(["a", "b"]),
        Key::hash(&parts),
        Key::from("card").secret(),
    ] {
        engine.start(refund(7)).key(&key).await?;
    }
    Ok(())
}

fn main() {
    let _ = start;
}
