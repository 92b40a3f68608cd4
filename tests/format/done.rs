//! The journal of a run whose steps found their work done already. The workflow's lines are in it: add nothing
//! above.

use bytes::Bytes;
use workflow_runtime::journal::{Event, Journal, Outcome};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, Error, Result, ResultExt as _, step, workflow};
use workflow_tests::frames;

use super::journal::{load, show, timeless};

#[step]
async fn charge(cents: u64) -> Result<u64> {
    Err(Error::already_done(cents))
}

#[step]
async fn ship(item: &str) -> Result<String, String> {
    Err(item.to_owned()).or_already_done(|first| Some(format!("{first} is on its way")))
}

#[workflow(name = "format done")]
async fn done(item: String) -> Result<String> {
    charge(7).await?;
    ship(&item).await.map_err(Error::new)
}

async fn record_done() -> (Journal, Vec<Bytes>) {
    let store = MemoryStore::new();
    let builder = Engine::builder().namespace("fixtures").register::<done>();
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let run = engine.start(done("book".into())).key("done").await;
    let run = run.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), "book is on its way");
    let journal = engine.journal(run.id()).await.expect("reads");
    (journal, frames(&store, run.id()).await)
}

#[tokio::test]
async fn what_had_been_done_already_is_read_to_the_same_records() {
    let fixture = load("done-1", &record_done().await);
    let engine = fixture.reader(None).await;
    let journal = engine.journal(fixture.run).await.expect("reads");
    assert_eq!(show(journal.records()), fixture.expected);
    let done = journal.records().iter().filter(|record| {
        matches!(&record.event, Event::StepCompleted(step) if matches!(step.outcome, Outcome::AlreadyDone(_)))
    });
    assert_eq!(done.count(), 2);
}

#[tokio::test]
async fn what_had_been_done_already_is_written_in_the_same_bytes_but_for_the_time() {
    let today = record_done().await;
    let fixture = load("done-1", &today);
    let engine = fixture.reader(None).await;
    let journal = engine.journal(fixture.run).await.expect("reads");
    let then = timeless(&fixture.frames, journal.records());
    assert_eq!(then, timeless(&today.1, today.0.records()));
}
