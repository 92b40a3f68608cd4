//! The attribute goes on functions.

use workflow_runtime::step;

#[step]
struct Order;

trait Shop {
    #[step]
    async fn charge();
}

fn main() {}
