//! A key is made before the arguments are handed on, so it borrows what cannot be copied.

use workflow_runtime::step;

#[step(key = name)]
async fn greet(name: String) {
    let _ = name;
}

fn main() {}
