//! What an engine does about expired keys by itself.

use std::time::{Duration, Instant};

use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{NoteKey, Store};
use workflow_runtime::{Engine, Error};

async fn rows(store: &MemoryStore) -> usize {
    let notes = store.notes(NoteKey::new(0x70, &[]), None, usize::MAX);
    notes.await.expect("listed").len()
}

#[tokio::test]
async fn an_engine_that_opens_removes_expired_outcomes_without_being_asked() {
    let store = MemoryStore::new();
    let open = |store| Engine::builder().open_with(store);
    let engine = open(store.clone()).await.expect("opens");
    for (key, ttl) in [("short", 300), ("long", 3_600_000)] {
        let once = engine.once(key).ttl(Duration::from_millis(ttl));
        let done = once.run(async || Ok::<_, Error>(1)).await;
        assert_eq!(done.expect("is done"), 1);
    }
    assert_eq!(rows(&store).await, 2);
    engine.shutdown().await.expect("stops");
    tokio::time::sleep(Duration::from_millis(320)).await;
    let store = store.reopen(Surviving::All);
    let _engine = open(store.clone()).await.expect("opens");
    let began = Instant::now();
    while rows(&store).await > 1 {
        assert!(began.elapsed().as_secs() < 60, "nobody sweeps");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(rows(&store).await, 1, "what is not over stays");
}
