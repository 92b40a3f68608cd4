//! `retry_if` needs a step that can fail.

use workflow_runtime::step;

fn transient(error: &u8) -> bool {
    *error == 0
}

#[step(retry_if = transient)]
async fn charge() -> u8 {
    1
}

fn main() {}
