//! A stub has one type; a generic step has many.
use workflow_runtime::step;
use workflow_runtime::testing::TestEngine;

#[step]
async fn store<T: serde::Serialize + Clone + Send>(_thing: T) {}

fn main() {
    let _ = store(1);
    let _ = TestEngine::builder().stub::<store>(|_| ());
}
