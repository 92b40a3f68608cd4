//! Macro arguments are part of the body.

use workflow_runtime::workflow;

#[workflow]
async fn checkout() -> String {
    let both = futures::join!(async { std::time::Instant::now() }, async { 1 });
    format!("{:?} {:?}", both, std::time::SystemTime::now())
}

fn main() {}
