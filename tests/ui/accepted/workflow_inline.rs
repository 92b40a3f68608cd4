//! Helpers that borrow, are generic, and change what they are lent.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

#[step]
async fn fetch(id: &str) -> Result<u64, String> {
    Ok(id.len() as u64)
}

#[workflow(inline)]
async fn total(ids: &[String], seen: &mut Vec<u64>) -> Result<u64, String> {
    for id in ids {
        seen.push(async { fetch(id).await }.await?);
    }
    Ok(seen.iter().sum())
}

#[workflow(inline, name = "longest")]
async fn longer<'a, 'b: 'a, T: AsRef<str> + Sync + ?Sized>(first: &'a T, second: &'b T) -> Result<&'a str, String> {
    let (a, b) = (fetch(first.as_ref()).await?, fetch(second.as_ref()).await?);
    Ok(if a > b { first } else { second }.as_ref())
}

#[workflow(inline)]
async fn plain() {}

#[workflow(inline)]
async fn iterate(many: impl Iterator<Item = u8> + Send) -> impl Iterator<Item = u8> + Send {
    plain().await;
    many
}

#[workflow]
async fn checkout(ids: Vec<String>) -> Result<u64, String> {
    let mut seen = vec![];
    let sum = total(&ids, &mut seen).await?;
    let name = longer("a", "bb").await?;
    let rest = iterate(0..3).await.count();
    Ok(sum + (name.len() + seen.len() + rest) as u64)
}

fn main() {
    let _call = || checkout(vec![]);
}
