//! Imports in the body are followed.

use workflow_runtime::workflow;

#[workflow]
async fn checkout() -> bool {
    use std::env as settings;
    use std::fs::{exists, read as slurp};
    use std::time::Instant as Clock;
    let _ = Clock::now();
    settings::var("REGION").is_ok() && slurp("order").is_ok() && exists("order").is_ok()
}

fn main() {}
