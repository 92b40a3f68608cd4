//! Journals of format 1, as they lie on disks: today's reader reads them to the same records,
//! today's engine carries them on, and today's writer writes the same bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use workflow_runtime::clock::Timestamp;
use workflow_runtime::journal::{Event, Journal, Outcome, Record};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{RunHeader, RunState};
use workflow_runtime::{Digest, Engine, EngineBuilder, EngineError, RunError, RunId};
use workflow_tests::{cut, frames, survive};

use super::endless::endless;
use super::line::line;
use super::options::{abort, options};
use super::story::{failure, order, story};

/// The key of the fixture whose chain is keyed.
const AUDIT_KEY: [u8; 32] = [0x2a; 32];

/// Set to write new fixtures, when there is a new format; the old ones stay.
const WRITE: &str = "WORKFLOW_WRITE_FIXTURES";

fn builder(audit: bool) -> EngineBuilder {
    let builder = Engine::builder()
        .namespace("fixtures")
        .register::<story>()
        .register::<failure>()
        .register::<options>()
        .register::<abort>()
        .register::<endless>()
        .register::<line>();
    if audit {
        builder.audit_key(AUDIT_KEY)
    } else {
        builder
    }
}

/// The story with a crash in it: every record kind but a failed run's.
async fn record_story(audit: bool) -> (Journal, Vec<Bytes>) {
    let crash = FaultPlan::at(2, Fault::CrashAfter);
    let (result, store) = survive(|| builder(audit), || story(order()), [crash]).await;
    assert_eq!(result.expect("ends well"), 1234);
    read_back(audit, store).await
}

async fn record_failure() -> (Journal, Vec<Bytes>) {
    let (result, store) = survive(|| builder(false), || failure(true), []).await;
    assert!(matches!(result, Err(RunError::Failed(error)) if error.is_fatal()));
    read_back(false, store).await
}

/// An engine that is opened when what stays fresh for a millisecond does no more.
fn later() -> EngineBuilder {
    std::thread::sleep(Duration::from_millis(3));
    builder(false)
}

/// A stale outcome that is discarded, then a step that was interrupted, then one with an intent.
async fn record_options() -> (Journal, Vec<Bytes>) {
    let crashes = [
        FaultPlan::at(1, Fault::CrashAfter), // the outcome of `quote`
        FaultPlan::at(3, Fault::CrashAfter), // behind mark, discarding and second outcome: the intent
    ];
    let (result, store) = survive(later, || options("book".into()), crashes).await;
    assert_eq!(result.expect("ends well"), 4);
    read_back(false, store).await
}

/// A stale outcome that ends the run.
async fn record_abort() -> (Journal, Vec<Bytes>) {
    let crash = FaultPlan::at(1, Fault::CrashAfter);
    let (result, store) = survive(later, abort, [crash]).await;
    assert!(matches!(result, Err(RunError::Aborted { .. })));
    read_back(false, store).await
}

/// Two checkpoints, with a patch that carries over.
async fn record_endless() -> (Journal, Vec<Bytes>) {
    let (result, store) = survive(|| builder(false), || endless(0, Vec::new()), []).await;
    assert_eq!(result.expect("ends well"), 3);
    read_back(false, store).await
}

/// The first run of a line, which ends by going on, or the second.
async fn record_line(newest: bool) -> (Journal, Vec<Bytes>) {
    let (result, store) = survive(|| builder(false), || line(0), []).await;
    assert_eq!(result.expect("ends well"), 2);
    let store = store.reopen(Surviving::Synced);
    let engine = builder(false).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let any = engine.runs().await.expect("lists").runs[0].run;
    let line = engine.lineage(any).await.expect("reads");
    let run = if newest { line.newest } else { line.first };
    let journal = engine.journal(run).await.expect("reads");
    (journal, frames(&store, run).await)
}

