//! An outcome has a type that can be named.

use workflow_runtime::step;

#[step]
async fn numbers() -> impl Iterator<Item = u8> {
    0..3
}

fn main() {}
