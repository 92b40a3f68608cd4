//! What only a broken engine or store does, and what is said of it.

use std::time::SystemTime;

use super::*;
use crate::clock::Timestamp;
use crate::context::StepMetadata;
use crate::digest::{Digest, InputDigest};
use crate::ids::StepId;
use crate::journal::{Outcome, Record, StaleOutcomeDiscarded, StepCompleted};
use crate::store::{Durability, NewRun, RunHeader, RunState};
use crate::testing::Answer;

fn run() -> RunId {
    RunId::from_bytes([1; 16])
}

fn step() -> StepId {
    StepId::from_bytes([2; 16])
}

fn header() -> RunHeader {
    RunHeader {
        run: run(),
        namespace: "default".into(),
        workflow: "w".into(),
        version: 1,
        key: None,
        input_digest: Digest::from_bytes([0; 16]),
        created_at: Timestamp::default(),
        origin: None,
        state: RunState::Active,
    }
}

/// What was on the disk at the crash: so many frames.
fn survived(frames: usize) -> Survived {
    let frames = (0..frames as u64).map(|seq| (seq, Bytes::from_static(b"frame")));
    let frames = frames.collect();
    Survived {
        frames: HashMap::from([(run(), frames)]),
        calls: 1,
    }
}

async fn changed(before: &Survived, first: &'static [u8], rest: usize) -> Vec<Violation> {
    let store = MemoryStore::new();
    let new = NewRun {
        header: header(),
        first: Bytes::from_static(first),
        rest: vec![Bytes::from_static(b"frame"); rest],
        durability: Durability::Synced,
    };
    store.create(new).await.expect("creates");
    before.changed(&store).await
}

#[tokio::test]
async fn a_record_that_is_gone_or_changed_after_a_crash_is_found() {
    assert_eq!(changed(&survived(2), b"frame", 1).await, []);
    assert_eq!(changed(&survived(2), b"frame", 5).await, []);
    let gone = changed(&survived(2), b"frame", 0).await;
    assert_eq!(gone[0].invariant, Invariant::AppendOnly);
    assert!(gone[0].problem.starts_with("record 1 "), "{}", gone[0]);
    let another = changed(&survived(2), b"other", 1).await;
    assert!(
        another[0].problem.starts_with("record 0 "),
        "{}",
        another[0]
    );
    let run_gone = survived(1).changed(&MemoryStore::new()).await;
    assert_eq!(run_gone.len(), 1);
}

/// A journal whose second record is the step's outcome.
fn journal(more: Vec<Event>) -> Journal {
    let completed = Event::StepCompleted(StepCompleted {
        step: step(),
        name: "charge".into(),
        scope: "".into(),
        source: "".into(),
        input_digest: InputDigest {
            strict: Digest::from_bytes([0; 16]),
            unordered: None,
        },
        input: None,
        attempts: 1,
        called_at: Timestamp::default(),
        attempt_began_at: Timestamp::default(),
        outcome: Outcome::Ok(Bytes::new()),
    });
    let events = [completed.clone(), completed].into_iter().chain(more);
    let records = events.enumerate().map(|(seq, event)| Record {
        seq: seq as u64,
        time: Timestamp::default(),
        event,
    });
    Journal::new(header(), records.skip(1).collect())
}

fn call(step_id: StepId) -> LedgerCall {
    LedgerCall {
        number: 2,
        key: None,
        entry: "charged".into(),
        at: None,
        step: Some(StepMetadata {
            step_id,
            step_name: "charge",
            attempt: 1,
            step_started_at: SystemTime::UNIX_EPOCH,
            run_id: run(),
            workflow_name: "w".into(),
            namespace: "default".into(),
        }),
        answer: Answer::Done,
        receipt: Some(2),
    }
}

#[test]
fn a_step_that_runs_again_though_its_outcome_survived_is_found() {
    let calls = [call(step()), call(step())];
    let again = survived(2).run_again(&[journal(Vec::new())], &calls);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].invariant, Invariant::NotRunAgain);
    let told = again[0].to_string();
    assert!(
        told.contains("has its outcome in record 1, which survived the crash"),
        "{told}"
    );
    let before_the_crash = &calls[..1];
    assert_eq!(
        survived(2).run_again(&[journal(Vec::new())], before_the_crash),
        []
    );
    let not_survived = survived(1).run_again(&[journal(Vec::new())], &calls);
    assert_eq!(not_survived, []);
    let another = [call(step()), call(StepId::from_bytes([3; 16]))];
    assert_eq!(survived(2).run_again(&[journal(Vec::new())], &another), []);
    let stale = Event::StaleOutcomeDiscarded(StaleOutcomeDiscarded {
        step: step(),
        name: "charge".into(),
        discarded: 1,
    });
    assert_eq!(survived(2).run_again(&[journal(vec![stale])], &calls), []);
}
