//! What a checkpoint leaves to be undone: today's writer writes the bytes of the fixture, today's reader reads
//! them.

use std::fmt::Write as _;
use std::path::Path;

use workflow_runtime::journal::Event;
use workflow_runtime::{Engine, Error, Result, checkpoint, step, workflow};
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

/// One pass with two steps, one with none, one with one; then it fails.
#[workflow(name = "format carried")]
async fn carried(pass: u32) -> Result<u32> {
    if pass != 1 {
        open("a door").await?;
    }
    match pass {
        0 => drop(open("a safe").await),
        3 => return Err(Error::fatal("late")),
        _ => {}
    }
    checkpoint(&(pass + 1)).await
}

/// The bytes of the records behind their times, as they were when there was nothing but format 1.
const FIXTURE: &str = "format/fixtures/carried-1.hex";

#[tokio::test]
async fn the_records_of_what_is_carried_are_written_and_read_as_ever() {
    let store = workflow_runtime::store::memory::MemoryStore::new();
    let engine = Engine::builder()
        .namespace("fixtures")
        .register::<carried>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(carried(0)).key("carried").await;
    let run = run.expect("starts");
    run.result().await.expect_err("fails");
    let journal = engine.journal(run.id()).await.expect("reads");
    let (mut read, mut hex) = (Vec::new(), String::new());
    for (record, frame) in journal.records().iter().zip(frames(&store, run.id()).await) {
        if let Event::UndoCarried(carried) = &record.event {
            // Format, tag, the time in nine bytes; the chain value in 32.
            assert_eq!(frame[..3], [1, 19, 0xfd]);
            for byte in &frame[11..frame.len() - 32] {
                write!(hex, "{byte:02x}").expect("a String");
            }
            hex.push('\n');
            read.push((record.seq, carried.clone()));
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURE);
    if std::env::var_os("WORKFLOW_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, &hex).expect("writes");
    }
    assert_eq!(hex, std::fs::read_to_string(&path).expect("is there"));
    let said: Vec<_> = read
        .iter()
        .map(|(seq, it)| (*seq, it.since, it.steps.len(), it.owed, it.before))
        .collect();
    let expected = [
        (3, 0, 2, 2, None),
        (5, 4, 0, 2, Some(3)),
        (8, 6, 1, 3, Some(3)),
    ];
    assert_eq!(said, expected);
    let steps = read[0].1.steps.iter();
    let steps: Vec<_> = steps
        .map(|it| (&*it.name, &*it.module, it.output.is_some()))
        .collect();
    let module = "format::carried";
    assert_eq!(steps, [("open", module, true), ("open", module, false)]);
}
