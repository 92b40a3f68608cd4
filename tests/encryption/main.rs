//! Encryption at rest: nothing readable on the disk or in a log, keys that change, are wrong or missing, payloads that
//! were moved, and crashes.

mod canary;
mod crashes;
mod exporting;
mod keys;
mod kit;
mod places;
mod stories;

use std::path::Path;
use std::time::{Duration, Instant};

use workflow_runtime::encryption::{Encryption, EncryptionKey};
use workflow_runtime::store::StoreError;
use workflow_runtime::{Engine, EngineBuilder, EngineError};

/// An encryption whose key is made of its id.
fn key(id: u8) -> EncryptionKey {
    EncryptionKey::from_bytes([id; 32])
}

fn encryption() -> Encryption {
    Encryption::new(1, key(1))
}

/// Opens a store on a disk. A process that was dropped lets go of it when its last task has ended.
async fn open_on(path: &Path, builder: impl Fn() -> EngineBuilder) -> Engine {
    let began = Instant::now();
    loop {
        match builder().open(path).await {
            Ok(engine) => return engine,
            Err(EngineError::Store(StoreError::InUse { .. }))
                if began.elapsed() < Duration::from_secs(20) =>
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
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
