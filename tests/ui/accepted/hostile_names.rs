//! Nothing in scope changes what the generated code means.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![allow(dead_code, non_camel_case_types, unused_macros)]

use workflow_runtime::{step, workflow};

struct Option;
struct Result;
struct Send;
struct Some;
mod core {}
mod std {}
type u32 = u8;
trait Into {
    fn into(&self) {}
}
impl<T> Into for T {}
macro_rules! file {
    () => {};
}
macro_rules! line {
    () => {};
}

#[step(max_attempts = 2, key = 7)]
async fn charge(attempt: u64, output: u64, #[resource] input: &::std::string::String) -> u64 {
    attempt + output + input.len() as u64
}

#[workflow]
async fn checkout(output: u64, input: u64, value: u64) -> u64 {
    async { charge(output, input).await + value }.await
}

fn main() {
    let _call = || checkout(1, 2, 3);
}
