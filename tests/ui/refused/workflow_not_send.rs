//! A run may move between threads.

use workflow_runtime::workflow;

use std::rc::Rc;

#[workflow]
async fn checkout() -> u8 {
    let shared = Rc::new(1);
    std::future::ready(()).await;
    *shared
}

fn main() {}
