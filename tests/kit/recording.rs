//! How the journals in `tests/journals` are made: once, by a test with a switch.

use std::time::Duration;

use workflow_runtime::export::JournalFile;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Engine, Key, RunId, RunStatus, Workflow, WorkflowCall};

use crate::recorded::*;

/// Opens an engine that knows all recorded workflows.
pub(crate) async fn engine() -> TestEngine {
    on(MemoryStore::new()).await
}

async fn on(store: MemoryStore) -> TestEngine {
    TestEngine::builder()
        .configure(register)
        .resource(World)
        .resource(Tried::default())
        .store(store)
        .open()
        .await
        .expect("opens")
}

/// Runs a workflow to its end, whatever that is, and exports it.
pub(crate) async fn ended<W: Workflow>(call: WorkflowCall<W>) -> JournalFile {
    let engine = engine().await;
    let run = engine.start(call).key("fixture").await.expect("starts");
    let _ = run.result().await;
    engine.export(run.id()).await.expect("exports")
}

/// All journals, by the name of their file.
pub(crate) async fn all() -> Vec<(&'static str, JournalFile)> {
    let mut files = vec![
        ("sequence", ended(sequence(order())).await),
        ("join", ended(joined(2)).await),
        ("race", ended(raced(5)).await),
        ("race-lost", ended(raced(100_000)).await),
        ("retry", ended(retried()).await),
        ("sleep", ended(slept(30)).await),
        ("child", ended(parent()).await),
        ("undo", ended(undone()).await),
        ("abort", ended(aborted()).await),
        ("checkpoint", ended(counting(0, 3)).await),
        ("checkpoint-undo", ended(undone_passes(0)).await),
        ("patch", ended(patched_way()).await),
        ("failure", ended(refusing(12)).await),
        ("push", ended(pushing()).await),
        ("signal", signals().await),
        ("unfinished", unfinished().await),
        ("keyed", secret_key().await),
        ("cancel", cancelled().await),
        ("terminate", terminated().await),
        ("reopen", reopened().await),
        ("fork", forked().await),
        ("stale", stale_abort().await),
    ];
    let [first, last] = line().await;
    files.extend([("line-first", first), ("line-last", last)]);
    files
}

async fn export(engine: &Engine, run: RunId) -> JournalFile {
    engine.export(run).await.expect("exports")
}

async fn signals() -> JournalFile {
    let engine = engine().await;
    let run = engine.start(signalled()).key("fixture").await.unwrap();
    run.signal("text", "hello").key("first").await.unwrap();
    engine.advance(Duration::from_secs(1)).await;
    run.signal("text", "hello").key("first").await.unwrap();
    run.signal("text", "world").await.unwrap();
    run.result().await.unwrap();
    export(&engine, run.id()).await
}

/// A run that waits for its second signal.
pub(crate) async fn unfinished() -> JournalFile {
    let engine = engine().await;
    let run = engine.start(signalled()).key("fixture").await.unwrap();
    run.signal("text", "hello").await.unwrap();
    engine.advance(Duration::from_secs(1)).await;
    export(&engine, run.id()).await
}

async fn secret_key() -> JournalFile {
    let engine = engine().await;
    let key = Key::business("card", "4111").secret();
    let run = engine.start(keyed()).key(key).await.unwrap();
    run.result().await.unwrap();
    export(&engine, run.id()).await
}

async fn cancelled() -> JournalFile {
    let engine = engine().await;
    let run = engine.start(slept(30)).key("fixture").await.unwrap();
    engine.advance(Duration::from_secs(1)).await;
    engine.cancel(run.id()).await.unwrap();
    let _ = run.result().await;
    export(&engine, run.id()).await
}

async fn terminated() -> JournalFile {
    let engine = engine().await;
    let run = engine.start(signalled()).key("fixture").await.unwrap();
    engine.advance(Duration::from_secs(1)).await;
    engine.terminate(run.id()).await.unwrap();
    let _ = run.result().await;
    export(&engine, run.id()).await
}

async fn reopened() -> JournalFile {
    let engine = engine().await;
    let run = engine.start(tried_again()).key("fixture").await.unwrap();
    assert!(run.result().await.is_err());
    engine.retry(run.id()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    export(&engine, run.id()).await
}

async fn forked() -> JournalFile {
    let engine = engine().await;
    let run = engine.start(joined(2)).key("fixture").await.unwrap();
    run.result().await.unwrap();
    let fork = engine.fork(run.id()).at(2).await.unwrap();
    let fork = engine.run::<joined>(fork).await.unwrap();
    fork.result().await.unwrap();
    export(&engine, fork.id()).await
}

/// A run that a restart found too old.
async fn stale_abort() -> JournalFile {
    let store = MemoryStore::new();
    let engine = on(store.clone()).await;
    let run = engine.start(stale()).key("fixture").await.unwrap().id();
    engine.advance(Duration::from_secs(2)).await;
    let store = store.reopen(Surviving::All);
    drop(engine);
    tokio::time::advance(DAY).await;
    let later = TestEngine::builder()
        .configure(register)
        .resource(World)
        .resource(Tried::default())
        .starts_at(std::time::SystemTime::UNIX_EPOCH + DAY * 365 * 61)
        .store(store)
        .open();
    let engine = later.await.unwrap();
    engine.advance(Duration::from_secs(1)).await;
    let status = engine.status(run).await.unwrap();
    assert!(matches!(status, RunStatus::Aborted), "{status:?}");
    export(&engine, run).await
}

async fn line() -> [JournalFile; 2] {
    let engine = engine().await;
    let run = engine.start(living(0)).key("fixture").await.unwrap();
    let first = run.id();
    assert_eq!(run.result().await.unwrap(), 2);
    let newest = engine.lineage(first).await.unwrap().newest;
    [export(&engine, first).await, export(&engine, newest).await]
}
