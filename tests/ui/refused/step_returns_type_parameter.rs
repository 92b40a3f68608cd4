//! Whether a step can fail must be known from its type.

use workflow_runtime::step;

use serde::{Serialize, de::DeserializeOwned};

#[step]
async fn same<T: Serialize + DeserializeOwned + Clone + Send + 'static>(value: T) -> T {
    value
}

#[step]
async fn next<T: Iterator + Serialize + Clone + Send + 'static>(value: T) -> <T as Iterator>::Item {
    value.into_iter().next().unwrap()
}

fn main() {}
