//! Resources by reference, as a trait object, and shared.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{Step, step, workflow};

use std::sync::Arc;

struct Payments;
trait Mailer {
    fn mail(&self);
}
trait Shared: Send + Sync {}

#[step]
async fn charge(
    #[resource] payments: &Payments,
    customer: &str,
    #[resource] mailer: &(dyn Mailer + Send + Sync),
    #[resource] shared: &dyn Shared,
    cents: u64,
    #[resource] owned: Arc<Payments>,
    #[resource] object: std::sync::Arc<dyn Shared>,
) -> Result<u64, String> {
    let _used = (payments, shared, owned, object, customer);
    mailer.mail();
    Ok(cents)
}

#[step(blocking)]
fn render(#[resource] payments: &Payments, page: String) -> String {
    let _used = payments;
    page
}

#[workflow]
async fn checkout() -> Result<u64, String> {
    render(String::new()).await;
    charge("ann", 100).await
}

fn main() {
    assert_eq!(charge::DEFINITION.args, ["customer", "cents"]);
    let _call = || checkout();
}
