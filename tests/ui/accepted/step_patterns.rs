//! Patterns, `mut`, `_` and raw names bind inside the body.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{Step, step};

use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Point {
    x: u32,
    y: u32,
}

#[step]
async fn sum((a, b): (u32, u32), Point { x, y }: Point, mut list: Vec<u32>, _: u8, r#type: u32, [first, ..]: [u32; 2]) -> u32 {
    list.push(r#type);
    a + b + x + y + first + list.iter().sum::<u32>()
}

#[step]
async fn r#async(r#fn: u8) -> u8 {
    r#fn
}

fn main() {
    assert_eq!(sum::DEFINITION.args, ["argument_1", "argument_2", "list", "argument_4", "type", "argument_6"]);
    assert_eq!(r#async::NAME, "async");
    let _calls = || (sum((1, 2), Point { x: 1, y: 2 }, vec![], 0, 1, [1, 2]), r#async(1));
}