async fn read_back(audit: bool, store: MemoryStore) -> (Journal, Vec<Bytes>) {
    let store = store.reopen(Surviving::Synced);
    let engine = builder(audit)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.runs().await.expect("lists").runs[0].run;
    let journal = engine.journal(run).await.expect("reads");
    (journal, frames(&store, run).await)
}

/// One fixture: the run's id, then one frame a line; and beside it what is to be read.
pub(super) struct Fixture {
    pub(super) run: RunId,
    pub(super) frames: Vec<Bytes>,
    pub(super) expected: String,
}

fn path(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("format/fixtures")
        .join(format!("{name}.{ending}"))
}

pub(super) fn load(name: &str, today: &(Journal, Vec<Bytes>)) -> Fixture {
    if std::env::var_os(WRITE).is_some() {
        save(name, today);
    }
    let text = std::fs::read_to_string(path(name, "hex")).expect("the fixture is there");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let run = lines.next().expect("a run").parse().expect("an id");
    let expected = std::fs::read_to_string(path(name, "txt")).expect("is there");
    Fixture {
        run,
        frames: lines.map(from_hex).collect(),
        expected,
    }
}

fn save(name: &str, (journal, frames): &(Journal, Vec<Bytes>)) {
    let mut hex = format!(
        "# a journal of format 1, a frame a line\n{}\n",
        journal.header().run
    );
    for frame in frames {
        frame
            .iter()
            .for_each(|byte| write!(hex, "{byte:02x}").expect("a String"));
        hex.push('\n');
    }
    std::fs::write(path(name, "hex"), hex).expect("writes");
    std::fs::write(path(name, "txt"), show(journal.records())).expect("writes");
}

fn from_hex(line: &str) -> Bytes {
    let digit = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).expect("hex");
    (0..line.len()).step_by(2).map(digit).collect()
}

pub(super) fn show(records: &[Record]) -> String {
    records.iter().fold(String::new(), |mut text, record| {
        let moments = moments(record);
        let micros: Vec<_> = moments.iter().map(|moment| moment.as_micros()).collect();
        writeln!(text, "{} {micros:?} {:?}", record.seq, record.event).expect("a String");
        text
    })
}

impl Fixture {
    fn header(&self, name: &str, version: u32) -> RunHeader {
        RunHeader {
            run: self.run,
            namespace: "fixtures".into(),
            workflow: name.into(),
            version,
            key: Some("story".into()),
            input_digest: Digest::from_bytes([0; 16]),
            created_at: Timestamp::from_micros(1),
            origin: None,
            state: RunState::Active,
        }
    }

    /// An engine that knows no workflow, on a store that holds the first records.
    pub(super) async fn reader(&self, audit: Option<[u8; 32]>) -> Engine {
        let header = self.header("format story", 3);
        let store = cut(&header, &self.frames, self.frames.len()).await;
        let builder = Engine::builder().namespace("fixtures");
        let builder = match audit {
            Some(key) => builder.audit_key(key),
            None => builder,
        };
        builder.open_with(store).await.expect("opens")
    }
}

#[tokio::test]
async fn journals_of_format_1_are_read_to_the_same_records() {
    let cases = [
        ("story-1", None, record_story(false).await),
        ("story-1-audited", Some(AUDIT_KEY), record_story(true).await),
        ("failure-1", None, record_failure().await),
        ("options-1", None, record_options().await),
        ("abort-1", None, record_abort().await),
        ("endless-1", None, record_endless().await),
        ("line-first-1", None, record_line(false).await),
        ("line-second-1", None, record_line(true).await),
    ];
    for (name, audit, today) in cases {
        let fixture = load(name, &today);
        let engine = fixture.reader(audit).await;
        let journal = engine.journal(fixture.run).await.expect("reads");
        assert_eq!(show(journal.records()), fixture.expected, "{name}");
        assert_eq!(
            journal.header().run,
            today.0.header().run,
            "ids are derived"
        );
    }
}

