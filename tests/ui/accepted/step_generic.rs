//! Type and const parameters, with and without an argument to infer them from.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::step;

use serde::{Deserialize, Serialize};

#[step]
async fn store<T: Serialize + Clone + Send + Sync>(items: &[T], by_value: T) -> usize {
    let _used = by_value;
    items.len()
}

#[step]
async fn parsed<T>(text: &str) -> Result<String, String>
where
    T: std::str::FromStr + ToString + Send,
{
    text.parse::<T>().map(|value| value.to_string()).map_err(|_| text.to_owned())
}

#[step]
async fn wrapped<T: Serialize + for<'de> Deserialize<'de> + Clone + Send + 'static>(value: T) -> Vec<T> {
    vec![value]
}

#[step]
async fn sized<const N: usize>() -> usize {
    N
}

fn main() {
    let _calls = || (store(&[1, 2], 3), parsed::<u8>("1"), wrapped("x".to_owned()), sized::<4>());
}
