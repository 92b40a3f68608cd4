//! Unfit arguments are named.

use workflow_runtime::workflow;

struct Order;

#[workflow]
async fn one(order: Order) {
    let _ = order;
}

#[workflow]
async fn two(count: u32, order: Order) -> u32 {
    let _ = order;
    count
}

fn main() {}
