//! A workflow is a free function.

use workflow_runtime::workflow;

struct Shop;

impl Shop {
    #[workflow]
    async fn checkout(self, order: u64) -> u64 {
        order
    }
}

fn main() {}
