//! The network is used in a step.

use workflow_runtime::workflow;

use std::net::TcpStream;

mod reqwest {
    pub async fn get(_: &str) {}
}

#[workflow]
async fn checkout() -> bool {
    reqwest::get("http://shop").await;
    TcpStream::connect("shop:80").is_ok()
}

fn main() {}
