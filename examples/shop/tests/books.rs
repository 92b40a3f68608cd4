//! The others, as a ledger that honours keys.

use examples::shop::outside::{Item, Outside, Receipt};
use workflow_runtime::testing::Ledger;
use workflow_runtime::{Result, StepId};

pub(crate) struct Books(pub(crate) Ledger);

impl Outside for Books {
    fn reserve(&self, key: StepId, order: u64, _items: &[Item]) -> Result<()> {
        self.0.post(key, ("reserve", order))?;
        Ok(())
    }

    fn release(&self, key: StepId, order: u64) -> Result<()> {
        self.0.post(key, ("release", order))?;
        Ok(())
    }

    fn charge(&self, key: StepId, order: u64, customer: &str, cents: u64) -> Result<Receipt> {
        self.0.post(key, ("charge", order, customer, cents))?;
        let charge = format!("charge-{order}");
        Ok(Receipt { charge, cents })
    }

    fn refund(&self, key: StepId, order: u64) -> Result<()> {
        self.0.post(key, ("refund", order))?;
        Ok(())
    }

    fn ship(&self, key: StepId, order: u64, _items: &[Item]) -> Result<String> {
        self.0.post(key, ("ship", order))?;
        Ok(format!("parcel-{order}"))
    }

    fn mail(&self, key: StepId, customer: &str, text: &str) -> Result<()> {
        self.0.post(key, ("mail", customer, text))?;
        Ok(())
    }
}
