//! Names that only look like clocks and files.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::workflow;

use std::net::IpAddr;
use std::time::Duration;

mod time {
    pub struct Clock;
    impl Clock {
        pub fn now(&self) -> u64 {
            1
        }
    }
    pub struct Moment;
    impl Moment {
        pub fn now() -> u64 {
            1
        }
    }
}
mod process {
    pub fn order(id: u64) -> u64 {
        id
    }
}
mod env {
    pub fn region() -> u64 {
        1
    }
}

#[workflow]
async fn checkout(address: String) -> u64 {
    let clock = time::Clock;
    let ip: Option<IpAddr> = address.parse::<std::net::IpAddr>().ok();
    workflow_runtime::sleep(Duration::from_secs(1)).await;
    clock.now() + time::Moment::now() + process::order(1) + env::region() + u64::from(ip.is_some())
}

fn main() {
    let _call = || checkout(String::new());
}
