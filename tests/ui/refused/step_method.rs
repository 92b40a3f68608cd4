//! A step is a free function.

use workflow_runtime::step;

struct Shop;

impl Shop {
    #[step]
    async fn charge(&self, cents: u64) -> u64 {
        cents
    }

    #[step]
    fn refund(self: Box<Self>, cents: u64) -> u64 {
        std::future::ready(cents).await
    }
}

fn main() {
    let _ = Shop.charge(1);
}
