//! A borrowed argument is journaled like any other.

use workflow_runtime::step;

struct Order;

#[step]
async fn ship(order: &Order) {
    let _ = order;
}

fn main() {}
