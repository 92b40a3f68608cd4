//! Keys on a disk: what a key names, what it promised and what was asked for again survive every stop.

use std::path::Path;
use std::time::Duration;

use workflow_runtime::store::RunState;
use workflow_runtime::{
    DuplicateKind, Engine, EngineBuilder, EngineError, Key, OnConflict, OnFailure, Result, step,
    wait_for, workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, Stop, until};

#[step]
async fn charge(#[resource] ledger: &Ledger, order: u64) -> Result<u64> {
    ledger.act(&format!("charge {order}"));
    Ok(order)
}

#[workflow]
async fn pay(order: u64) -> Result<u64> {
    charge(order).await
}

#[workflow]
async fn held(order: u64) -> Result<u64> {
    charge(order).await?;
    wait_for::<()>("go on").await?;
    Ok(order)
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<pay>()
        .register::<held>()
        .evict_after(Duration::ZERO)
}

#[tokio::test]
async fn a_key_names_its_run_through_every_stop_and_then_the_next_one() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let month = Duration::from_secs(30 * 86_400);
        let long = engine.start(pay(1)).key("long").key_ttl(month).await;
        let long = long.expect("starts");
        long.result().await.expect("ends well");
        let mut before = None;
        for _ in 0..3 {
            // Answered from memory from the second time on.
            for _ in 0..3 {
                let again = engine.start(pay(1)).key("long").await.expect("is found");
                assert_eq!(again.id(), long.id(), "{stop:?}");
                let other = engine.start(pay(2)).key("long").await;
                assert!(matches!(other, Err(EngineError::Conflict { .. })));
            }
            let start = engine.start(pay(3)).key("short");
            let short = start.key_ttl(Duration::ZERO).await.expect("starts");
            short.result().await.expect("ends well");
            assert_ne!(before.replace(short.id()), Some(short.id()), "{stop:?}");
            engine = disk.restart(engine, stop).await;
        }
        assert_eq!(disk.ledger.asked(), 4, "{stop:?}");
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn what_is_known_of_a_key_follows_its_run() {
    let disk = Disk::new(engine);
    let engine = disk.open().await;
    let start = || {
        let start = engine.start(held(1)).key("k");
        start.on_failure(OnFailure::Release)
    };
    let first = start().await.expect("starts");
    let asleep = async || {
        let header = engine.journal(first.id()).await.expect("reads");
        matches!(header.header().state, RunState::Asleep { .. })
    };
    until("it sleeps", asleep).await;
    for _ in 0..3 {
        assert_eq!(start().await.expect("is found").id(), first.id());
    }
    first.cancel().await.expect("asks");
    first.result().await.expect_err("is cancelled");
    // It was known to sleep; now it has released its key.
    let second = start().await.expect("starts");
    assert_ne!(second.id(), first.id());
    assert_eq!(start().await.expect("is found").id(), second.id());
    engine.terminate(second.id()).await.expect("ends it");
    let third = start().await.expect("starts");
    assert_ne!(third.id(), second.id());
    let replace = engine.start(held(4)).key("k");
    let fourth = replace.on_conflict(OnConflict::Replace).await;
    let fourth = fourth.expect("replaces");
    let again = engine.start(held(4)).key("k").await.expect("is found");
    assert_eq!(again.id(), fourth.id());
    let old = start().await;
    assert!(matches!(old, Err(EngineError::Conflict { .. })), "{old:?}");
    disk.is_sound(engine).await;
}

#[tokio::test]
async fn an_ended_run_that_was_replaced_is_not_remembered() {
    let disk = Disk::new(engine);
    let engine = disk.open().await;
    let start = |order| engine.start(pay(order)).key("k");
    let old = start(1).await.expect("starts");
    old.result().await.expect("ends well");
    for _ in 0..3 {
        assert_eq!(start(1).await.expect("is found").id(), old.id());
    }
    let new = start(2).on_conflict(OnConflict::Replace).await;
    let new = new.expect("replaces");
    let refused = start(1).await;
    assert!(
        matches!(refused, Err(EngineError::Conflict { .. })),
        "{refused:?}"
    );
    assert_eq!(start(2).await.expect("is found").id(), new.id());
    new.result().await.expect("ends well");
    disk.is_sound(engine).await;
}

#[tokio::test]
async fn a_replacement_and_what_was_asked_again_outlive_their_process() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let old = engine.start(held(1)).key("k").await.expect("starts");
        let ledger = &disk.ledger;
        until("it has charged", async || ledger.asked() == 1).await;
        engine.pause(old.id()).await.expect("pauses");
        let start = engine.start(held(2)).key("k");
        let new = start.on_conflict(OnConflict::Replace).await;
        let new = new.expect("replaces").id();
        engine = disk.restart(engine, stop).await;
        let again = engine.start(held(2)).key("k").await.expect("is found");
        assert_eq!(again.id(), new, "{stop:?}");
        engine.resume(old.id()).await.expect("resumes");
        again.signal("go on", &()).await.expect("sends");
        assert_eq!(again.result().await.expect("ends well"), 2, "{stop:?}");
        engine = disk.restart(engine, Stop::InOrder).await;
        let seen = engine.duplicates(new).await.expect("reads");
        assert_eq!(seen.count(DuplicateKind::Start), 1, "{stop:?}");
        disk.is_sound(engine).await;
    }
}

/// How many files below a directory hold a text.
fn files_with(dir: &Path, text: &str) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).expect("is there") {
        let path = entry.expect("is there").path();
        if path.is_dir() {
            count += files_with(&path, text);
        } else if let Ok(bytes) = std::fs::read(&path) {
            // It may have been dropped since: then it holds nothing.
            count += usize::from(bytes.windows(text.len()).any(|w| w == text.as_bytes()));
        }
    }
    count
}

#[tokio::test]
async fn a_secret_key_is_in_no_file_and_no_message() {
    const SECRET: &str = "4111-1111-1111-1111";
    let disk = Disk::new(engine);
    let engine = disk.open().await;
    let key = || Key::business("card", SECRET).secret();
    let store = disk.dir.path().join("store");
    let files_with = |text: &str| files_with(&store, text);
    let run = engine.start(pay(1)).key(key()).await.expect("starts");
    let mut written = files_with(key().as_str());
    run.result().await.expect("ends well");
    written += files_with(key().as_str());
    let refused = engine.start(pay(2)).key(key()).await;
    let mut shown = refused.expect_err("conflicts").to_string();
    shown += &format!("{:?}", engine.runs().await.expect("lists"));
    let journal = engine.journal(run.id()).await.expect("reads");
    shown += &format!("{journal} {journal:?}");
    assert!(shown.contains(key().as_str()), "{shown}");
    assert!(!shown.contains("4111"), "{shown}");
    assert!(
        written > 0,
        "its digest is on the disk: it was looked for in the right place"
    );
    assert_eq!(files_with(SECRET), 0);
    let engine = disk.restart(engine, Stop::InOrder).await;
    let again = engine.start(pay(1)).key(key()).await.expect("is found");
    assert_eq!(again.id(), run.id());
    engine.shutdown().await.expect("stops");
    assert_eq!(files_with(SECRET), 0);
}
