//! An unknown option is answered with the nearest known one.

use workflow_runtime::step;

#[step(max_atempts = 3)]
async fn first() {}

#[step(retries = 3, name = "second")]
async fn second() {}

fn main() {}
