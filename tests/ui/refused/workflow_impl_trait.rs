//! `impl Trait` is generic in disguise.

use workflow_runtime::workflow;

#[workflow]
async fn checkout(order: impl Into<String> + Send + 'static) -> impl Into<String> {
    order.into()
}

fn main() {}
