//! A plain function that shares its name with a module is called by its path in a workflow. A step is not.

use workflow_runtime::{Result, workflow};

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

use charge::charge;
use validate::validate;

#[workflow]
async fn by_its_path(cents: u64) -> Result<()> {
    if validate::validate(cents) {
        charge(cents).await?;
    }
    Ok(())
}

#[workflow]
async fn by_its_name(cents: u64) -> Result<()> {
    let valid = validate(cents);
    if valid && validate(cents) {
        charge(cents).await?;
    }
    Ok(())
}

fn main() {}
