//! `retry_if` takes the step's own error.

use workflow_runtime::step;

fn transient(error: &u8) -> bool {
    *error == 0
}

#[step(retry_if = transient)]
async fn charge() -> Result<(), String> {
    Ok(())
}

fn main() {}
