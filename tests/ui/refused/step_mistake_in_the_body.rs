//! A mistake in a body is reported as in any function, once.

use workflow_runtime::step;

#[step]
async fn charge(cents: u64) -> Result<u64, String> {
    let text: String = cents;
    Ok(text.len())
}

fn main() {}
