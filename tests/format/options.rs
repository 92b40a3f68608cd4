//! Workflows whose journals hold what the options of steps record. Their lines are in the journals: add
//! nothing above.

use workflow_runtime::{Result, step, workflow};

#[step(effect = "read", fresh_for = "1ms")]
async fn quote(item: &str) -> Result<u64> {
    Ok(item.len() as u64)
}

#[step(at_most_once)]
async fn ship(item: &str, pieces: Vec<u32>) -> Result<u64> {
    Ok(item.len() as u64 + pieces.len() as u64)
}

#[step(intent, durability = "buffered")]
async fn charge(cents: u64) -> Result<u64> {
    Ok(cents)
}

#[step(fresh_for = "1ms", on_stale = "abort")]
async fn reserve() -> Result<u64> {
    Ok(1)
}

#[workflow(name = "format options")]
pub(super) async fn options(item: String) -> Result<u64> {
    let price = quote(&item).await?;
    let shipped = async { ship(&item, vec![1, 2]).await }.await;
    match shipped {
        Err(error) if error.is_interrupted() => charge(price).await,
        other => other,
    }
}

#[workflow(name = "format abort")]
pub(super) async fn abort() -> Result<u64> {
    let reserved = reserve().await?;
    charge(reserved).await
}
