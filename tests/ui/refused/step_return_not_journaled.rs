//! What a step returns is read back.

use workflow_runtime::step;

#[derive(serde::Serialize)]
struct Receipt;

#[step]
async fn charge(cents: u64) -> Receipt {
    let _ = cents;
    Receipt
}

fn main() {}
