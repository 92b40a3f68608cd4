//! The type that bears the name would hide the primitive.

use workflow_runtime::step;

#[step]
async fn u64(text: &str) -> usize {
    text.len()
}

fn main() {}
