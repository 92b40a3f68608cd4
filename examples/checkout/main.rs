//! An order is paid for while the process that handles it is killed twice, without warning.
//!
//! ```text
//! cargo run --example checkout             # add `-- --keep` to keep the files it made
//! ```
//!
//! This file is all that a user of `workflow-runtime` writes: steps, a workflow, and an engine to
//! run it. The other files are the stage: `outside` plays the services that the steps talk to (a
//! payment API among them), `theatre` starts this very program as a child process and kills it
//! at the worst moments, `report` shows what came of it and says whether it is right.
#![expect(clippy::print_stdout, reason = "a demonstration speaks to a person")]

mod outside;
mod report;
mod theatre;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::{Engine, Result, get_step_metadata, sleep, step, workflow};

use outside::{Carrier, Mail, Payments, Warehouse};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Order {
    number: String,
    customer: String,
    item: String,
    cents: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    number: String,
    cents: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Confirmation {
    receipt: Receipt,
    parcel: String,
}

// Steps: what touches the world outside. The outcome of each is journaled before the workflow
// sees it. `#[resource]` parameters come from the engine; the caller passes the others.

#[step]
async fn reserve_stock(#[resource] warehouse: &Warehouse, item: &str) -> Result<()> {
    warehouse.reserve(item).await
}

#[step(timeout = "30s")]
async fn charge(#[resource] payments: &Payments, customer: &str, cents: u64) -> Result<Receipt> {
    // If the process dies before the outcome is journaled, this body runs again. The step's id
    // stays the same, so the payment API knows the request and does not charge twice.
    let key = get_step_metadata().step_id;
    payments.charge(key, customer, cents).await
}

#[step]
async fn send_receipt(#[resource] mail: &Mail, customer: &str, receipt: &Receipt) -> Result<()> {
    mail.send(customer, receipt).await
}

#[step(max_attempts = 5, backoff = "100ms..5s")]
async fn ship(#[resource] carrier: &Carrier, item: &str, customer: &str) -> Result<String> {
    carrier.collect(item, customer).await
}

// The workflow: ordinary code that calls steps. A process that takes it over gets the outcomes
// that are in the journal from there, and executes only what is left.

#[workflow]
async fn checkout(order: Order) -> Result<Confirmation> {
    reserve_stock(&order.item).await?;
    let receipt = charge(&order.customer, order.cents).await?;
    send_receipt(&order.customer, &receipt).await?;
    sleep(COOLING_OFF).await; // durable: it ends on time, whoever is alive by then
    let parcel = ship(&order.item, &order.customer).await?;
    Ok(Confirmation { receipt, parcel })
}

/// Customers may change their minds for a day; here, for two seconds.
const COOLING_OFF: Duration = Duration::from_secs(2);

/// Opens the engine. That alone resumes every order that an earlier process left unfinished.
async fn open(dir: &Path) -> Result<Engine> {
    let engine = Engine::builder()
        .register::<checkout>()
        .resource(Warehouse)
        .resource(Payments::new(dir))
        .resource(Mail)
        .resource(Carrier::default())
        .open(dir.join("orders.db"))
        .await?;
    Ok(engine)
}

/// Starts the order and waits for it. The same key is the same run, however often it is asked for.
async fn handle(engine: &Engine, order: Order) -> Result<Confirmation> {
    let key = order.number.clone();
    let run = engine.start(checkout(order)).key(key).await?;
    Ok(run.result().await?)
}

fn main() -> ExitCode {
    theatre::main()
}
