//! Only the runtime's timers are durable.

use workflow_runtime::workflow;

use std::time::Duration;

#[workflow]
async fn checkout() {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _ = tokio::time::timeout(Duration::from_secs(1), async {}).await;
    std::thread::sleep(Duration::from_secs(1));
}

fn main() {}
