//! The workflow whose journal is the fixture. Its lines are in the journal: add nothing above.

use std::time::Duration;

use futures::join;
use serde::{Deserialize, Serialize};
use workflow_runtime::{Error, Result, get_step_metadata, scope, sleep, step, workflow};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) customer: String,
    pub(super) cents: u64,
    pub(super) tags: Vec<String>,
}

#[step]
async fn reserve(order: &Order) -> Result<String> {
    Ok(format!("reserved for {}", order.customer))
}

#[step(backoff = "1ms..2ms")]
async fn charge(customer: &str, cents: u64) -> Result<u64> {
    let _ = customer;
    match get_step_metadata().attempt {
        1 => Err(Error::new("busy")),
        _ => Ok(cents),
    }
}

#[step]
async fn decline() -> Result<(), String> {
    Err("declined".to_owned())
}

#[step(max_attempts = 1)]
async fn explode() -> Result<()> {
    panic!("out of range")
}

#[workflow(name = "format story", version = 3)]
pub(super) async fn story(order: Order) -> Result<u64> {
    reserve(&order).await?;
    let (paid, named) = join!(
        async { charge(&order.customer, order.cents).await },
        async { scope("a/b", || async { reserve(&order).key("second").await }).await }
    );
    named?;
    sleep(Duration::from_millis(1)).await;
    if decline().max_attempts(1).await.is_ok() || explode().await.is_ok() {
        return Err(Error::fatal("cannot be"));
    }
    paid
}

#[workflow(name = "format failure")]
pub(super) async fn failure(fatal: bool) -> Result<()> {
    let error = Error::retry_after("later", Duration::from_secs(3)).context("while paying");
    Err(if fatal { error.into_fatal() } else { error })
}

pub(super) fn order() -> Order {
    Order {
        customer: "ada".into(),
        cents: 1234,
        tags: vec!["gift".into(), "fragile".into()],
    }
}
