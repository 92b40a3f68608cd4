//! Options of later releases say so.

use workflow_runtime::step;

#[step(undo = refund)]
async fn charge() {}

fn main() {}
