//! An order on an exchange: placed once per trading signal, and not at all when its edge has expired.
//!
//! What a process knew before it died may be old when the next one goes on. `fresh_for` has the price asked for again, as
//! long as nothing was made of it. From the moment that `place` is about to run, its `intent` is on record, and the
//! decision is its own: an order that arrived counts, whatever the time; one that did not is not placed any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::{Fault, MemoryStore};
use workflow_runtime::testing::{TestEngine, assert_audit_clean};
use workflow_runtime::{Key, Result, RunError, abort, get_step_metadata, step, workflow};

use super::world::{Service, two_lives};

/// How long a price may be relied on; the same time as in `fresh_for`.
const FRESH: u64 = 30;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Quote {
    edge: i64,
    /// When it was asked for, in seconds.
    at: u64,
}

#[step(effect = "read", fresh_for = "30s")]
async fn quote(#[resource] exchange: &Exchange, symbol: &str) -> Result<Quote> {
    Ok(exchange.quote(symbol))
}

#[step(effect = "create", intent, timeout = "10s")]
async fn place(
    #[resource] exchange: &Exchange,
    symbol: &str,
    quote: &Quote,
) -> Result<Option<usize>> {
    let id = get_step_metadata().step_id; // the exchange knows it as the "client order id"
    if let Some(order) = exchange.orders.find(id) {
        return Ok(Some(order)); // an earlier attempt had worked
    }
    if exchange.now() > quote.at + FRESH {
        return Ok(None);
    }
    Ok(Some(exchange.orders.act(id, symbol)))
}

#[workflow(key_ttl = "90d")]
async fn take_edge(symbol: String) -> Result<usize> {
    let quote = quote(&symbol).await?;
    if quote.edge <= 0 {
        abort("edge expired").await;
    }
    match place(&symbol, &quote).await? {
        Some(order) => Ok(order),
        None => abort("edge expired").await,
    }
}

/// An exchange with a clock. There is an edge for a minute only.
#[derive(Default)]
struct Exchange {
    orders: Service,
    seconds: AtomicU64,
}

impl Exchange {
    fn now(&self) -> u64 {
        self.seconds.load(Ordering::Relaxed)
    }

    fn quote(&self, _symbol: &str) -> Quote {
        let at = self.now();
        let edge = if at < 60 { 5 } else { -1 };
        Quote { edge, at }
    }
}

/// How a run came out.
#[derive(Debug, PartialEq)]
enum Came {
    Placed(usize),
    Aborted(String),
}

/// One process, which begins when the exchange's clock shows what it shows.
async fn live(store: MemoryStore, exchange: Arc<Exchange>) -> Result<Came> {
    let begins = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000 + exchange.now());
    let engine = TestEngine::builder()
        .register::<take_edge>()
        .resource_arc(exchange)
        .starts_at(begins)
        .store(store)
        .open()
        .await?;
    let start = || {
        let call = take_edge("BTC".into());
        engine
            .start(call)
            .key(Key::business("signal", "breakout-7"))
    };
    start().await?;
    let run = start().await?; // the strategy says it twice
    match run.result().await {
        Ok(order) => Ok(Came::Placed(order)),
        Err(RunError::Aborted { reason }) => Ok(Came::Aborted(reason)),
        Err(error) => Err(error.into()),
    }
}

/// Crashes at every write, and comes back a second or an hour later.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<take_edge>();
    let (mut placed, mut aborted) = (0, 0);
    for outage in [1, 3600] {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            for write in 0.. {
                let exchange = Arc::new(Exchange::default());
                let processes = AtomicU64::new(0);
                let came = two_lives(write, fault, |store| {
                    let before = processes.fetch_add(1, Ordering::Relaxed);
                    exchange.seconds.store(before * outage, Ordering::Relaxed);
                    live(store, exchange.clone())
                });
                let came = came.await?;
                let Some(came) = came else { break };
                let orders = exchange.orders.ledger();
                match came {
                    Came::Placed(order) => {
                        assert_eq!((order, orders.len()), (1, 1), "{fault:?} {write}");
                        placed += 1;
                    }
                    Came::Aborted(reason) => {
                        assert_eq!(reason, "edge expired");
                        assert!(orders.is_empty(), "{fault:?} {write}: {orders:?}");
                        assert_eq!(outage, 3600, "after a second the edge is still there");
                        aborted += 1;
                    }
                }
            }
        }
    }
    assert!(placed > 0 && aborted > 0);
    Ok(format!(
        "{} outages: {placed} times one order, {aborted} times none and \"edge expired\"",
        placed + aborted
    ))
}
