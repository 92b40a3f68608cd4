//! A blocking step is not async.

use workflow_runtime::step;

#[step(blocking)]
async fn resize(image: Vec<u8>) -> Vec<u8> {
    image
}

fn main() {}
