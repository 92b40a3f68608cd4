//! `impl Trait` as an argument, also inside a type.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

use serde::Serialize;

#[step]
async fn greet(name: impl AsRef<str> + Serialize + Clone + Send, more: Option<impl Into<String> + Serialize + Clone + Send>) -> usize {
    name.as_ref().len() + more.map_or(0, |more| more.into().len())
}

#[workflow]
async fn greets() -> usize {
    let name = String::from("ann");
    greet(&name, Some("x")).await + greet(name, None::<String>).await
}

fn main() {
    let _call = || greets();
}
