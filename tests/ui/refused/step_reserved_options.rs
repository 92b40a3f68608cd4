//! Options of later releases say so.

use workflow_runtime::step;

#[step(effect = "payment", undo = refund, at_most_once, intent, fresh_for = "30s", on_stale = "rerun", durability = "buffered")]
async fn charge() {}

fn main() {}
