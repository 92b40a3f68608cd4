//! The workflow of the documentation's first page.
#![forbid(unsafe_code)]
#![deny(missing_docs, warnings)]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::{Result, Step, Workflow, sleep, step, workflow};

/// What a customer asked for.
#[derive(Serialize, Deserialize)]
pub struct Order {
    customer: String,
    total: u64,
}

/// Proof of a charge.
#[derive(Clone, Serialize, Deserialize)]
pub struct Receipt;

/// Charges a customer.
#[step(max_attempts = 5, backoff = "200ms..30s", timeout = "10s")]
pub async fn charge(customer: &str, cents: u64) -> Result<Receipt> {
    let _ = (customer, cents);
    Ok(Receipt)
}

#[step]
async fn ask_for_review(order: &str, receipt: &Receipt) -> Result<()> {
    let _ = (order, receipt);
    Ok(())
}

/// Takes the money, then asks how it was.
#[workflow]
pub async fn checkout(order: Order) -> Result<Receipt> {
    let receipt = charge(&order.customer, order.total).await?;
    sleep(Duration::from_hours(24)).await;
    ask_for_review(&order.customer, &receipt).await?;
    Ok(receipt)
}

fn register<W: Workflow>() {}
fn name<S: Step>() -> &'static str {
    S::DEFINITION.name
}

fn main() {
    register::<checkout>();
    assert_eq!(name::<charge>(), "charge");
    assert_eq!((charge::NAME, checkout::NAME, checkout::VERSION), ("charge", "checkout", 1));
    assert_eq!(charge::DEFINITION.args, ["customer", "cents"]);
    assert_eq!(charge::DEFINITION.line, 23);
    let _call = || checkout(Order { customer: String::new(), total: 1 });
}
