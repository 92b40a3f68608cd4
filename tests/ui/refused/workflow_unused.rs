//! An unused workflow is reported like an unused function, and nothing else is.
#![deny(warnings, dead_code)]

use workflow_runtime::workflow;

#[workflow]
async fn never_started(order: u64) -> u64 {
    order
}

fn main() {}
