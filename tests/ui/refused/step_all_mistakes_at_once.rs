//! All mistakes of one item are reported in one go.

use workflow_runtime::step;

#[step(max_attempts = 0, nmae = "charge", undo = "refund")]
unsafe fn charge(list: &mut Vec<u8>, #[resource] payments: u8) -> Option<Option<&str>> {
    list.push(payments);
    None
}

fn main() {}
