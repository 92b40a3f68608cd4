//! A workflow waits for its steps.

use workflow_runtime::workflow;

#[workflow]
fn checkout(order: u64) -> u64 {
    order
}

fn main() {}
