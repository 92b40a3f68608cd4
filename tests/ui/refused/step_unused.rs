//! An unused step is reported like an unused function, and nothing else is.
#![deny(warnings, dead_code)]

use workflow_runtime::step;

#[step]
async fn never_called(cents: u64) -> u64 {
    cents
}

fn main() {}
