//! A generic step has no undo.

use workflow_runtime::{Result, step};

#[step(undo = remove)]
async fn store<T: serde::Serialize + Clone + Send>(value: T) -> Result<u32> {
    let _ = value;
    Ok(1)
}

#[step(undo = remove)]
async fn show(value: impl serde::Serialize + Clone + Send) -> Result<u32> {
    let _ = value;
    Ok(1)
}

#[step]
async fn remove(value: String, stored: Option<u32>) -> Result<()> {
    let _ = (value, stored);
    Ok(())
}

fn main() {}
