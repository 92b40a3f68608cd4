//! A workflow that is registered and never started here is not unused.
#![forbid(unsafe_code)]
#![deny(warnings, dead_code)]

use workflow_runtime::{Workflow, step, workflow};

#[step]
async fn charge(cents: u64) -> u64 {
    cents
}

#[workflow]
async fn checkout(cents: u64) -> u64 {
    charge(cents).await
}

fn register<W: Workflow>() {}

fn main() {
    register::<checkout>();
}
