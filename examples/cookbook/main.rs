//! Runs every recipe of `docs/cookbook.md`, and prints a line for each.
//!
//! `cargo run --example cookbook`. A recipe that does not keep its word panics.
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use examples::cookbook as recipes;
use tokio::runtime::Builder;
use workflow_runtime::Result;

/// Runs a recipe on a runtime of its own: some stop its clock.
fn cook(name: &str, recipe: impl Future<Output = Result<String>>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    println!("{name}: {}", runtime.block_on(recipe)?);
    Ok(())
}

fn main() -> Result<()> {
    cook("payment", recipes::payment::run())?;
    cook("order", recipes::order::run())?;
    cook("notification", recipes::notification::run())?;
    cook("etl", recipes::etl::run())?;
    cook("http", recipes::http::run())?;
    cook("consumer", recipes::consumer::run())?;
    cook("webhook", recipes::webhook::run())?;
    cook("keys", recipes::keys::run())?;
    cook("collisions", recipes::collisions::run())?;
    cook("cache", recipes::cache::run())?;
    cook("expiry", recipes::expiry::run())?;
    cook("tenants", recipes::tenants::run())
}
