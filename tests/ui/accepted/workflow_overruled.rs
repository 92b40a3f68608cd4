//! The determinism check, overruled in both ways.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::workflow;

use std::time::Instant;

use workflow_runtime::nondeterministic;

#[workflow]
async fn once() -> bool {
    let started = nondeterministic!(Instant::now());
    workflow_runtime::nondeterministic!(std::env::var("DEBUG").is_ok()) || started.elapsed().as_secs() > 1
}

#[workflow(unchecked)]
async fn never() -> bool {
    Instant::now().elapsed().as_secs() > 1
}

#[workflow(inline, unchecked)]
async fn helper(name: &str) -> bool {
    std::env::var(name).is_ok()
}

#[workflow]
async fn calls() -> bool {
    helper("x").await
}

fn main() {
    let _calls = || (once(), never(), calls());
}
