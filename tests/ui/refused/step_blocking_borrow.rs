//! A blocking step runs on another thread and cannot borrow.

use workflow_runtime::step;

#[step(blocking)]
fn count(text: &str, more: Option<&str>) -> usize {
    text.len() + more.map_or(0, str::len)
}

fn main() {}
