//! A run is one task.

use workflow_runtime::workflow;

#[workflow]
async fn checkout() {
    std::thread::spawn(|| ());
    tokio::spawn(async {});
    tokio::task::spawn_blocking(|| ());
    let _ = std::process::Command::new("ls").status();
}

fn main() {}
