//! An undo takes owned arguments: they come from the journal.

use workflow_runtime::{Result, step};

#[step(undo = refund)]
async fn charge(customer: &str) -> Result<u32> {
    let _ = customer;
    Ok(1)
}

#[step]
async fn refund(customer: &str, receipt: Option<u32>) -> Result<()> {
    let _ = (customer, receipt);
    Ok(())
}

fn main() {}
