//! Keys that are rotated, wrong or missing, and runs from before encryption.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use workflow_runtime::encryption::Encryption;
use workflow_runtime::idempotency::{KeyError, OnceError};
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{ParkReason, Parking};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, PayloadError, Result, RunError, RunId, RunStatus,
    publish, step, wait_for, workflow,
};

use super::{key, open_on, until};

#[step]
async fn act(#[resource] gate: &Arc<Semaphore>, word: &str) -> Result<String> {
    gate.acquire().await?.forget();
    Ok(word.to_uppercase())
}

#[workflow]
async fn shouting(word: String) -> Result<String> {
    publish("word", &word);
    let first = act(&word).await?;
    let second = wait_for::<String>("more").await?;
    let third = act(&second).await?;
    Ok(format!("{first} {third}"))
}

fn builder(gate: &Arc<Semaphore>) -> EngineBuilder {
    Engine::builder()
        .register::<shouting>()
        .resource(gate.clone())
}

async fn open(store: &MemoryStore, gate: &Arc<Semaphore>, codec: Option<Encryption>) -> Engine {
    let builder = match codec {
        None => builder(gate),
        Some(codec) => builder(gate).payload_codec(codec),
    };
    let engine = builder.open_with(store.clone()).await;
    engine.expect("opens")
}

async fn parked(engine: &Engine, run: RunId) -> Parking {
    let handle = engine.run::<shouting>(run).await.expect("is there");
    match handle.result().await {
        Err(RunError::Parked(parking)) => *parking,
        other => panic!("{other:?}"),
    }
}

/// A run that has an outcome, a published value and an unread signal, written with a codec (or none); and something
/// kept under a key.
async fn left_behind(codec: Option<Encryption>) -> (MemoryStore, RunId) {
    let (store, gate) = (MemoryStore::new(), Arc::new(Semaphore::new(1)));
    let engine = open(&store, &gate, codec).await;
    let run = engine.start(shouting("hello".into())).key("k").await;
    let run = run.expect("starts").id();
    engine.signal(run, "more", "world").await.expect("sent");
    until("the step is done and the signal heard", async || {
        engine.journal(run).await.expect("reads").records().len() >= 3
    })
    .await;
    let once = engine.once("kept").run(|| async { Ok::<_, Error>(7) });
    once.await.expect("is done");
    drop(engine);
    (store.reopen(Surviving::Synced), run)
}

async fn goes_on(store: &MemoryStore, run: RunId, codec: Option<Encryption>) {
    let gate = Arc::new(Semaphore::new(1));
    let engine = open(store, &gate, codec).await;
    let handle = engine.run::<shouting>(run).await.expect("is there");
    if let RunStatus::Parked(_) = handle.status().await.expect("reads") {
        engine.resume(run).await.expect("resumes");
    }
    assert_eq!(handle.result().await.expect("ends well"), "HELLO WORLD");
    let once = engine.once("kept").run(|| async { Ok::<_, Error>(8) });
    assert_eq!(once.await.expect("is kept"), 7, "it was done again");
}

#[tokio::test]
async fn a_missing_key_parks_the_run_by_name_and_with_the_key_it_goes_on() {
    let (store, run) = left_behind(Some(Encryption::new(7, key(7)))).await;
    let gate = Arc::new(Semaphore::new(9));
    let engine = open(&store, &gate, Some(Encryption::new(8, key(8)))).await;
    let parking = parked(&engine, run).await;
    assert_eq!(parking.reason, ParkReason::Undecodable);
    for part in [
        "recorded input of `shouting`",
        "the key 7, which this engine does not have",
        "also_reads(7, key)",
    ] {
        assert!(parking.report.contains(part), "{}", parking.report);
    }
    // What is read from outside is refused by the same name.
    let handle = engine.run::<shouting>(run).await.expect("is there");
    let refused = handle.published::<String>("word").await;
    let Err(EngineError::Payload {
        run: of, problem, ..
    }) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!(of, run);
    assert!(matches!(&problem, PayloadError::Locked(text) if text.contains("the key 7")));
    let once = engine.once("kept").run(|| async { Ok::<_, Error>(8) });
    let refused = once.await;
    assert!(
        matches!(&refused, Err(OnceError::Keys(KeyError::Unreadable { problem, .. }))
            if problem.contains("the key 7")),
        "{refused:?}"
    );
    assert_eq!(gate.available_permits(), 9, "a body ran");
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    goes_on(&store, run, Some(Encryption::new(7, key(7)))).await;
}

