//! An option is given once.

use workflow_runtime::step;

#[step(timeout = "1s", name = "a", timeout = "2s")]
async fn charge() {}

fn main() {}
