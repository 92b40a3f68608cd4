//! A workflow awaited in another one is a child run.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::workflow;

use workflow_runtime::{Workflow, WorkflowCall};

#[workflow]
async fn child(id: u64) -> Result<u64, String> {
    Ok(id)
}

#[workflow]
async fn parent(ids: Vec<u64>) -> Result<u64, String> {
    let calls: Vec<WorkflowCall<child>> = ids.into_iter().map(child).collect();
    let (first, rest) = futures::join!(child(1), futures::future::try_join_all(calls));
    Ok(first? + rest?.into_iter().sum::<u64>())
}

fn start<W: Workflow>(_: WorkflowCall<W>) {}

fn main() {
    let _start = || start(parent(vec![1]));
}
