//! Clocks are read through the runtime.

use workflow_runtime::workflow;

use std::time::{Instant, SystemTime};

mod chrono {
    pub struct Utc;
    impl Utc {
        pub fn now() {}
    }
}

#[workflow]
async fn checkout() -> bool {
    let start = Instant::now();
    let today = SystemTime::now();
    chrono::Utc::now();
    start.elapsed().as_secs() > 3 && today.elapsed().is_ok()
}

fn main() {}
