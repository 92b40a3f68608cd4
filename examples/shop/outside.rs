//! What the shop needs from others: a stock, a bank, a carrier, somebody who delivers mail.
//!
//! Owns the trait that the steps speak to and its errors. A service implements it over HTTP; the program of this
//! example prints, its tests keep a ledger.

use serde::{Deserialize, Serialize};
use workflow_runtime::{Result, StepId};

/// An item and how many of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its number in the catalogue.
    pub sku: String,
    /// How many.
    pub count: u32,
}

/// What the bank gives for a charge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// The bank's number of the charge, which a refund names.
    pub charge: String,
    /// How much it was.
    pub cents: u64,
}

/// The others. Every call that changes something carries the id of the step that asks, under which they do it once.
pub trait Outside: Send + Sync {
    /// Sets items aside for an order.
    ///
    /// # Errors
    ///
    /// If the stock cannot be reached, or does not have them.
    fn reserve(&self, key: StepId, order: u64, items: &[Item]) -> Result<()>;

    /// Puts back what was set aside for an order, if anything was.
    ///
    /// # Errors
    ///
    /// If the stock cannot be reached.
    fn release(&self, key: StepId, order: u64) -> Result<()>;

    /// Charges a card for an order.
    ///
    /// # Errors
    ///
    /// If the bank cannot be reached, or declines.
    fn charge(&self, key: StepId, order: u64, customer: &str, cents: u64) -> Result<Receipt>;

    /// Pays back what was charged for an order, if anything was.
    ///
    /// # Errors
    ///
    /// If the bank cannot be reached.
    fn refund(&self, key: StepId, order: u64) -> Result<()>;

    /// Sends a parcel and gives its number.
    ///
    /// # Errors
    ///
    /// If the carrier cannot be reached.
    fn ship(&self, key: StepId, order: u64, items: &[Item]) -> Result<String>;

    /// Sends a mail.
    ///
    /// # Errors
    ///
    /// If nobody takes it.
    fn mail(&self, key: StepId, customer: &str, text: &str) -> Result<()>;
}
