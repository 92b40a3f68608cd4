//! The record of a run that is being undone: today's writer writes the bytes of the fixture, today's
//! reader reads them.

use std::fmt::Write as _;

use workflow_runtime::journal::Event;
use workflow_runtime::{Engine, Error, Result, step, undo_with, workflow};
use workflow_tests::frames;

#[step(undo = close)]
async fn open(what: &str) -> Result<u32> {
    match what {
        "a door" => Ok(7),
        _ => Err(Error::fatal("locked")),
    }
}

#[step]
async fn close(what: String, opened: Option<u32>) -> Result<()> {
    let _ = (what, opened);
    Ok(())
}

#[workflow(name = "format closing")]
async fn closing() -> Result<u32> {
    open("a door").await?;
    undo_with(close("a gate".into(), None));
    open("a safe").await
}

/// The bytes of the closing record behind its time, as they were when there was nothing but format 1.
const FIXTURE: &str = include_str!("fixtures/closing-1.hex");

#[tokio::test]
async fn the_record_of_a_run_that_is_undone_is_written_and_read_as_ever() {
    let store = workflow_runtime::store::memory::MemoryStore::new();
    let engine = Engine::builder()
        .namespace("fixtures")
        .register::<closing>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine
        .start(closing())
        .key("closing")
        .await
        .expect("starts");
    run.result().await.expect_err("fails");
    let journal = engine.journal(run.id()).await.expect("reads");
    let mut found = None;
    for (record, frame) in journal.records().iter().zip(frames(&store, run.id()).await) {
        if let Event::RunClosing(closing) = &record.event {
            // Format, tag, the time in nine bytes; the chain value in 32.
            assert_eq!(frame[..3], [1, 13, 0xfd]);
            let mut hex = String::new();
            for byte in &frame[11..frame.len() - 32] {
                write!(hex, "{byte:02x}").expect("a String");
            }
            found = Some((closing.clone(), hex));
        }
    }
    let (read, written) = found.expect("it was undone");
    assert_eq!(written, FIXTURE.trim());
    let undo: Vec<_> = read
        .undo
        .iter()
        .map(|undo| (&*undo.name, undo.completed))
        .collect();
    assert_eq!(undo, [("open", false), ("close", true), ("open", true)]);
    let inputs: Vec<_> = read.undo.iter().map(|undo| undo.input.is_some()).collect();
    assert_eq!(inputs, [true, false, true]);
}
