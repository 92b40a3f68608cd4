//! A workflow that goes on as a new run. Its lines are in the journal: add nothing above.

use workflow_runtime::{Result, continue_as_new, step, workflow};

#[step]
async fn look(from: u64) -> Result<u64> {
    Ok(from + 1)
}

#[workflow(name = "format line")]
pub(super) async fn line(from: u64) -> Result<u64> {
    let next = look(from).await?;
    match next {
        2 => Ok(next),
        _ => continue_as_new(line(next)).await,
    }
}
