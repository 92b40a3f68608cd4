//! The smallest useful program: one workflow, two steps, a key.
//!
//! `cargo run --example quickstart`, then once more: the second time nothing is executed, and the
//! result is the first one's. Its store is the directory `quickstart.db`, or the one you name.
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use workflow_runtime::{Engine, Result, step, workflow};

#[step]
async fn open_account(name: &str) -> Result<u32> {
    println!("open_account({name:?}) is executed");
    Ok(std::process::id()) // a number that another execution would not give again
}

#[step]
async fn send_welcome(name: &str, account: u32) -> Result<String> {
    println!("send_welcome({name:?}, {account}) is executed");
    Ok(format!("Welcome {name}, your account is {account}"))
}

#[workflow]
async fn sign_up(name: String) -> Result<String> {
    let account = open_account(&name).await?;
    send_welcome(&name, account).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let path = std::env::args().nth(1);
    let path = path.unwrap_or_else(|| "quickstart.db".into());
    let engine = Engine::builder().register::<sign_up>().open(path).await?;

    let run = engine.start(sign_up("Ada".into())).key("ada").await?; // same key, same run
    println!("{}", run.result().await?);
    println!("{}", engine.journal(run.id()).await?);
    engine.shutdown().await?;
    Ok(())
}
