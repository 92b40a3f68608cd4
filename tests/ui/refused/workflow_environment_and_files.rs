//! The environment is read in a step.

use workflow_runtime::workflow;

use std::fs::File;

#[workflow]
async fn checkout() -> bool {
    std::env::var("REGION").is_ok()
        && std::fs::read_to_string("order").is_ok()
        && File::open("order").is_ok()
        && std::io::stdin().lines().next().is_none()
}

fn main() {}
