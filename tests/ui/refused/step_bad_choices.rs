//! An option with a choice names what there is to choose from.

use workflow_runtime::step;

#[step(effect = "paymnt", durability = 3)]
async fn charge() {}

#[step(effect = "read", fresh_for = "0s")]
async fn never_fresh() {}

#[step(effect = "read", fresh_for = "soon")]
async fn no_duration() {}

#[step(effect = "read", fresh_for = "30s", on_stale = "retry")]
async fn look() {}

#[step(intent = true, at_most_once = "yes", durability = "none")]
async fn ship() {}

fn main() {}
