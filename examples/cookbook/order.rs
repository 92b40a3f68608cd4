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

use super::world::{DEATHS, Service, two_lives};

/// How long a price may be relied on; the same time as in `fresh_for`.
const FRESH: u64 = 30;

const HOUR: u64 = 3600;
const TWO_HOURS: u64 = 2 * HOUR;

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
    let order = format!("{symbol} at {}", exchange.now());
    Ok(Some(exchange.orders.act(id, order)))
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

/// An exchange with a clock. There is an edge for a minute, and then again after two hours.
#[derive(Default)]
struct Exchange {
    orders: Service,
    seconds: AtomicU64,
    quotes: AtomicU64,
}

impl Exchange {
    fn now(&self) -> u64 {
        self.seconds.load(Ordering::Relaxed)
    }

    fn quote(&self, _symbol: &str) -> Quote {
        self.quotes.fetch_add(1, Ordering::Relaxed);
        let at = self.now();
        let edge = if (60..TWO_HOURS).contains(&at) { -1 } else { 5 };
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

/// How often what came of it.
#[derive(Default)]
struct Tally {
    placed: u32,
    renewed: u32,
    aborted: u32,
}

/// Crashes at every write, and comes back after a second, an hour or two.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<take_edge>();
    let mut tally = Tally::default();
    for outage in [1, HOUR, TWO_HOURS] {
        for fault in DEATHS {
            for write in 0.. {
                let exchange = Arc::new(Exchange::default());
                let processes = AtomicU64::new(0);
                let came = two_lives(write, fault, |store| {
                    let before = processes.fetch_add(1, Ordering::Relaxed);
                    exchange.seconds.store(before * outage, Ordering::Relaxed);
                    live(store, exchange.clone())
                });
                let Some(came) = came.await? else { break };
                judge(came, &exchange, (outage, fault), &mut tally);
            }
        }
    }
    let Tally {
        placed,
        renewed,
        aborted,
    } = tally;
    assert!(placed > 0 && renewed > 0 && aborted > 0);
    let outages = placed + aborted;
    Ok(format!(
        "{outages} outages: {placed} times one order, {aborted} times none and \"edge expired\""
    ))
}

/// Checks that there is one order or none, as the run says, and that none was placed on an old price.
fn judge(came: Came, exchange: &Exchange, outage: (u64, Fault), tally: &mut Tally) {
    let orders = exchange.orders.ledger();
    match came {
        Came::Placed(order) => {
            assert_eq!((order, orders.len()), (1, 1), "{outage:?}");
            assert_ne!(orders, [format!("BTC at {HOUR}")], "there was no edge");
            // The price was on record, was too old, and was asked for again.
            let quotes = exchange.quotes.load(Ordering::Relaxed);
            let is_new = orders == [format!("BTC at {TWO_HOURS}")];
            if is_new && quotes == 2 && outage.1 == Fault::CrashAfter {
                tally.renewed += 1;
            }
            tally.placed += 1;
        }
        Came::Aborted(reason) => {
            assert_eq!(reason, "edge expired");
            assert!(orders.is_empty(), "{outage:?}: {orders:?}");
            assert_ne!(outage.0, 1, "after a second the edge is still there");
            tally.aborted += 1;
        }
    }
}
