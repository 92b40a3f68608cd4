//! The step named by `undo` has to be there.

use workflow_runtime::{Result, step};

#[step(undo = refund)]
async fn charge(customer: &str) -> Result<u32> {
    let _ = customer;
    Ok(1)
}

fn main() {}
