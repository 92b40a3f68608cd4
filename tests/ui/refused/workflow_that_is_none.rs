//! Only workflows can be registered.

use workflow_runtime::step;

use workflow_runtime::Workflow;

#[step]
async fn charge() {}

struct Checkout;

fn register<W: Workflow>() {}

fn main() {
    let _ = charge();
    register::<charge>();
    register::<Checkout>();
}
