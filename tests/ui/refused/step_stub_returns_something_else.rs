//! A stub takes and returns what its step does.
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Result, step};

#[step]
async fn charge(_customer: &str, _cents: u64) -> Result<u64> {
    Ok(1)
}

fn main() {
    let _ = charge("", 1);
    let _ = TestEngine::builder().stub::<charge>(|(_, cents)| Ok(format!("{cents}")));
    let _ = TestEngine::builder().stub::<charge>(|customer: String| Ok(1));
}
