//! Keyed starts: which run a key names, for how long, and what becomes of whoever asks again.

mod crashes;
mod duplicates;
mod failures;
mod lifetimes;
mod policies;
mod racing;

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::{RunHeader, RunQuery, Store};
use workflow_runtime::{Engine, EngineBuilder, Error, Result, abort, step, wait_for, workflow};
use workflow_tests::Ledger;

#[step]
async fn refund(#[resource] ledger: &Ledger, order: u64, _: Option<u64>) -> Result<()> {
    ledger.act(&format!("refund {order}"));
    Ok(())
}

#[step(undo = refund)]
async fn charge(#[resource] ledger: &Ledger, order: u64) -> Result<u64> {
    ledger.act(&format!("charge {order}"));
    Ok(order)
}

/// Charges and is done.
#[workflow]
async fn pay(order: u64) -> Result<u64> {
    charge(order).await
}

/// Charges, and waits for a signal that lets it end.
#[workflow]
async fn held(order: u64) -> Result<u64> {
    charge(order).await?;
    wait_for::<()>("go on").await?;
    Ok(order)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Fate {
    Completes,
    Fails,
    Aborts,
    Waits,
    Panics,
}

/// Ends as it is told.
#[workflow]
async fn fated(fate: Fate) -> Result<u64> {
    match fate {
        Fate::Completes => charge(1).await,
        Fate::Fails => Err(Error::fatal("told to")),
        Fate::Aborts => abort("told to").await,
        Fate::Waits => {
            wait_for::<()>("go on").await?;
            Ok(0)
        }
        Fate::Panics => panic!("told to"),
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<pay>()
        .register::<held>()
        .register::<fated>()
        .resource_arc(ledger.clone())
}

/// All runs, the oldest first.
async fn all_runs(store: &MemoryStore) -> Vec<RunHeader> {
    let query = RunQuery {
        limit: 10_000,
        ..RunQuery::default()
    };
    let mut runs = store.list(query).await.expect("lists");
    runs.reverse();
    runs
}

/// Looks until it is so; a test that waits for ever says where.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let began = std::time::Instant::now();
    while !so().await {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "still not: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
