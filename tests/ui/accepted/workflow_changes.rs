//! Patches, versions side by side, and tolerant replay.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{Engine, deprecate_patch, patched, step, workflow};

#[step]
async fn charge(cents: u64) -> u64 {
    cents
}

#[workflow(name = "checkout", version = 1)]
async fn checkout_1(cents: u64) -> u64 {
    charge(cents).await
}

#[workflow(version = 2, changes = "tolerant")]
async fn checkout(cents: u64) -> u64 {
    deprecate_patch("fees");
    if patched("rounding") {
        return charge(cents / 10 * 10).await;
    }
    charge(cents).await
}

#[workflow(changes = "strict")]
async fn refund(cents: u64) -> u64 {
    charge(cents).await
}

fn main() {
    let _engine = Engine::builder()
        .register::<checkout_1>()
        .register::<checkout>()
        .register::<refund>();
    assert_eq!((checkout::NAME, checkout_1::NAME), ("checkout", "checkout"));
}
