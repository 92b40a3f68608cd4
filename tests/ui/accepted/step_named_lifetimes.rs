//! Named lifetimes, also one that is called like ours.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::step;

#[step]
async fn both<'a, 'b: 'a>(first: &'a str, second: &'b str) -> Result<String, String> {
    Ok(longer(first, second).to_owned())
}

#[step]
async fn ours<'step>(first: &'step str, second: &'step str) -> String {
    longer(first, second).to_owned()
}

fn longer<'x>(first: &'x str, second: &'x str) -> &'x str {
    if first.len() > second.len() { first } else { second }
}

fn main() {
    let _calls = || (both("a", "b"), ours("a", "b"));
}
