//! A helper has no life of its own.

use workflow_runtime::workflow;

#[workflow(inline, version = 2, changes = "tolerant", key_ttl = "1d", on_failure = "keep")]
async fn helper() {}

fn main() {}
