//! A function that shares its name with a module is called by its path in a workflow.

use workflow_runtime::{Result, step, workflow};

mod charge {
    #[workflow_runtime::step(marker = false)]
    pub async fn charge(_cents: u64) -> workflow_runtime::Result<()> {
        Ok(())
    }
}
mod validate {
    pub fn validate(cents: u64) -> bool {
        cents > 0
    }
}

#[step]
async fn fine() -> Result<()> {
    Ok(())
}

#[workflow]
async fn named(cents: u64) -> Result<()> {
    use validate::validate;
    if validate(cents) {
        charge::charge(cents).await?;
    }
    fine().await
}

use charge::charge;

#[workflow]
async fn clashing(cents: u64) -> Result<()> {
    charge(cents).await
}

fn main() {}
