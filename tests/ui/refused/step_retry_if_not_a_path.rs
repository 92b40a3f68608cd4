//! `retry_if` names a function.

use workflow_runtime::step;

#[step(retry_if = |_| true)]
async fn charge() -> Result<(), String> {
    Ok(())
}

fn main() {}
