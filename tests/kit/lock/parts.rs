//! What the old and the new code of the proofs are made of.

pub(super) use std::time::Duration;

pub(super) use futures::join;
pub(super) use serde::{Deserialize, Serialize};
pub(super) use workflow_runtime::{
    Result, deprecate_patch, patched, publish, scope, sleep, step, wait_for, workflow,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);

#[step]
pub(super) async fn a(n: u64) -> Result<u64> {
    Ok(n)
}

#[step]
pub(super) async fn b() -> Result<u64> {
    Ok(2)
}

#[step]
pub(super) async fn c() -> Result<u64> {
    Ok(3)
}

#[step]
pub(super) async fn d() -> Result<u64> {
    Ok(4)
}
