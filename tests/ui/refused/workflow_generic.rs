//! The journal names one function.

use workflow_runtime::workflow;

#[workflow]
async fn checkout<T: Send, const N: usize>(orders: [u8; N]) -> usize
where
    T: Clone,
{
    orders.len()
}

fn main() {}