#[tokio::test]
async fn an_audited_journal_is_not_read_without_its_key() {
    let today = record_story(true).await;
    let fixture = load("story-1-audited", &today);
    for audit in [None, Some([0x2b; 32])] {
        let engine = fixture.reader(audit).await;
        let read = engine.journal(fixture.run).await;
        assert!(matches!(read, Err(EngineError::Journal(_))), "{read:?}");
    }
}

#[tokio::test]
async fn a_frame_of_a_newer_format_is_named_as_such() {
    let today = record_story(false).await;
    let mut fixture = load("story-1", &today);
    let mut newer = fixture.frames[1].to_vec();
    newer[0] = 2;
    fixture.frames[1] = newer.into();
    let engine = fixture.reader(None).await;
    match engine.journal(fixture.run).await {
        Err(EngineError::Journal(error)) => {
            assert!(error.is_newer());
            assert!(error.to_string().contains("format 2"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_run_of_format_1_is_carried_on_from_any_record() {
    let today = record_story(false).await;
    let fixture = load("story-1", &today);
    let header = fixture.header("format story", 3);
    for records in 1..fixture.frames.len() {
        let store = cut(&header, &fixture.frames, records).await;
        let engine = builder(false)
            .open_with(store.clone())
            .await
            .expect("opens");
        let run = engine.run::<story>(fixture.run).await.expect("is there");
        assert_eq!(run.result().await.expect("ends well"), 1234, "{records}");
        let after = frames(&store, fixture.run).await;
        assert_eq!(after[..records], fixture.frames[..records]);
    }
}

/// The moments in a record.
fn moments(record: &Record) -> Vec<Timestamp> {
    let mut moments = vec![record.time];
    match &record.event {
        Event::StepCompleted(step) => {
            moments.extend([step.called_at, step.attempt_began_at]);
            if let Outcome::Interrupted(interrupted) = step.outcome {
                moments.push(interrupted.started_at().into());
            }
        }
        Event::AttemptFailed(failed) => moments.push(failed.next_at),
        Event::TimerSet(timer) => moments.push(timer.deadline),
        Event::SignalReceived(signal) => moments.push(signal.sent_at),
        Event::CancelRequested(cancel) => moments.push(cancel.sent_at),
        Event::Checkpoint(checkpoint) => moments.push(checkpoint.now),
        _ => {}
    }
    moments
}

/// The bodies of frames, with zeros for every moment and without the chain.
pub(super) fn timeless(frames: &[Bytes], records: &[Record]) -> Vec<Vec<u8>> {
    let bodies = frames
        .iter()
        .map(|frame| frame[..frame.len() - 32].to_vec());
    bodies
        .zip(records)
        .map(|(mut body, record)| {
            for moment in moments(record) {
                let mut written = vec![0xfd];
                written.extend(moment.as_micros().to_le_bytes());
                while let Some(at) = body.windows(9).position(|bytes| bytes == written) {
                    body[at..at + 9].fill(0);
                }
            }
            body
        })
        .collect()
}

#[tokio::test]
async fn the_same_story_is_written_in_the_same_bytes_but_for_the_time() {
    for (name, audit, today) in [
        ("story-1", None, record_story(false).await),
        ("story-1-audited", Some(AUDIT_KEY), record_story(true).await),
        ("failure-1", None, record_failure().await),
        ("options-1", None, record_options().await),
        ("abort-1", None, record_abort().await),
        ("endless-1", None, record_endless().await),
        ("line-first-1", None, record_line(false).await),
        ("line-second-1", None, record_line(true).await),
    ] {
        let fixture = load(name, &today);
        let engine = fixture.reader(audit).await;
        let journal = engine.journal(fixture.run).await.expect("reads");
        let then = timeless(&fixture.frames, journal.records());
        let now = timeless(&today.1, today.0.records());
        assert_eq!(then, now, "{name}");
    }
}
