//! What a workflow returns is journaled.

use workflow_runtime::workflow;

struct Receipt;
struct Failure;

#[workflow]
async fn one() -> Receipt {
    Receipt
}

#[workflow]
async fn two() -> Result<u8, Failure> {
    Ok(1)
}

fn main() {}
