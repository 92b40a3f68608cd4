//! `Some(None)` would come back as `None`.

use workflow_runtime::workflow;

#[workflow]
async fn checkout(note: Option<Option<String>>) -> std::option::Option<Option<u8>> {
    note.map(|note| note.map(|_| 1))
}

fn main() {}
