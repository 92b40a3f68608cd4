//! Mistakes in the list of options do not hide one another.

use workflow_runtime::step;

#[step(blocking = true, marker, 3, timeout = , name = "ok" max_attempts = 2, crate = "not a path")]
async fn charge() {}

fn main() {}
