//! The journal of a run whose code took a patch, that failed, was retried and forked. The workflow's lines are
//! in it: add nothing above.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use workflow_runtime::journal::Journal;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, Error, Result, patched, step, workflow};
use workflow_tests::{frames, ids_of};

use super::journal::{load, show, timeless};

#[derive(Default)]
struct World(AtomicBool);

#[step]
async fn reserve(item: &str) -> Result<String> {
    Ok(format!("reserved {item}"))
}

#[step(max_attempts = 1)]
async fn ship(#[resource] world: &World, item: &str) -> Result<String> {
    match world.0.load(Ordering::SeqCst) {
        true => Ok(format!("shipped {item}")),
        false => Err(Error::fatal("no truck")),
    }
}

#[workflow(name = "format changed")]
async fn changed(item: String) -> Result<String> {
    if patched("reserve first") {
        reserve(&item).await?;
    }
    ship(&item).await
}

/// The fork's journal: it has every record of this theme.
async fn record_changed() -> (Journal, Vec<Bytes>) {
    let (world, store) = (Arc::new(World::default()), MemoryStore::new());
    let engine = Engine::builder()
        .namespace("fixtures")
        .register::<changed>()
        .resource_arc(world.clone())
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(changed("book".into())).key("changed").await;
    let run = run.expect("starts");
    run.result().await.expect_err("fails");
    world.0.store(true, Ordering::SeqCst);
    run.retry().await.expect("is retried");
    run.result().await.expect("ends well");
    let origin = engine.journal(run.id()).await.expect("reads");
    let shipped = ids_of(&origin, "ship")[1];
    let fork = run.fork().at(shipped).await.expect("is forked");
    assert_eq!(fork.result().await.expect("ends well"), "shipped book");
    let journal = engine.journal(fork.id()).await.expect("reads");
    (journal, frames(&store, fork.id()).await)
}

#[tokio::test]
async fn a_journal_of_format_1_with_a_patch_a_retry_and_a_fork_is_read_to_the_same_records() {
    let fixture = load("changed-1", &record_changed().await);
    let engine = fixture.reader(None).await;
    let journal = engine.journal(fixture.run).await.expect("reads");
    assert_eq!(show(journal.records()), fixture.expected);
}

#[tokio::test]
async fn patches_retries_and_forks_are_written_in_the_same_bytes_but_for_the_time_and_own_ids() {
    let today = record_changed().await;
    let fixture = load("changed-1", &today);
    let engine = fixture.reader(None).await;
    let journal = engine.journal(fixture.run).await.expect("reads");
    let then = timeless(&fixture.frames, journal.records());
    let now = timeless(&today.1, today.0.records());
    // What the fork ran itself has an id of its own, which is random.
    let own = ids_of(&journal, "ship")[1];
    let own_today = ids_of(&today.0, "ship")[1];
    let without = |frames: Vec<Vec<u8>>, id: &[u8; 16]| -> Vec<Vec<u8>> {
        let blank = |mut frame: Vec<u8>| {
            if let Some(at) = frame.windows(16).position(|bytes| bytes == id) {
                frame[at..at + 16].fill(0);
            }
            frame
        };
        frames.into_iter().map(blank).collect()
    };
    assert_eq!(
        without(then, own.as_bytes()),
        without(now, own_today.as_bytes())
    );
}
