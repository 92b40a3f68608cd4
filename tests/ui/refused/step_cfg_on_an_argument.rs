//! A run may resume in another build.

use workflow_runtime::step;

#[step]
async fn charge(#[cfg(unix)] cents: u64) {
    let _ = cents;
}

fn main() {}
