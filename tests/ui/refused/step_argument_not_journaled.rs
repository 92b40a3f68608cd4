//! Each unfit argument is named on its own type.

use workflow_runtime::step;

struct Order;

#[derive(serde::Serialize)]
struct Address;

#[step]
async fn ship(count: u32, order: Order, to: Vec<Address>) -> u32 {
    let _ = (order, to);
    count
}

fn main() {}
