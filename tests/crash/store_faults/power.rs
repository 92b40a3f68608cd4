//! Power cuts: what only the operating system had is gone, what was acknowledged is not.
//!
//! A preloaded shim (`shim.c`) records every write and every sync of a child that works on
//! a store. From the record the test rebuilds the directory as a disk would hold it that
//! kept synced bytes only, or those and some of the others, at many moments, and opens it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use workflow_runtime::store::Store;
use workflow_runtime::store::sled::{SledOptions, SledStore};

use super::child;
use super::disk::{Disk, Part, Record, parse, shim};
use super::story::{self, Told};
use super::work::{Expected, Look, Numbers, look};

/// At how many moments of one recording the power is cut, unless the variable `STORE_CUTS`
/// says more.
const CUTS: usize = 6;

/// What of the unsynced survives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Luck {
    None,
    /// Each write of each file and each change of a name on its own, as this seed has it.
    Some(u64),
    /// Each page of each write on its own, so many in eight.
    Pages(u64, u64),
    /// All changes of names, and nothing else.
    Names,
    /// All of it but this one of the writes of each file: the first is number 0.
    Without(usize),
}

impl Luck {
    /// Writes what survives on a disk into a directory.
    pub(super) fn survive(self, disk: &Disk, from: &Path, to: &Path) {
        let mut coin = Numbers(match self {
            Self::None | Self::Names | Self::Without(_) => 0,
            Self::Some(seed) | Self::Pages(seed, _) => seed,
        });
        disk.survive(from, to, &mut |part| match (self, part) {
            (Self::None, _) => false,
            (Self::Names, part) => matches!(part, Part::Name),
            (Self::Without(lost), Part::Write(number)) => number != lost,
            (Self::Pages(_, in_eight), Part::Page) => coin.below(8) < in_eight,
            (Self::Pages(..), Part::Write(_)) | (Self::Some(_) | Self::Without(_), Part::Page) => {
                false
            }
            (_, Part::Name) | (Self::Some(_), Part::Write(_)) => coin.below(2) == 0,
        });
    }
}

/// Records a child at work.
pub(super) fn record(task: &str, directory: &Path) -> (PathBuf, Vec<Record>) {
    let status = recorded(task, directory)
        .status()
        .expect("the child starts");
    assert!(status.success(), "the child failed at `{task}`");
    records(directory)
}

/// Prepares a child whose work is recorded, behind that of earlier ones in this directory.
pub(super) fn recorded(task: &str, directory: &Path) -> Command {
    let mut command = child::command(task, &directory.join("store"));
    command
        .env("LD_PRELOAD", shim(directory))
        .env("SHIM_LOG", directory.join("log"))
        .stdout(std::process::Stdio::null());
    command
}

/// Returns where the children's store is, and what they did to it.
pub(super) fn records(directory: &Path) -> (PathBuf, Vec<Record>) {
    let bytes = fs::read(directory.join("log")).expect("the shim wrote a log");
    (directory.join("store"), parse(&bytes))
}

/// What became of a store after a power cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Kept,
    Lost(String),
}

pub(super) async fn examine(path: &Path, acknowledged: &[Expected], told: &[Told]) -> Outcome {
    let store = match SledStore::open(path, SledOptions::default()) {
        Ok(store) => store,
        Err(error) if acknowledged.is_empty() && told.is_empty() => {
            // Nobody was told of anything; but a crash must not make a directory unusable.
            return Outcome::Lost(format!("nothing was acknowledged, and yet: {error}"));
        }
        Err(error) => return Outcome::Lost(error.to_string()),
    };
    for run in acknowledged {
        match look(&store, *run).await {
            Look::Sound => {}
            Look::Wrong => panic!("wrong data in {run:?}"),
            other => return Outcome::Lost(format!("{other:?}: {run:?}")),
        }
    }
    for told in told {
        match story::look(&store, *told).await {
            Look::Sound => {}
            Look::Wrong => panic!("wrong data in {told:?}"),
            other => return Outcome::Lost(format!("{other:?}: {told:?}")),
        }
    }
    if let Err(error) = store.check().await {
        return Outcome::Lost(error.to_string());
    }
    Outcome::Kept
}

/// Returns how many cuts the variable `STORE_CUTS` asks for.
pub(super) fn cuts(usual: usize) -> usize {
    let cuts = std::env::var("STORE_CUTS").ok();
    cuts.and_then(|cuts| cuts.parse().ok()).unwrap_or(usual)
}

/// Cuts the power at several moments of a recording and returns what became of it.
async fn cut_power(task: &str) -> Vec<(usize, Outcome)> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (store, records) = record(task, directory.path());
    let acks: Vec<usize> = (0..records.len())
        .filter(|at| records[*at].kind == b'A' && records[*at].data.starts_with(b"ack"))
        .collect();
    assert!(acks.len() > CUTS, "the child got to do something");
    let cuts = cuts(CUTS);
    // Right after acknowledgements, spread evenly, and at some moments in between.
    let mut moments: Vec<usize> = (1..=cuts)
        .map(|i| acks[i * (acks.len() - 1) / cuts])
        .collect();
    let mut numbers = Numbers(task.len() as u64);
    moments.extend((0..cuts).map(|_| numbers.below(records.len() as u64) as usize));
    moments.sort_unstable();
    let after = directory.path().join("after");
    let mut disk = Disk::default();
    let mut said = String::new();
    let mut outcomes = Vec::new();
    let mut next = 0;
    for (at, record) in records.iter().enumerate() {
        if record.kind == b'A' {
            said.push_str(&String::from_utf8_lossy(&record.data));
        }
        disk.play(record);
        if next < moments.len() && moments[next] == at {
            while next < moments.len() && moments[next] == at {
                next += 1;
            }
            let acknowledged = child::acknowledged(&said);
            let told = child::told(&said);
            for luck in [Luck::None, Luck::Some(at as u64)] {
                luck.survive(&disk, &store, &after);
                let outcome = examine(&after, &acknowledged, &told).await;
                outcomes.push((at, outcome));
            }
        }
    }
    outcomes
}

