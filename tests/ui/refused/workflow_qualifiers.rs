//! `unsafe` and `extern` are refused.

use workflow_runtime::workflow;

#[workflow]
pub async unsafe extern "C" fn checkout(order: u64) -> u64 {
    order
}

fn main() {}
