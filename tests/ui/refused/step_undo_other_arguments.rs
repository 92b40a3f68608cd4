//! An undo takes the arguments of its step, and what it returned.

use workflow_runtime::{Result, step};

#[step(undo = refund)]
async fn charge(customer: &str, cents: u64) -> Result<u32> {
    let _ = (customer, cents);
    Ok(1)
}

#[step]
async fn refund(customer: String) -> Result<()> {
    let _ = customer;
    Ok(())
}

fn main() {}
