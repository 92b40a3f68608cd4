//! A plain function is told both ways out.

use workflow_runtime::step;

#[step]
fn resize(image: Vec<u8>) -> Vec<u8> {
    image
}

fn main() {}
