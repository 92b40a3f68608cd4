//! Arguments are read from the journal.

use workflow_runtime::workflow;

use std::borrow::Cow;

#[workflow]
async fn checkout<'a>(order: &str, note: Option<&'a str>, rest: Cow<'_, str>) -> usize {
    order.len() + note.map_or(0, str::len) + rest.len()
}

fn main() {}
