//! A type that is only called `Result`.

use serde::{Deserialize, Serialize};
use workflow_runtime::workflow;

mod own {
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct Result;
}

#[derive(Serialize, Deserialize)]
pub struct Order;

#[workflow]
async fn checkout(order: Order) -> own::Result {
    let _ = order;
    own::Result
}

fn main() {}
