//! A step that returns no `Result` cannot be made to fail.
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Error, step};

#[step]
async fn count() -> u32 {
    1
}

fn main() {
    let _ = count();
    let _ = TestEngine::builder().fail_times::<count>(1, Error::new("down"));
}
