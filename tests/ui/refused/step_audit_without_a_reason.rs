//! What the audit finds is settled by a reason.

use workflow_runtime::step;

#[step(audit = " ")]
async fn blank() {}

#[step(audit)]
async fn alone() {}

fn main() {}
