//! The journal of a run whose workflow pushes messages. The workflow's lines are in it: add nothing above.

use bytes::Bytes;
use workflow_runtime::journal::Journal;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, Result, outbox, step, workflow};
use workflow_tests::frames;

use super::journal::{load, show, timeless};

#[step]
async fn pack(order: u64) -> Result<u64> {
    outbox("mail").push(&order)?;
    Ok(order)
}

#[workflow(name = "format pushing")]
async fn pushing(order: u64) -> Result<u64> {
    outbox("mail").push("begins")?;
    let packed = pack(order).await?;
    let told = async {
        outbox("mail").push("packed")?;
        outbox("sms").push("packed")
    };
    told.await?;
    Ok(packed)
}

/// The journal: a record for what the workflow pushed, none for what the step did.
async fn record_pushing() -> (Journal, Vec<Bytes>) {
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .namespace("fixtures")
        .register::<pushing>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(pushing(7)).key("story").await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 7);
    let journal = engine.journal(run.id()).await.expect("reads");
    (journal, frames(&store, run.id()).await)
}

#[tokio::test]
async fn a_journal_of_format_1_with_messages_is_read_to_the_same_records_and_written_in_the_same_bytes()
 {
    let today = record_pushing().await;
    let fixture = load("pushing-1", &today);
    let engine = fixture.reader(None).await;
    let journal = engine.journal(fixture.run).await.expect("reads");
    assert_eq!(show(journal.records()), fixture.expected);
    assert_eq!(fixture.run, today.0.header().run, "ids are derived");
    assert_eq!(
        timeless(&fixture.frames, journal.records()),
        timeless(&today.1, today.0.records())
    );
}
