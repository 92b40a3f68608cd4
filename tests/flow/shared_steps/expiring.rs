//! An outcome is shared for its time, counted from its completion; then the key has a next generation, for ever.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::{NoteKey, Store as _};
use workflow_runtime::testing::{TestEngine, TestEngineBuilder};
use workflow_runtime::{EngineError, Result};
use workflow_tests::Ledger;

use super::{AN_HOUR, Receipt, World, engine, paying};

fn timed(ledger: &std::sync::Arc<Ledger>, world: &std::sync::Arc<World>) -> TestEngineBuilder {
    TestEngine::builder().configure(|_| engine(ledger, world))
}

async fn pay_now(engine: &TestEngine, ttl: Duration) -> Receipt {
    let run = engine.start(paying("k".into(), 5, ttl)).await;
    run.expect("starts").result().await.expect("ends well")
}

#[tokio::test]
async fn a_key_is_shared_for_its_time_from_completion_and_then_has_a_next_generation() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = timed(&ledger, &world).open().await.expect("opens");
    let first = pay_now(&engine, AN_HOUR).await;
    engine.advance(AN_HOUR - Duration::from_secs(1)).await;
    // Another time is asked for, but the one of who executed counts.
    let week = AN_HOUR * 24 * 7;
    assert_eq!(pay_now(&engine, week).await, first);
    engine.advance(Duration::from_secs(1)).await;
    let second = pay_now(&engine, week).await;
    assert_ne!((second.id, second.number), (first.id, first.number));
    engine.advance(week - Duration::from_secs(1)).await;
    assert_eq!(pay_now(&engine, AN_HOUR).await, second);
    assert_eq!(world.begun(), 2);
}

#[tokio::test]
async fn the_time_begins_when_the_outcome_is_there() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let engine = timed(&ledger, &world).open().await.expect("opens");
    let run = engine.start(paying("k".into(), 5, AN_HOUR)).await;
    let run = run.expect("starts");
    engine.advance(AN_HOUR * 5).await;
    world.let_through(1);
    let first = run.result().await.expect("ends well");
    engine.advance(AN_HOUR / 2).await;
    assert_eq!(pay_now(&engine, AN_HOUR).await, first);
}

#[tokio::test]
async fn of_many_that_race_for_an_expired_key_one_runs() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = timed(&ledger, &world).open().await.expect("opens");
    for generation in 1..=4 {
        let runs = (0..32).map(|_| pay_now(&engine, AN_HOUR));
        let receipts: HashSet<_> = join_all(runs)
            .await
            .into_iter()
            .map(|receipt| (receipt.number, receipt.id))
            .collect();
        assert_eq!(receipts.len(), 1, "{receipts:?}");
        assert_eq!(world.begun(), generation);
        engine.advance(AN_HOUR).await;
    }
    assert_eq!(ledger.effects().len(), 4, "an id for each generation");
}

#[tokio::test]
async fn what_was_swept_leaves_its_generation_behind() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let store = MemoryStore::new();
    let mut ids = HashSet::new();
    for generation in 1..=3 {
        // Each in a process of its own: nothing is in memory.
        let engine = timed(&ledger, &world).store(store.clone());
        let engine = engine.starts_at(year(generation)).open().await;
        let engine = engine.expect("opens");
        ids.insert(pay_now(&engine, AN_HOUR).await.id);
        engine.advance(AN_HOUR).await;
        let rows = engine.keys().sweep().await.expect("sweeps");
        assert!(rows <= 1, "the background task may have been faster");
        for (space, left) in [(0x70, 0), (0x71, 0), (0x72, 0), (0x68, 1)] {
            let notes = store.notes(NoteKey::new(space, &[]), None, 10).await;
            assert_eq!(notes.expect("listed").len(), left, "{space:x}");
        }
    }
    assert_eq!((ids.len(), world.begun()), (3, 3), "no id comes twice");
    assert_eq!(ledger.effects().len(), 3);
}

fn year(n: u32) -> std::time::SystemTime {
    std::time::UNIX_EPOCH + Duration::from_secs(u64::from(60 + n) * 365 * 86_400)
}

#[tokio::test]
async fn a_failure_counts_no_generation_up() -> Result<(), EngineError> {
    use super::failing;
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = TestEngine::builder().configure(|_| failing::failing(&ledger, &world));
    let engine = engine.open().await?;
    for _ in 0..2 {
        let run = engine.start(failing::trying(4)).await?;
        assert!(run.result().await.is_err());
        engine.advance(AN_HOUR * 3).await;
    }
    let run = engine.start(failing::trying(4)).await?;
    run.result().await.expect("ends well");
    assert_eq!(ledger.effects().len(), 1, "one id");
    Ok(())
}