#[tokio::test]
async fn a_wrong_key_of_the_same_id_parks_the_run_and_with_the_right_one_it_goes_on() {
    let (store, run) = left_behind(Some(Encryption::new(7, key(7)))).await;
    let gate = Arc::new(Semaphore::new(9));
    let engine = open(&store, &gate, Some(Encryption::new(7, key(8)))).await;
    let parking = parked(&engine, run).await;
    assert!(
        parking.report.contains("another key 7 than this engine"),
        "{}",
        parking.report
    );
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    goes_on(&store, run, Some(Encryption::new(7, key(7)))).await;
}

#[tokio::test]
async fn an_engine_without_any_key_parks_the_run_and_with_the_key_it_goes_on() {
    let (store, run) = left_behind(Some(Encryption::new(7, key(7)))).await;
    let gate = Arc::new(Semaphore::new(9));
    let engine = open(&store, &gate, None).await;
    let parking = parked(&engine, run).await;
    assert_eq!(parking.reason, ParkReason::Undecodable);
    assert!(
        parking
            .report
            .contains("it is encrypted, and this engine has no key"),
        "{}",
        parking.report
    );
    let once = engine.once("kept").run(|| async { Ok::<_, Error>(8) });
    once.await.expect_err("cannot be read");
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    goes_on(&store, run, Some(Encryption::new(7, key(7)))).await;
}

#[tokio::test]
async fn keys_are_rotated_while_runs_go_on_and_the_old_one_is_needed_as_long_as_they_last() {
    let (store, old) = left_behind(Some(Encryption::new(1, key(1)))).await;
    let gate = Arc::new(Semaphore::new(1));
    let both = || Encryption::new(2, key(2)).also_reads(1, key(1));
    let engine = open(&store, &gate, Some(both())).await;
    let handle = engine.run::<shouting>(old).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "HELLO WORLD");
    gate.add_permits(2);
    let new = engine.start(shouting("new".into())).await.expect("starts");
    new.signal("more", "one").await.expect("sent");
    assert_eq!(new.result().await.expect("ends well"), "NEW ONE");
    let new = new.id();
    drop(engine);
    // The new key alone: what it wrote is there, what the old one wrote is not lost but locked.
    let store = store.reopen(Surviving::Synced);
    let engine = open(&store, &gate, Some(Encryption::new(2, key(2)))).await;
    let handle = engine.run::<shouting>(new).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "NEW ONE");
    let handle = engine.run::<shouting>(old).await.expect("is there");
    assert_eq!(
        handle
            .result()
            .await
            .expect("its end was written with key 2"),
        "HELLO WORLD"
    );
    let refused = engine.fork(old).await;
    assert!(
        matches!(&refused, Err(EngineError::Payload { run, problem: PayloadError::Locked(text), .. })
            if *run == old && text.contains("the key 1")),
        "{refused:?}"
    );
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let engine = open(&store, &gate, Some(both())).await;
    let fork = engine.fork(old).await.expect("forks");
    let handle = engine.run::<shouting>(fork).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "HELLO WORLD");
}

#[tokio::test]
async fn a_run_from_before_encryption_is_refused_unless_that_was_said() {
    let (store, run) = left_behind(None).await;
    let gate = Arc::new(Semaphore::new(9));
    let engine = open(&store, &gate, Some(Encryption::new(1, key(1)))).await;
    let parking = parked(&engine, run).await;
    assert_eq!(parking.reason, ParkReason::Undecodable);
    assert!(
        parking.report.contains("also_reads_unencrypted"),
        "{}",
        parking.report
    );
    assert_eq!(gate.available_permits(), 9, "a body ran");
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let migrating = Encryption::new(1, key(1)).also_reads_unencrypted();
    goes_on(&store, run, Some(migrating)).await;
}

