//! A step is tried at least once.

use workflow_runtime::step;

#[step(max_attempts = 0)]
async fn first() {}

#[step(max_attempts = "3")]
async fn second() {}

#[step(max_attempts)]
async fn third() {}

fn main() {}
