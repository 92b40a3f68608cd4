//! Every option, in every form.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{Interrupted, Step, step};

use std::time::Duration;

fn transient(error: &String) -> bool {
    error.ends_with("again")
}

mod policy {
    pub fn never<E>(_: &E) -> bool {
        false
    }
}

#[step(
    name = "payments.charge",
    max_attempts = 5,
    backoff = "200ms..30s",
    timeout = "10s",
    retry_if = transient,
    key = format!("{customer}/{}", order.0),
    crate = "::workflow_runtime",
)]
async fn charge(customer: &str, order: &(u64, String)) -> Result<u64, String> {
    Ok(order.0 + customer.len() as u64)
}

#[step(key = order, backoff = "1s", retry_if = policy::never::<String>)]
async fn refund(order: u64) -> Result<u64, String> {
    Ok(order)
}

#[step(key = &order.id)]
async fn ship(order: Order) {
    let _used = order;
}

#[step(at_most_once, effect = "message", fresh_for = "2h", on_stale = "abort", timeout = "1s")]
async fn tell() -> workflow_runtime::Result<()> {
    Ok(())
}

#[derive(serde::Serialize, serde::Deserialize)]
enum Failure {
    Unknown,
}

impl From<Interrupted> for Failure {
    fn from(_: Interrupted) -> Self {
        Self::Unknown
    }
}

type Told<T> = Result<T, Failure>;

#[step(at_most_once, durability = "synced", marker = false)]
async fn tell_typed<T: Clone + serde::Serialize + serde::de::DeserializeOwned + Send + 'static>(what: T) -> Told<T> {
    Ok(what)
}

#[step(intent, effect = "read", fresh_for = "30s", on_stale = "rerun", durability = "buffered")]
async fn look() -> u64 {
    1
}

#[derive(Clone, serde::Serialize)]
struct Order {
    id: String,
}

fn main() {
    let definition = charge::DEFINITION;
    assert_eq!((definition.name, definition.max_attempts), ("payments.charge", Some(5)));
    assert_eq!(definition.backoff, Some((Duration::from_millis(200), Duration::from_secs(30))));
    assert_eq!(definition.timeout, Some(Duration::from_secs(10)));
    assert_eq!(refund::DEFINITION.backoff, Some((Duration::from_secs(1), Duration::from_secs(1))));
    assert_eq!((refund::DEFINITION.timeout, refund::DEFINITION.max_attempts), (None, None));
    let order = (1, String::new());
    let _more = || (tell(), tell_typed(1), look());
    let _calls = || (charge("ann", &order), refund(1), ship(Order { id: String::new() }));
}