#[tokio::test]
async fn on_a_disk_a_run_is_parked_without_its_key_and_goes_on_with_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let gate = Arc::new(Semaphore::new(1));
    let with = |id: u8| {
        let gate = gate.clone();
        move || builder(&gate).payload_codec(Encryption::new(u32::from(id), key(id)))
    };
    let engine = open_on(dir.path(), with(1)).await;
    let run = engine.start(shouting("hello".into())).await;
    let run = run.expect("starts").id();
    until("the step is done", async || {
        engine.journal(run).await.expect("reads").records().len() >= 2
    })
    .await;
    engine.shutdown().await.expect("stops");
    let engine = open_on(dir.path(), with(2)).await;
    let parking = parked(&engine, run).await;
    assert!(parking.report.contains("the key 1"), "{}", parking.report);
    engine.shutdown().await.expect("stops");
    let engine = open_on(dir.path(), with(1)).await;
    engine.resume(run).await.expect("resumes");
    gate.add_permits(1);
    engine.signal(run, "more", "disk").await.expect("sent");
    let handle = engine.run::<shouting>(run).await.expect("is there");
    let result = tokio::time::timeout(Duration::from_secs(60), handle.result()).await;
    assert_eq!(result.expect("in time").expect("ends well"), "HELLO DISK");
    engine.shutdown().await.expect("stops");
}

#[tokio::test]
async fn a_signal_of_a_missing_key_parks_the_run_and_does_not_fail_its_workflow() {
    let (store, closed) = (MemoryStore::new(), Arc::new(Semaphore::new(0)));
    let engine = open(&store, &closed, Some(Encryption::new(1, key(1)))).await;
    let run = engine.start(shouting("hello".into())).await;
    let run = run.expect("starts").id();
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let both = || Encryption::new(2, key(2)).also_reads(1, key(1));
    let engine = open(&store, &closed, Some(both())).await;
    engine.signal(run, "more", "world").await.expect("sent");
    drop(engine);
    // The input opens, and the step runs; then the signal does not.
    let store = store.reopen(Surviving::Synced);
    let gate = Arc::new(Semaphore::new(1));
    let engine = open(&store, &gate, Some(Encryption::new(1, key(1)))).await;
    let parking = parked(&engine, run).await;
    assert_eq!(parking.reason, ParkReason::Undecodable);
    for part in ["the signal `more`", "the key 2"] {
        assert!(parking.report.contains(part), "{}", parking.report);
    }
    drop(engine);
    // With the key, nothing is missing: the step is not run again, the signal is heard.
    let store = store.reopen(Surviving::Synced);
    let gate = Arc::new(Semaphore::new(1));
    let engine = open(&store, &gate, Some(both())).await;
    engine.resume(run).await.expect("resumes");
    let handle = engine.run::<shouting>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "HELLO WORLD");
    assert_eq!(gate.available_permits(), 0);
}

#[tokio::test]
async fn an_outcome_of_a_missing_key_parks_the_run_and_its_step_is_not_run_again() {
    let (store, closed) = (MemoryStore::new(), Arc::new(Semaphore::new(0)));
    let engine = open(&store, &closed, Some(Encryption::new(1, key(1)))).await;
    let run = engine.start(shouting("hello".into())).await;
    let run = run.expect("starts").id();
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let both = || Encryption::new(2, key(2)).also_reads(1, key(1));
    let gate = Arc::new(Semaphore::new(1));
    let engine = open(&store, &gate, Some(both())).await;
    until("the step is done", async || {
        let journal = engine.journal(run).await.expect("reads");
        !workflow_tests::steps(&journal).is_empty()
    })
    .await;
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let gate = Arc::new(Semaphore::new(9));
    let engine = open(&store, &gate, Some(Encryption::new(1, key(1)))).await;
    let parking = parked(&engine, run).await;
    for part in ["the recorded outcome of step `act`", "the key 2"] {
        assert!(parking.report.contains(part), "{}", parking.report);
    }
    assert_eq!(gate.available_permits(), 9, "a body ran");
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let engine = open(&store, &gate, Some(both())).await;
    engine.resume(run).await.expect("resumes");
    engine.signal(run, "more", "world").await.expect("sent");
    let handle = engine.run::<shouting>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "HELLO WORLD");
    assert_eq!(gate.available_permits(), 8, "the step was run again");
}
