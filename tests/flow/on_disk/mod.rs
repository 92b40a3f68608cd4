//! The same stories on a real disk: each goes on through processes that stop, in order or not.
//!
//! The memory store crashes at every write; here the store is the one that users have, with its log, its
//! archive and its files. What must come out is the same.

mod endless;
mod family;
mod keys;
mod later;
mod lines;
mod passes;
mod space;
mod talking;
mod undoing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use workflow_runtime::store::StoreError;
use workflow_runtime::testing::check_invariants;
use workflow_runtime::{Engine, EngineBuilder, EngineError};
use workflow_tests::Ledger;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// It is gone, whatever it was doing.
    Dropped,
    /// It was asked to stop.
    InOrder,
}

const BOTH: [Stop; 2] = [Stop::Dropped, Stop::InOrder];

/// A store's directory and the world that remembers effects, over all processes of a test.
struct Disk {
    dir: TempDir,
    ledger: Arc<Ledger>,
    engine: fn() -> EngineBuilder,
}

impl Disk {
    fn new(engine: fn() -> EngineBuilder) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            ledger: Ledger::shared(),
            engine,
        }
    }

    /// Opens the next process. One that was dropped lets the directory go when its last task has ended.
    async fn open(&self) -> Engine {
        let began = Instant::now();
        loop {
            let builder = (self.engine)().resource_arc(self.ledger.clone());
            match builder.open(self.dir.path().join("store")).await {
                Ok(engine) => return engine,
                Err(EngineError::Store(StoreError::InUse { .. }))
                    if began.elapsed() < Duration::from_secs(10) =>
                {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Ends a process and opens the next one.
    async fn restart(&self, engine: Engine, stop: Stop) -> Engine {
        match stop {
            Stop::Dropped => drop(engine),
            Stop::InOrder => {
                let shutdown = engine.shutdown().grace(Duration::from_millis(50));
                shutdown.await.expect("stops");
            }
        }
        self.open().await
    }

    /// Ends the test: whatever is on the disk is sound, for this process and for the next one.
    async fn is_sound(&self, engine: Engine) {
        assert_eq!(engine.failure(), None);
        let engine = self.restart(engine, Stop::InOrder).await;
        let found = check_invariants(&engine).await.expect("reads");
        assert_eq!(found, []);
        engine.shutdown().await.expect("stops");
    }
}

/// Looks until it is so; a test that waits for ever says where.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "still not: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn until_memory_is_empty(engine: &Engine) {
    until("all runs have left memory", async || {
        engine.runs_in_memory() == 0
    })
    .await;
}
