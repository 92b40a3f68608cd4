//! An outcome is read from the journal and borrows from nothing.

use workflow_runtime::step;

use std::borrow::Cow;

#[step]
async fn first(text: &str) -> &str {
    &text[..1]
}

#[step]
async fn second<'a>(text: &'a str) -> Result<Cow<'a, str>, String> {
    Ok(text.into())
}

fn main() {}
