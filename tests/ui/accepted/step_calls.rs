//! A call is a value: configure it, keep it, join it, run it bare.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{StepCall, step, workflow};

use std::time::Duration;

#[step]
async fn charge(customer: &str, cents: u64) -> Result<u64, String> {
    let _used = customer;
    Ok(cents)
}

#[workflow]
async fn checkout(customers: Vec<String>) -> Result<u64, String> {
    let first = charge("ann", 1).key("first").max_attempts(1).timeout(Duration::from_secs(1));
    let calls: Vec<StepCall<'_, _>> = customers.iter().map(|name| charge(name, 2).key(name)).collect();
    let paid = first.await?;
    let all = futures::future::try_join_all(calls).await?;
    Ok(paid + all.iter().sum::<u64>())
}

fn is_send<T: Send>(_: &T) {}

fn main() {
    let _bare = || {
        let call = charge("ann", 1);
        is_send(&call);
        call.direct()
    };
    let _call = || checkout(vec![]);
}
