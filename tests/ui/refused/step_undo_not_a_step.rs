//! An undo is a step itself.

use workflow_runtime::{Result, step};

#[step(undo = refund)]
async fn charge(customer: &str) -> Result<u32> {
    let _ = customer;
    Ok(1)
}

async fn refund(customer: String, receipt: Option<u32>) -> Result<()> {
    let _ = (customer, receipt);
    Ok(())
}

fn main() {}
