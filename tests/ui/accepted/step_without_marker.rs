//! A function that shares its name with a module.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{Workflow, step};

mod charge {
    use workflow_runtime::step;

    #[step(marker = false)]
    pub(crate) async fn charge(cents: u64) -> u64 {
        cents
    }
}
use charge::charge;

mod checkout {
    use workflow_runtime::workflow;

    #[workflow(marker = false)]
    pub(crate) async fn checkout(cents: u64) -> u64 {
        super::charge(cents).await
    }
}
use checkout::{checkout, checkout_workflow};

#[step(marker = false)]
async fn u64(text: &str) -> usize {
    text.len()
}

fn register<W: Workflow>() {}

fn main() {
    register::<checkout_workflow>();
    let audit = workflow_runtime::audit::Audit::of::<checkout_workflow>();
    assert_eq!(audit.steps().map(|it| it.name()).collect::<Vec<_>>(), ["charge"]);
    assert_eq!(checkout_workflow::NAME, "checkout");
    let _calls = || (charge(1), checkout(1), u64("1"));
}
