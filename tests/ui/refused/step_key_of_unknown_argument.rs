//! A key is an expression over the arguments.

use workflow_runtime::step;

#[step(key = order_id)]
async fn charge(order: u64) {
    let _ = order;
}

#[step(key = amount)]
async fn refund(amount: f64) {
    let _ = amount;
}

fn main() {}