async fn expect_kept(task: &str) {
    for (at, outcome) in cut_power(task).await {
        assert_eq!(
            outcome,
            Outcome::Kept,
            "`{task}`, power cut after record {at}"
        );
    }
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_200_bytes() {
    expect_kept("grow 3 200 200 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_4_kib() {
    expect_kept("grow 3 40 4096 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_8_kib() {
    expect_kept("grow 3 30 8192 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_64_kib() {
    expect_kept("grow 3 12 65536 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_a_mebibyte() {
    expect_kept("grow 3 3 1048576 sync").await;
}

#[tokio::test]
async fn a_power_cut_takes_no_buffered_record_that_the_database_knows() {
    expect_kept("grow 1 700 3000 rare").await;
}

/// Several files of the log are begun, archived and removed.
#[tokio::test]
async fn a_power_cut_while_files_of_the_log_come_and_go_loses_nothing() {
    expect_kept("grow 2 160 30000 sync").await;
    expect_kept("grow 1 1600 3000 mixed").await;
}

/// Letters, notes, sleep, revival and deletion, in small and in large, with files of the log
/// that come and go.
#[tokio::test]
async fn a_power_cut_leaves_every_story_where_its_note_says() {
    expect_kept("tell 3 60 150").await;
    expect_kept("tell 2 60 5000").await;
    expect_kept("tell 2 150 30000").await;
}

/// Files of the log go because what they held was forgotten.
#[tokio::test]
async fn a_power_cut_while_runs_forget_loses_nothing_that_they_kept() {
    expect_kept("forget 3 100 300").await;
    expect_kept("forget 2 60 5000").await;
}

#[tokio::test]
async fn a_power_cut_while_a_store_is_made_leaves_a_directory_that_opens() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (store, records) = record("grow 1 5 200 sync", directory.path());
    let after = directory.path().join("after");
    let mut disk = Disk::default();
    for (at, record) in records.iter().enumerate() {
        disk.play(record);
        if record.kind == b'A' && record.data.starts_with(b"ack") {
            return; // from here on it is the other tests' business
        }
        for luck in [Luck::None, Luck::Some(at as u64), Luck::Some(!(at as u64))] {
            luck.survive(&disk, &store, &after);
            let outcome = examine(&after, &[], &[]).await;
            assert_eq!(
                outcome,
                Outcome::Kept,
                "power cut after record {at}, {luck:?}"
            );
        }
    }
    panic!("the child never got to say anything");
}

#[tokio::test]
async fn a_power_cut_takes_buffered_records_and_no_synced_one() {
    expect_kept("grow 2 400 2000 mixed").await;
}

/// Lets the disk refuse something, and checks what the store makes of it, then and later.
async fn refuse(variable: &str, file: &str, at: u32) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store");
    let output = child::command("until it fails", &store)
        .env("LD_PRELOAD", shim(directory.path()))
        .env("SHIM_LOG", directory.path().join("log"))
        .env(variable, at.to_string())
        .env("FAIL_FILE", file)
        .stderr(std::process::Stdio::inherit())
        .output()
        .expect("the child starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("stopped"),
        "{variable}={at} of {file}: {said}"
    );
    let outcome = examine(&store, &child::acknowledged(&said), &[]).await;
    assert_eq!(outcome, Outcome::Kept, "{variable}={at} of {file}");
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged_until_reopened() {
    for at in [20, 40] {
        refuse("FAIL_SYNC_AT", ".log", at).await;
    }
    for at in [3, 6] {
        refuse("FAIL_SYNC_AT", "/db", at).await;
    }
    // The spare file of the log.
    refuse("FAIL_SYNC_AT", "/next", 0).await;
    for at in [0, 3] {
        refuse("FAIL_SYNC_AT", ".annex", at).await;
    }
    refuse("FAIL_SYNC_AT", "/annex", 0).await;
}

#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing() {
    for at in [20, 41] {
        refuse("FAIL_WRITE_AT", ".log", at).await;
    }
    for at in [6, 15] {
        refuse("FAIL_WRITE_AT", "/db", at).await;
    }
    refuse("FAIL_WRITE_AT", "/next", 3).await;
    for at in [0, 3] {
        refuse("FAIL_WRITE_AT", ".annex", at).await;
    }
}

#[tokio::test]
async fn without_our_own_sync_a_power_cut_would_be_noticed() {
    let outcomes = cut_power("grow 3 100 200 skip").await;
    let lost = outcomes
        .iter()
        .filter(|(_, outcome)| *outcome != Outcome::Kept);
    assert!(
        lost.count() > CUTS,
        "the test sees what it should see: {outcomes:?}"
    );
}
