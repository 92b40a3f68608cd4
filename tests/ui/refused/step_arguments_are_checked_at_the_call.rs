//! A call is checked like any call.

use workflow_runtime::{step, workflow};

#[step]
async fn charge(customer: &str, cents: u64) -> u64 {
    let _ = customer;
    cents
}

#[workflow]
async fn checkout() -> u64 {
    charge("ann").await + charge(1, "ann").await
}

fn main() {}
