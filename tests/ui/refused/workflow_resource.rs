//! Resources belong to steps.

use workflow_runtime::workflow;

struct Payments;

#[workflow]
async fn checkout(#[resource] payments: &Payments, order: u64) -> u64 {
    let _ = payments;
    order
}

fn main() {}
