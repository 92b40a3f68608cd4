//! Attributes for functions that something else calls are refused.

use workflow_runtime::step;

#[step]
#[unsafe(no_mangle)]
async fn first() {}

#[step]
#[tokio::main]
async fn second() {}

#[step]
#[test]
async fn third() {}

fn main() {}
