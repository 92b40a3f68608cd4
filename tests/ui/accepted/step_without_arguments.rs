//! Nothing in, nothing out.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::step;

#[step]
async fn tick() {}

#[step()]
async fn tock() -> () {}

fn main() {
    let _calls = || (tick(), tock());
}
