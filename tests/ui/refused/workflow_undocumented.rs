//! Missing documentation is reported once, on the function.
#![deny(missing_docs)]

use workflow_runtime::{step, workflow};

#[workflow]
pub async fn checkout(order: u64) -> u64 {
    order
}

#[step]
pub async fn charge() {}

fn main() {}
