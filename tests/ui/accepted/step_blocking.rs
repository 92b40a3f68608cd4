//! Work that blocks its thread, also generic.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

use serde::Serialize;

#[step(blocking, timeout = "1m")]
fn resize(mut image: Vec<u8>, to: usize) -> Result<Vec<u8>, String> {
    if to > image.len() {
        return Err("too small".into());
    }
    image.truncate(to);
    Ok(image)
}

#[step(blocking)]
fn count<T: Serialize + Clone + Send>(items: Vec<T>, more: impl Into<String> + Serialize + Clone + Send) -> usize {
    items.len() + more.into().len()
}

#[workflow]
async fn shrink(image: Vec<u8>) -> Result<usize, String> {
    let image = resize(image, 10).await?;
    Ok(count(image, "x").await)
}

fn main() {
    let _call = || shrink(vec![]);
}
