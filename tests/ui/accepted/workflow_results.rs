//! Plain values, results and aliases of results.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{Workflow, workflow};

use serde::{Deserialize, Serialize};

use std::convert::Infallible;

#[derive(Serialize, Deserialize)]
struct Failure;
type Outcome = Result<u8, Failure>;

#[workflow]
async fn nothing() {}
#[workflow]
async fn plain() -> (u8, String) {
    (1, String::new())
}
#[workflow]
async fn result() -> std::result::Result<u8, Failure> {
    Err(Failure)
}
#[workflow]
async fn ours(text: String) -> workflow_runtime::Result<u8> {
    Ok(text.parse()?)
}
#[workflow]
async fn aliased() -> Outcome {
    Ok(1)
}

fn parts<W: Workflow<Ok = T, Error = E>, T, E>() {}

fn main() {
    parts::<nothing, (), Infallible>();
    parts::<plain, (u8, String), Infallible>();
    parts::<result, u8, Failure>();
    parts::<ours, u8, workflow_runtime::Error>();
    parts::<aliased, Outcome, Infallible>();
}
