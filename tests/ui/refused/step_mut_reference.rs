//! A replayed call does not run, so it cannot change its argument.

use workflow_runtime::step;

#[step]
async fn append(list: &mut Vec<u8>, more: Option<&mut u8>) {
    list.extend(more.copied());
}

fn main() {}
