//! Only a step that changes nothing is run again when its outcome is too old.

use workflow_runtime::step;

#[step(fresh_for = "30s")]
async fn unclassified() {}

#[step(fresh_for = "30s", on_stale = "rerun", effect = "payment")]
async fn charge() {}

#[step(fresh_for = "30s", on_stale = "abort", effect = "payment")]
async fn sound() {}

#[step(on_stale = "abort")]
async fn never_stale() {}

fn main() {}
