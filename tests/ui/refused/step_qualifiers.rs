//! `unsafe`, `extern` and `const` are refused, all at once.

use workflow_runtime::step;

#[step]
async unsafe extern "C" fn first(cents: u64) -> u64 {
    cents
}

#[step(blocking)]
const fn second(cents: u64) -> u64 {
    cents
}

fn main() {}
