//! A helper has no life of its own.

use workflow_runtime::workflow;

#[workflow(inline, version = 2, changes = "tolerant")]
async fn helper() {}

fn main() {}
