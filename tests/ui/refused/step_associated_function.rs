//! A function in an `impl` without `self`: the compiler finds a type where none can stand.

use workflow_runtime::step;

struct Shop;

impl Shop {
    #[step]
    async fn charge(cents: u64) -> u64 {
        cents
    }
}

fn main() {}
