//! What a newer release wrote is refused by name, and nothing of it is touched: a store, a journal, a record, a file.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use workflow_runtime::export::JournalFile;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{Durability, NewRun, RunHeader, RunState, Store as _, StoreError};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{EngineError, RunId, RunStatus};

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::frames::{FORMAT, body, chained};
use super::scratch;
use super::workload::{World, one, transfer};
use crate::chance::Chance;

/// A tag that no release gives to a record before many more were given.
const UNKNOWN_TAG: u8 = 200;

/// Long enough for the steps in front of the wait.
const A_WHILE: Duration = Duration::from_secs(1);

/// A store of this release.
static STORE: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let work = ["work", &*dir, "0", "5", "4", "300"];
    let (said, _) = Process::start(child::command(&work)).hear_out(PATIENCE);
    assert!(said.contains("@finished 4 "), "{said}");
    (directory, store)
});

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    match seed % 3 {
        0 => store(seed, &mut chance),
        1 => {
            let format = FORMAT + 1 + u8::try_from(seed % 254).expect("below 255");
            journal(format, |body| body.to_vec())
        }
        _ => {
            let tag = UNKNOWN_TAG + u8::try_from(chance.below(50)).expect("small");
            journal(FORMAT, move |body| {
                let mut body = body.to_vec();
                body[0] = tag;
                body
            })
        }
    }
}

/// A store whose format has a higher number.
fn store(seed: u64, chance: &mut Chance) -> Case {
    let mut case = Case::default();
    let directory = scratch::directory();
    let path = directory.path().join("store");
    scratch::copy(&STORE.1, &path);
    let present = fs::read_to_string(path.join("FORMAT")).expect("readable");
    let present = present.trim_end().rsplit(' ').next();
    let present: u64 = present.expect("a word").parse().expect("a number");
    let newer = match chance.below(3) {
        0 => present + 1,
        1 => present + 1 + seed,
        _ => u64::from(u32::MAX) - chance.below(100),
    };
    let text = format!("workflow-runtime store, format {newer}\n");
    fs::write(path.join("FORMAT"), text).expect("written");
    let before = scratch::files(&path);
    match SledStore::open(&path, SledOptions::default()) {
        Err(StoreError::NewerFormat { found, .. }) => {
            case.holds(u64::from(found) == newer, || {
                format!("18: {newer} read as {found}")
            });
            case.count = 1;
        }
        other => case.wrong(format!("18: format {newer}: {:?}", other.map(drop))),
    }
    case.holds(scratch::files(&path) == before, || {
        "18: its files changed".into()
    });
    case
}

/// Frames of a transfer that waits in the middle.
async fn recorded() -> (RunHeader, Vec<Bytes>) {
    let store = MemoryStore::new();
    let engine = open(&store).await;
    let run = engine
        .start(transfer(1, 10))
        .key("one")
        .await
        .expect("it starts");
    engine.advance(A_WHILE).await;
    let header = store
        .header(run.id())
        .await
        .expect("readable")
        .expect("there");
    let frames = store.frames(run.id(), 0, usize::MAX).await;
    (header, frames.expect("readable"))
}

async fn open(store: &MemoryStore) -> TestEngine {
    let engine = TestEngine::builder()
        .register::<transfer>()
        .resource(World::here())
        .store(store.clone());
    engine.open().await.expect("a store in memory opens")
}

/// A journal whose last record is of a newer release, in a store beside a run of today.
fn journal(format: u8, change: impl Fn(&[u8]) -> Vec<u8>) -> Case {
    let mut case = Case::default();
    scratch::runtime().block_on(async {
        let (header, frames) = recorded().await;
        let run = header.run;
        let mut bodies: Vec<Vec<u8>> = frames.iter().map(|frame| body(frame).to_vec()).collect();
        case.holds(chained(run, FORMAT, &bodies) == frames, || {
            "2: the chain is not what the book says".into()
        });
        let last = bodies.pop().expect("records");
        let mut newer = chained(run, FORMAT, &bodies);
        bodies.push(change(&last));
        newer.push(chained(run, format, &bodies).pop().expect("a frame"));
        let store = MemoryStore::new();
        let new = NewRun {
            header: RunHeader {
                state: RunState::Active,
                ..header
            },
            first: newer[0].clone(),
            rest: newer[1..].to_vec(),
            durability: Durability::Synced,
        };
        store.create(new).await.expect("created");
        refused(&store, run, &newer, &mut case).await;
    });
    case
}

async fn refused(store: &MemoryStore, run: RunId, newer: &[Bytes], case: &mut Case) {
    let engine = open(store).await;
    engine.advance(A_WHILE).await;
    match engine.journal(run).await {
        Err(EngineError::Journal(error)) => {
            case.holds(error.is_newer(), || {
                format!("18: not named as newer: {error}")
            });
            case.count = 1;
        }
        other => case.wrong(format!("18: a newer journal: {other:?}")),
    }
    let status = engine.status(run).await;
    case.holds(matches!(status, Ok(RunStatus::Parked(_))), || {
        format!("14: the run is {status:?}")
    });
    let now = store.frames(run, 0, usize::MAX).await.expect("readable");
    case.holds(now == newer, || "18: its records changed".into());
    // One run that cannot be read stops no other.
    let other = one(&engine, 2, 10, &|_| {}).await;
    case.holds(other.is_ok(), || format!("15: another run: {other:?}"));
}

/// A journal file of a newer release, or with a record of one.
pub(super) fn file(seed: u64) -> Case {
    let mut case = Case::default();
    let json = scratch::runtime().block_on(async {
        let store = MemoryStore::new();
        let engine = open(&store).await;
        let run = engine
            .start(transfer(1, 10))
            .key("one")
            .await
            .expect("it starts");
        engine.advance(A_WHILE).await;
        engine.export(run.id()).await.expect("exported").to_json()
    });
    case.holds(JournalFile::from_json(&json).is_ok(), || {
        "it cannot be read unchanged".into()
    });
    let newer = 3 + seed;
    let text = match seed % 2 {
        0 => json.replacen(
            "\"journal_file\": 1",
            &format!("\"journal_file\": {newer}"),
            1,
        ),
        _ => json.replacen(
            "\"kind\": \"step_completed\"",
            "\"kind\": \"step_dreamt\"",
            1,
        ),
    };
    case.holds(text != json, || "nothing was changed".into());
    match JournalFile::from_json(&text) {
        Err(error) => {
            let said = error.to_string();
            let names = match seed % 2 {
                0 => newer.to_string(),
                _ => "step_dreamt".to_owned(),
            };
            case.holds(said.contains(&names), || format!("18: {said}"));
            case.count = 1;
        }
        Ok(_) => case.wrong("18: a newer file was read"),
    }
    case
}
