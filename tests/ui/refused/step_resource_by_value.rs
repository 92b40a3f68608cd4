//! A resource is shared, not owned.

use workflow_runtime::step;

struct Payments;

#[step]
async fn charge(#[resource] payments: Payments, #[resource] other: &mut Payments, cents: u64, #[resource(name)] named: &Payments) -> u64 {
    let _ = (payments, other, named);
    cents
}

fn main() {
    let _call = charge(1);
}
