//! A race has an order of its own.

use workflow_runtime::workflow;

#[workflow]
async fn checkout() -> u8 {
    tokio::select! {
        first = async { 1 } => first,
        second = async { 2 } => second,
    }
}

fn main() {}
