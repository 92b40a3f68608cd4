//! One function is one thing.

use workflow_runtime::{step, workflow};

#[step]
#[workflow]
async fn charge() {}

fn main() {}
