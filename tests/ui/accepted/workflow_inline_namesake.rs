//! An inline helper in a module of its own name has no type beside it.

use workflow_runtime::{Result, workflow};

mod total {
    use workflow_runtime::{Result, workflow};

    #[workflow(inline, marker = false)]
    pub(crate) async fn total(cents: &[u64]) -> Result<u64> {
        Ok(cents.iter().sum())
    }
}

#[workflow]
async fn order(cents: Vec<u64>) -> Result<u64> {
    total::total(&cents).await
}

fn main() {
    let _ = order(vec![1]);
}
