//! Power cuts: what only the operating system had is gone, what was acknowledged is not.
//!
//! A preloaded shim (`shim.c`) records every write and every sync of a child that works on
//! a store. From the record the test rebuilds the directory as a disk would hold it that
//! kept synced bytes only, or those and some of the others, at many moments, and opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use workflow_runtime::store::Store;
use workflow_runtime::store::sled::{SledOptions, SledStore};

use super::child;
use super::story::{self, Told};
use super::work::{Expected, Look, Numbers, look};

/// At how many moments of one recording the power is cut, unless the variable `STORE_CUTS`
/// says more.
const CUTS: usize = 6;

/// One thing the child did.
#[derive(Debug)]
struct Record {
    kind: u8,
    path: PathBuf,
    offset: u64,
    data: Vec<u8>,
}

/// A file, with what of it is on the disk and what is not yet.
#[derive(Debug, Default, Clone)]
struct Inode {
    synced: Vec<u8>,
    /// Writes and truncations since.
    pending: Vec<(u64, Option<Vec<u8>>)>,
}

/// A disk that keeps only what was synced, names of files and directories included.
#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    directories: BTreeSet<PathBuf>,
    synced_directories: BTreeSet<PathBuf>,
}

/// What of the unsynced survives.
#[derive(Debug, Clone, Copy)]
enum Luck {
    None,
    /// Each write of each file and each change of a name on its own, as this seed has it.
    Some(u64),
}

