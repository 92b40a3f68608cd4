//! Owned arguments, patterns and `mut`.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::workflow;

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    lines: Vec<String>,
}

#[workflow(name = "shop.checkout", version = 3)]
async fn checkout(Order { id, mut lines }: Order, mut extra: Vec<String>, (a, _): (u8, u8), note: Option<String>) -> usize
where
    Order: Send,
{
    lines.append(&mut extra);
    lines.len() + id as usize + usize::from(a) + note.map_or(0, |note| note.len())
}

fn main() {
    assert_eq!((checkout::NAME, checkout::VERSION), ("shop.checkout", 3));
    let order = Order { id: 1, lines: vec![] };
    let _call = || checkout(order, vec![], (1, 2), None);
}
