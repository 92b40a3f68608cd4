//! Unknown, reserved and unfit options.

use workflow_runtime::workflow;

#[workflow(verison = 2, changes = "lenient", key_ttl = "90 days", on_failure = "ignore")]
async fn first() {}

#[workflow(version = 0, unchecked = true)]
async fn second() {}

#[workflow(max_attempts = 3)]
async fn third() {}

#[workflow(changes)]
async fn fourth() {}

#[workflow(key_ttl = "0s")]
async fn fifth() {}

fn main() {}
