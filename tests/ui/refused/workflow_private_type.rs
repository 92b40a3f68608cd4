//! A public workflow has public arguments, like any public interface.

use serde::{Deserialize, Serialize};
use workflow_runtime::workflow;

#[derive(Serialize, Deserialize)]
struct Order;

#[workflow]
pub async fn checkout(order: Order) {
    let _ = order;
}

fn main() {}
