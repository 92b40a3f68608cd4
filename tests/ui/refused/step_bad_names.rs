//! A name is text that fits a record.

use workflow_runtime::step;

#[step(name = "")]
async fn first() {}

#[step(name = charge)]
async fn second() {}

#[step(name = "two\nlines")]
async fn third() {}

fn main() {}
