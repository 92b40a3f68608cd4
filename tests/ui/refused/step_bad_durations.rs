//! A duration is a whole number and a unit.

use workflow_runtime::step;

#[step(timeout = "10 seconds", backoff = "30s..1s")]
async fn first() {}

#[step(timeout = 10, backoff = "1.5s")]
async fn second() {}

#[step(timeout = "0s", backoff = "200ms..")]
async fn third() {}

#[step(timeout = "99999999d")]
async fn fourth() {}

fn main() {}
