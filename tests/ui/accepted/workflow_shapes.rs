//! A workflow's shape finds its steps by name, and whatever else is called is left alone.
#![forbid(unsafe_code, unused_imports, dead_code)]
#![deny(warnings, clippy::all, clippy::pedantic)]
#![allow(clippy::unused_async, clippy::missing_errors_doc)]

use workflow_runtime::{Result, step, workflow};

mod steps {
    use workflow_runtime::{Result, step};

    pub mod deep {
        use workflow_runtime::{Result, step, workflow};

        #[step]
        pub async fn charge(_cents: u64) -> Result<u64> {
            Ok(1)
        }

        #[workflow(inline)]
        pub async fn twice(cents: u64) -> Result<u64> {
            Ok(charge(cents).await? + charge(cents).await?)
        }
    }

    pub use deep::charge as pay;

    #[step]
    pub async fn generic<T: serde::Serialize + Clone + Send + Sync>(_value: T) -> Result<()> {
        Ok(())
    }
}

/// A function in a module of its own name.
mod stamp {
    #[workflow_runtime::step]
    pub(crate) async fn stamp(_n: u64) -> workflow_runtime::Result<()> {
        Ok(())
    }
}

mod plain {
    pub fn total(cents: u64) -> u64 {
        cents
    }
}

use std::cmp::max;
use steps::*;

#[step]
async fn local(_cents: u64) -> Result<()> {
    Ok(())
}

fn helper<T>(value: T) -> T {
    value
}

fn checked(cents: u64) -> Result<u64> {
    Ok(cents)
}

#[workflow]
async fn child(cents: u64) -> Result<u64> {
    if cents == 0 {
        return Ok(0);
    }
    child(cents - 1).await
}

#[workflow]
async fn order(cents: u64) -> Result<u64> {
    use steps::deep;
    use steps::deep::twice as doubled;
    let closure = |n: u64| n + 1;
    local(cents).await?;
    generic(cents).await?;
    generic::<String>(String::new()).await?;
    pay(helper(cents)).await?;
    deep::charge(max(closure(cents), checked(cents)?)).await?;
    crate::steps::deep::charge(u64::from_str_radix("7", 10)?).await?;
    stamp::stamp(cents).await?;
    doubled(std::mem::take(&mut plain::total(cents))).await?;
    {
        use steps::deep::*;
        charge(cents).await?;
    }
    let (a, b) = tokio::join!(child(cents), async { local(cents).await });
    b?;
    a
}

fn main() {
    use workflow_runtime::audit::Audit;
    let audit = Audit::of::<order>();
    let mut found: Vec<_> = audit.steps().map(|step| step.name()).collect();
    found.sort_unstable();
    assert_eq!(found, ["charge", "generic", "local", "stamp"]);
    let _ = order(1);

    #[step]
    async fn inner() -> Result<()> {
        Ok(())
    }
    #[workflow]
    async fn outer() -> Result<()> {
        inner().await
    }
    let _ = outer();
    let audit = Audit::of::<outer>();
    assert_eq!(audit.steps().count(), 0, "steps in a function are not seen");
}
