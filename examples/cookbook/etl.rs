//! Ingestion that remembers the last id it has seen: every row is loaded once, through repeats and crashes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{Engine, Key, Result, checkpoint, get_step_metadata, step, workflow};

use super::world::{DEATHS, Service, two_lives};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Row {
    id: u64,
}

#[step(effect = "read")]
async fn extract(#[resource] source: &Source, after: u64) -> Result<Vec<Row>> {
    Ok(source.page(after))
}

#[step(effect = "update", timeout = "1m")]
async fn load(#[resource] warehouse: &Service, rows: &[Row]) -> Result<()> {
    // A batch that was loaded, and whose outcome was lost with the process, comes again under the same id.
    let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
    warehouse.act(get_step_metadata().step_id, ids.join(" "));
    Ok(())
}

#[workflow]
async fn ingest(last_seen: u64) -> Result<u64> {
    let mut rows = extract(last_seen).await?;
    rows.retain(|row| row.id > last_seen); // the source repeats itself
    let Some(newest) = rows.iter().map(|row| row.id).max() else {
        return Ok(last_seen);
    };
    load(&rows).await?;
    checkpoint(&newest).await // begins anew as `ingest(newest)`; a resume reads nothing before it
}

/// A table that gives pages, each with the end of the one before.
struct Source {
    rows: u64,
}

impl Source {
    fn page(&self, after: u64) -> Vec<Row> {
        let from = after.saturating_sub(1).max(1);
        let to = (after + 3).min(self.rows);
        (from..=to).map(|id| Row { id }).collect()
    }
}

/// One process.
async fn live(store: MemoryStore, warehouse: Arc<Service>) -> Result<u64> {
    let engine = Engine::builder()
        .register::<ingest>()
        .resource(Source { rows: 10 })
        .resource_arc(warehouse)
        .open_with(store)
        .await?;
    let run = engine
        .start(ingest(0))
        .key(Key::of(("orders", "2030-01-01")))
        .await?;
    let last_seen = run.result().await?;
    engine.shutdown().await?;
    Ok(last_seen)
}

/// Ingests ten rows with a crash at every write.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<ingest>();
    let (mut crashes, mut repeated) = (0, 0);
    for death in DEATHS {
        for write in 0.. {
            let warehouse = Arc::new(Service::default());
            let ended = two_lives(write, death, |store| live(store, warehouse.clone()));
            let ended = ended.await?;
            let batches = warehouse.ledger();
            assert_eq!(
                batches,
                ["1 2 3", "4 5 6", "7 8 9", "10"],
                "{death:?} at write {write}"
            );
            repeated += warehouse.asked() - batches.len();
            let Some(last_seen) = ended else { break };
            assert_eq!(last_seen, 10);
            crashes += 1;
        }
    }
    assert!(crashes >= 20, "a crash at every write: {crashes}");
    assert!(repeated > 0, "some batch was offered twice");
    Ok(format!(
        "{crashes} crashes, {repeated} batches offered again, each row loaded once"
    ))
}
