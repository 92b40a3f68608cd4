//! A helper is part of a workflow and is checked like one.

use workflow_runtime::workflow;

#[workflow(inline)]
async fn helper(name: &str) -> bool {
    std::env::var(name).is_ok()
}

fn main() {}