fn apply(bytes: &mut Vec<u8>, offset: u64, data: Option<&[u8]>) {
    let offset = usize::try_from(offset).expect("a small file");
    match data {
        None => bytes.resize(offset, 0),
        Some(data) => {
            if bytes.len() < offset + data.len() {
                bytes.resize(offset + data.len(), 0);
            }
            bytes[offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

impl Disk {
    fn inode(&mut self, path: &Path) -> Option<&mut Inode> {
        let number = *self.names.get(path)?;
        Some(&mut self.inodes[number])
    }

    fn play(&mut self, record: &Record) {
        let path = &record.path;
        match record.kind {
            b'C' => {
                self.names.insert(path.clone(), self.inodes.len());
                self.inodes.push(Inode::default());
            }
            b'W' => {
                let write = (record.offset, Some(record.data.clone()));
                self.inode(path).expect("created").pending.push(write);
            }
            b'T' => {
                let cut = (record.offset, None);
                self.inode(path).expect("created").pending.push(cut);
            }
            b'S' => match self.inode(path) {
                Some(inode) => {
                    for (offset, data) in std::mem::take(&mut inode.pending) {
                        apply(&mut inode.synced, offset, data.as_deref());
                    }
                }
                None => self.sync_names(path),
            },
            b'R' => {
                let to = PathBuf::from(String::from_utf8(record.data.clone()).expect("a path"));
                let number = self.names.remove(path).expect("created");
                self.names.insert(to, number);
            }
            b'U' => {
                self.names.remove(path);
            }
            b'M' => {
                self.directories.insert(path.clone());
            }
            _ => {}
        }
    }

    /// A directory was synced: the names in it are on the disk.
    fn sync_names(&mut self, directory: &Path) {
        let inside = |path: &Path| path.parent() == Some(directory);
        self.synced_names.retain(|path, _| !inside(path));
        let now = self.names.iter().filter(|(path, _)| inside(path));
        let now = now.map(|(path, number)| (path.clone(), *number));
        self.synced_names.extend(now.collect::<Vec<_>>());
        let made = self.directories.iter().filter(|path| inside(path));
        self.synced_directories.extend(made.cloned());
    }

    /// Returns the names that survive: the synced ones, and with luck any of the others,
    /// each on its own. A removal that was not synced may be forgotten.
    fn surviving_names(&self, luck: Luck, coin: &mut Numbers) -> BTreeMap<PathBuf, usize> {
        let mut names = self.synced_names.clone();
        if matches!(luck, Luck::None) {
            return names;
        }
        let both: BTreeSet<&PathBuf> = names.keys().chain(self.names.keys()).collect();
        let both: Vec<PathBuf> = both.into_iter().cloned().collect();
        for path in both {
            if self.names.get(&path) == self.synced_names.get(&path) || coin.below(2) == 0 {
                continue;
            }
            match self.names.get(&path) {
                Some(number) => names.insert(path, *number),
                None => names.remove(&path),
            };
        }
        names
    }

    /// Writes what survives into a directory.
    fn survive(&self, from: &Path, to: &Path, luck: Luck) {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).expect("made");
        let mut coin = Numbers(match luck {
            Luck::None => 0,
            Luck::Some(seed) => seed,
        });
        for path in &self.synced_directories {
            let inside = path.strip_prefix(from).expect("recorded below it");
            fs::create_dir_all(to.join(inside)).expect("made");
        }
        for (path, number) in &self.surviving_names(luck, &mut coin) {
            let parent = path.parent().expect("inside the store");
            if parent != from && !self.synced_directories.contains(parent) {
                continue; // the directory it is in is lost
            }
            let inode = &self.inodes[*number];
            let mut bytes = inode.synced.clone();
            if matches!(luck, Luck::Some(_)) {
                for (offset, data) in &inode.pending {
                    if coin.below(2) == 0 {
                        apply(&mut bytes, *offset, data.as_deref());
                    }
                }
            }
            let inside = path.strip_prefix(from).expect("recorded below it");
            fs::write(to.join(inside), bytes).expect("written");
        }
    }
}

/// Compiles the shim.
pub(super) fn shim(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crash/shim.c");
    let library = directory.join("shim.so");
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-o"])
        .arg(&library)
        .arg(&source)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("this test needs a C compiler called `cc` (on Debian: apt install gcc)");
    assert!(
        output.status.success(),
        "the shim does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    library
}

/// Records a child at work.
fn record(task: &str, directory: &Path) -> (PathBuf, Vec<Record>) {
    let store = directory.join("store");
    let log = directory.join("log");
    let status = child::command(task, &store)
        .env("LD_PRELOAD", shim(directory))
        .env("SHIM_LOG", &log)
        .stdout(std::process::Stdio::null())
        .status()
        .expect("the child starts");
    assert!(status.success(), "the child failed at `{task}`");
    let bytes = fs::read(&log).expect("the shim wrote a log");
    (store, parse(&bytes))
}

/// Reads the shim's log. Its last record may be cut off: threads of the child may be at work when it ends.
fn parse(mut rest: &[u8]) -> Vec<Record> {
    std::iter::from_fn(|| next_record(&mut rest)).collect()
}

fn next_record(rest: &mut &[u8]) -> Option<Record> {
    let mut take = |len: usize| -> Option<&[u8]> {
        let (taken, left) = rest.split_at_checked(len)?;
        *rest = left;
        Some(taken)
    };
    let len = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize;
    let kind = take(1)?[0];
    let path_len = len(take(4)?);
    let path = String::from_utf8(take(path_len)?.to_vec()).expect("a path");
    let offset = take(8)?.try_into().expect("eight bytes");
    let data_len = len(take(4)?);
    let data = take(data_len)?.to_vec();
    Some(Record {
        kind,
        path: path.into(),
        offset: u64::from_le_bytes(offset),
        data,
    })
}

/// What became of a store after a power cut.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Kept,
    Lost(String),
}

async fn examine(path: &Path, acknowledged: &[Expected], told: &[Told]) -> Outcome {
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

/// Cuts the power at several moments of a recording and returns what became of it.
async fn cut_power(task: &str) -> Vec<(usize, Outcome)> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (store, records) = record(task, directory.path());
    let acks: Vec<usize> = (0..records.len())
        .filter(|at| records[*at].kind == b'A' && records[*at].data.starts_with(b"ack"))
        .collect();
    assert!(acks.len() > CUTS, "the child got to do something");
    let cuts = std::env::var("STORE_CUTS")
        .ok()
        .and_then(|cuts| cuts.parse().ok());
    let cuts = cuts.unwrap_or(CUTS);
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
                disk.survive(&store, &after, luck);
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
            disk.survive(&store, &after, luck);
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
