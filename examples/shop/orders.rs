//! The workflow of an order, and its steps.
//!
//! Owns what happens in which order, and what is undone if it cannot be finished. It never speaks to the outside but
//! through [`Outside`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::{
    Error, Result, abort, get_step_metadata, publish, sleep, step, timeout, wait_for, workflow,
};

use super::outside::{Item, Outside, Receipt};

/// From here on somebody has to approve.
pub const NEEDS_APPROVAL: u64 = 100_000;

/// How long somebody may take for it.
pub const PATIENCE: Duration = Duration::from_hours(48);

/// When a customer is asked for a review.
pub const REVIEW_AFTER: Duration = Duration::from_hours(14 * 24);

/// What a customer orders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// Who orders.
    pub customer: String,
    /// What is ordered.
    pub items: Vec<Item>,
    /// The price.
    pub cents: u64,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fulfilled {
    /// The bank's receipt.
    pub receipt: Receipt,
    /// The carrier's number.
    pub parcel: String,
}

/// Somebody's answer to "may this large order go out?".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Who answers.
    pub by: String,
    /// What.
    pub granted: bool,
}

/// A declined card stays declined; everything else may be tried again.
fn is_worth_another_try(error: &Error) -> bool {
    !error.to_string().contains("declined")
}

/// Sets the items aside.
#[step(effect = "create", timeout = "5s", undo = release)]
pub async fn reserve(#[resource] outside: &dyn Outside, order: u64, items: &[Item]) -> Result<()> {
    outside.reserve(get_step_metadata().step_id, order, items)
}

/// Given what `reserve` was given, and what came of it: `None` if nobody knows.
#[step(effect = "update", timeout = "5s")]
pub async fn release(
    #[resource] outside: &dyn Outside,
    order: u64,
    _items: Vec<Item>,
    _reserved: Option<()>,
) -> Result<()> {
    outside.release(get_step_metadata().step_id, order)
}

/// Charges the card.
#[step(
    effect = "payment",
    max_attempts = 5,
    backoff = "200ms..30s",
    timeout = "10s",
    retry_if = is_worth_another_try,
    undo = refund
)]
pub async fn charge(
    #[resource] outside: &dyn Outside,
    order: u64,
    customer: &str,
    cents: u64,
) -> Result<Receipt> {
    outside.charge(get_step_metadata().step_id, order, customer, cents)
}

/// Given what `charge` was given, and what came of it.
#[step(effect = "payment", max_attempts = 10, timeout = "10s")]
pub async fn refund(
    #[resource] outside: &dyn Outside,
    order: u64,
    _customer: String,
    _cents: u64,
    _receipt: Option<Receipt>,
) -> Result<()> {
    outside.refund(get_step_metadata().step_id, order)
}

/// Hands the parcel to the carrier.
#[step(effect = "create", timeout = "30s")]
pub async fn ship(#[resource] outside: &dyn Outside, order: u64, items: &[Item]) -> Result<String> {
    outside.ship(get_step_metadata().step_id, order, items)
}

/// Writes to the customer.
#[step(effect = "message", timeout = "30s")]
pub async fn mail(#[resource] outside: &dyn Outside, customer: &str, text: &str) -> Result<()> {
    outside.mail(get_step_metadata().step_id, customer, text)
}

/// Packs and sends an order. A run of its own: the warehouse has its own queue, and looks at its own runs.
#[workflow]
pub async fn deliver(order: u64, items: Vec<Item>) -> Result<String> {
    ship(order, &items).await
}

/// An order, from the customer's click to the question for a review two weeks later.
#[workflow(key_ttl = "90d")]
pub async fn checkout(order: Order) -> Result<Fulfilled> {
    reserve(order.id, &order.items).await?;
    if order.cents >= NEEDS_APPROVAL {
        publish("state", "waits for approval");
        match timeout(PATIENCE, wait_for::<Approval>("approval")).await {
            Ok(answer) if answer.as_ref().is_ok_and(|answer| answer.granted) => {}
            Ok(_) => abort("refused").await,
            Err(_elapsed) => abort("nobody approved").await,
        }
    }
    publish("state", "is paid for");
    let thanks = format!("order {} is on its way to be packed", order.id);
    let (receipt, thanked) = tokio::join!(
        charge(order.id, &order.customer, order.cents),
        mail(&order.customer, &thanks),
    );
    let receipt = receipt?;
    thanked?;
    let parcel = deliver(order.id, order.items).await?;
    publish("state", "is sent");
    sleep(REVIEW_AFTER).await;
    mail(&order.customer, "how do you like it?").await?;
    Ok(Fulfilled { receipt, parcel })
}
