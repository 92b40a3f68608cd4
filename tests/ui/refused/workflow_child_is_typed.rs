//! A child's arguments and result are checked where it is called, as any function's are.

use workflow_runtime::{Result, start_child, step, workflow};

#[step]
async fn pack(item: String) -> Result<u32> {
    Ok(item.len() as u32)
}

#[workflow]
async fn ship(item: String) -> Result<u32> {
    pack(item).await
}

#[workflow]
async fn order() -> Result<String> {
    ship(7).await
}

#[workflow]
async fn starts_a_step() -> Result<u32> {
    start_child(pack("a step".into())).await
}

fn main() {}
