//! Elided lifetimes, in every place they can stand.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

use std::borrow::Cow;
use std::collections::BTreeMap;

#[step]
async fn all(
    text: &str,
    bytes: &[u8],
    maybe: Option<&str>,
    cow: Cow<'_, str>,
    map: &BTreeMap<String, Vec<&str>>,
    pair: (&u8, &&u8),
) -> usize {
    text.len() + bytes.len() + maybe.map_or(0, str::len) + cow.len() + map.len() + usize::from(*pair.0 + **pair.1)
}

#[workflow]
async fn borrows(text: String) -> usize {
    let map = BTreeMap::new();
    let call = all(&text, text.as_bytes(), Some(&text), Cow::Borrowed(&text), &map, (&1, &&2));
    call.await
}

fn main() {
    let _call = || borrows(String::new());
}
