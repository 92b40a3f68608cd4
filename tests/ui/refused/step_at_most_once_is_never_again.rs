//! A step that runs at most once has one attempt, an intent of its own, and is never run again.

use workflow_runtime::{Error, Result, step};

fn never(_: &Error) -> bool {
    false
}

#[step(at_most_once, max_attempts = 3, backoff = "1s", retry_if = never)]
async fn charge() -> Result<()> {
    Ok(())
}

#[step(intent, at_most_once, durability = "buffered")]
async fn ship() -> Result<()> {
    Ok(())
}

#[step(at_most_once, effect = "read", fresh_for = "30s")]
async fn look() -> Result<()> {
    Ok(())
}

fn main() {}
