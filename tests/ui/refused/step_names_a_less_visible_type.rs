//! A step is as visible as the types that it names, as a workflow is.
mod shop {
    #[derive(serde::Serialize, Clone)]
    pub(crate) struct Order;

    #[workflow_runtime::step]
    pub async fn charge(_order: &Order) {}
}

fn main() {
    let _ = shop::charge(&shop::Order);
}
