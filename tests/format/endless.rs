//! A workflow whose journal holds checkpoints. Its lines are in the journal: add nothing above.

use workflow_runtime::{Result, checkpoint, patched, step, workflow};

#[step]
async fn look(from: u64) -> Result<u64> {
    Ok(from + 1)
}

#[workflow(name = "format endless")]
pub(super) async fn endless(from: u64, names: Vec<String>) -> Result<u64> {
    let next = look(from).await?;
    match patched("names") && names.len() < 2 {
        true => checkpoint(&(next, [names, vec!["ada".into()]].concat())).await,
        false => Ok(next),
    }
}
