//! Callers of a refused function are not reported too.

use workflow_runtime::{step, workflow};

use workflow_runtime::{Step, Workflow, WorkflowCall};

#[step]
fn charge(customer: &str) -> Result<u64, String> {
    Ok(customer.len() as u64)
}

#[workflow]
async fn checkout(order: &str) -> Result<u64, String> {
    let cents: u64 = charge(order).key("x").await?;
    Ok(cents)
}

fn start<W: Workflow>(_: WorkflowCall<W>) -> Result<W::Ok, W::Error> {
    todo!()
}
fn register<W: Workflow, S: Step>() {}

fn main() {
    register::<checkout, charge>();
    let _: Result<u64, String> = start(checkout("x"));
    let _ = (charge::NAME, checkout::NAME, checkout::VERSION);
}
