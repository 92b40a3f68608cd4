//! The runtime under another name.
#![forbid(unsafe_code)]
#![deny(warnings)]


pub extern crate workflow_runtime as wf;

mod own {
    pub use wf as durable;
}

#[wf::step(crate = "::wf")]
async fn charge(cents: u64) -> wf::Result<u64> {
    Ok(cents)
}

#[own::durable::workflow(crate = "crate::own::durable")]
async fn checkout(cents: u64) -> wf::Result<u64> {
    async { charge(cents).await }.await
}

fn main() {
    let _call = || checkout(1);
}
