//! A step that runs at most once returns a type that can say that it was interrupted.

use workflow_runtime::{Interrupted, step};

#[step(at_most_once)]
async fn plain() -> u64 {
    1
}

#[step(at_most_once)]
async fn typed() -> Result<u64, String> {
    Ok(1)
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Unknown;

impl From<Interrupted> for Unknown {
    fn from(_: Interrupted) -> Self {
        Self
    }
}

#[step(at_most_once)]
async fn sound() -> Result<u64, Unknown> {
    Ok(1)
}

fn main() {}
