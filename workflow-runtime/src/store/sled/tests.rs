//! The contract on a real directory, and damage inside the tree; damaged files and power
//! cuts are in `tests/crash`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::database::{Database, Settings, Write};
use super::keys::Key;
use super::table::MAX_TAIL_BYTES;
use super::{SledOptions, SledStore};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::RunId;
use crate::store::conformance::Harness;
use crate::store::{
    Append, BoxFuture, Durability, EndKind, Epoch, NewRun, RunEnd, RunHeader, RunState, Store,
    StoreError,
};

/// Opens stores in temporary directories.
#[derive(Default)]
struct SledHarness {
    current: Mutex<Option<tempfile::TempDir>>,
}

impl SledHarness {
    fn open(&self) -> Arc<dyn Store> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = current.as_ref().expect("a directory was made");
        let path = directory.path().join("store");
        Arc::new(SledStore::open(path, SledOptions::default()).expect("the store opens"))
    }
}

impl Harness for SledHarness {
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(directory);
        Box::pin(async { self.open() })
    }

    fn again(&self, old: Arc<dyn Store>) -> BoxFuture<'_, Option<Arc<dyn Store>>> {
        assert_eq!(Arc::strong_count(&old), 1, "the last handle");
        drop(old);
        Box::pin(async { Some(self.open()) })
    }
}

crate::store_conformance!(SledHarness::default());

/// A directory with a store that was closed.
pub(super) struct Closed {
    _directory: tempfile::TempDir,
    pub(super) path: PathBuf,
}

impl SledStore {
    /// Waits until nothing is in line to be archived.
    pub(super) fn settled(&self) {
        let begun = std::time::Instant::now();
        while !self.shared.lock().is_settled() {
            assert!(begun.elapsed().as_secs() < 20, "it never settles");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

pub(super) fn header(n: u64) -> RunHeader {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    id[8..].copy_from_slice(&n.to_be_bytes());
    RunHeader {
        run: RunId::from_bytes(id),
        namespace: "default".into(),
        workflow: "w".into(),
        version: 1,
        key: None,
        input_digest: Digest::from_bytes([0; 16]),
        created_at: Timestamp::from_micros(n),
        origin: None,
        state: RunState::Active,
    }
}

pub(super) fn new_run(n: u64) -> NewRun {
    NewRun {
        header: header(n),
        first: vec![1; 100].into(),
        rest: Vec::new(),
        durability: Durability::Synced,
    }
}

pub(super) fn append(n: u64, seq: u64, len: usize) -> Append {
    Append {
        run: header(n).run,
        epoch: Epoch::FIRST,
        first_seq: seq,
        frames: Bytes::from(vec![2; len]).into(),
        end: None,
        taken: 0,
        changes: None,
        durability: Durability::Synced,
    }
}

pub(super) fn ending(n: u64, seq: u64) -> Append {
    Append {
        end: Some(RunEnd {
            kind: EndKind::Completed,
            at: Timestamp::from_micros(9),
        }),
        ..append(n, seq, 10)
    }
}

#[tokio::test]
async fn a_run_that_grows_long_is_archived_before_it_ends() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = SledStore::open(path, SledOptions::default()).expect("a new store opens");
    let archived = || store.shared.lock().table.runs[&header(1).run].archived;
    store.create(new_run(1)).await.expect("created");
    for seq in 1..=4 {
        let appended = store.append(append(1, seq, MAX_TAIL_BYTES / 5)).await;
        appended.expect("appended");
    }
    store.settled();
    assert_eq!(archived(), 0, "it is short");
    for seq in 5..=6 {
        let appended = store.append(append(1, seq, MAX_TAIL_BYTES / 5)).await;
        appended.expect("appended");
    }
    store.settled();
    assert!(archived() > 0, "it is long");
}

#[tokio::test]
async fn a_run_is_listed_once_for_a_file_of_the_log_however_often_it_writes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = SledStore::open(path, SledOptions::default()).expect("a new store opens");
    for n in 1..=3 {
        store.create(new_run(n)).await.expect("created");
    }
    for seq in 1..=20 {
        for n in 1..=3 {
            store.append(append(n, seq, 10)).await.expect("appended");
        }
    }
    assert_eq!(store.shared.lock().ledger.listed(), 3);
    for n in 1..=3 {
        let asleep = store.put_to_sleep(header(n).run, Epoch::FIRST, None).await;
        asleep.expect("it sleeps");
    }
    assert_eq!(store.shared.lock().ledger.listed(), 3);
}

impl Closed {
    /// Makes a store with a run that has segments, two short live ones and a finished one.
    pub(super) async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        let closed = Self {
            _directory: directory,
            path,
        };
        let store = closed.open().expect("a new store opens");
        for n in 1..=4 {
            store.create(new_run(n)).await.expect("created");
        }
        for seq in 1..10 {
            let appended = store.append(append(1, seq, MAX_TAIL_BYTES / 8)).await;
            appended.expect("appended");
        }
        store.append(ending(4, 1)).await.expect("ended");
        for seq in 1..4 {
            store.append(append(2, seq, 50)).await.expect("appended");
            store.append(append(3, seq, 50)).await.expect("appended");
        }
        store.close().await.expect("closed");
        closed
    }

    pub(super) fn open(&self) -> crate::store::StoreResult<SledStore> {
        SledStore::open(&self.path, SledOptions::default())
    }

    /// Lets everything that is in line leave memory, and closes the store.
    pub(super) async fn settle(&self) {
        let store = self.open().expect("it opens");
        store.settled();
        store.close().await.expect("closed");
    }

    /// Changes the tree behind the store's back.
    pub(super) fn tamper(&self, change: impl FnOnce(&Database) -> Vec<Write>) {
        let settings = Settings {
            cache_bytes: 1 << 20,
            skip_fdatasync: false,
            log_file_bytes: super::log::FILE_SIZE,
            write_again: false,
        };
        let database = Database::open(&self.path, &settings).expect("sled opens");
        let writes = change(&database);
        database.commit(writes).expect("applied");
        database.close().expect("closed");
    }

    pub(super) fn expect_corrupt(&self, place: &str) {
        match self.open() {
            Err(StoreError::Corrupt { place: found, .. }) => {
                assert!(found.contains(place), "{found}");
            }
            other => panic!("expected damage at {place}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn whoever_asks_for_what_stops_the_store_hears_the_same_as_all_who_ask_later() {
    let closed = Closed::new().await;
    closed.settle().await;
    let garbage = vec![1, 0, 7];
    closed.tamper(|_| vec![(Key::run(header(9).run).piece(0), Some(garbage))]);
    let store = closed.open().expect("nobody has looked there");
    let first = store.create(new_run(9)).await;
    let later = store.create(new_run(10)).await;
    for answer in [first, later] {
        let Err(StoreError::Failed { error }) = &answer else {
            panic!("it goes on, or says something else: {answer:?}");
        };
        assert!(error.contains("the entry of run_"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_live_entry_is_damage() {
    let closed = Closed::new().await;
    closed.settle().await;
    closed.tamper(|_| vec![(Key::live(header(1).run).piece(0), None)]);
    closed.expect_corrupt("");
}

#[tokio::test]
async fn a_missing_live_entry_is_damage_even_if_no_block_tells_of_the_run() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    store.create(new_run(9)).await.expect("created");
    let parking = crate::store::Parking {
        reason: crate::store::ParkReason::Diverged,
        at: Timestamp::from_micros(1),
        report: "stuck".into(),
        detail: None,
    };
    let run = header(9).run;
    let parked = store.park(run, Epoch::FIRST, Some(parking)).await;
    parked.expect("parked");
    store.settled();
    store.close().await.expect("closed");
    closed.tamper(|_| vec![(Key::live(run).piece(0), None)]);
    closed.expect_corrupt("the live entries");
}

#[tokio::test]
async fn a_lost_finished_run_is_found_by_the_check() {
    for lost in ["header", "segment"] {
        let closed = Closed::new().await;
        closed.settle().await;
        closed.tamper(|_| {
            let at = header(4).position();
            match lost {
                "header" => vec![(Key::header(at).piece(0), None)],
                _ => vec![(Key::segment(at, 0).piece(0), None)],
            }
        });
        let store = closed
            .open()
            .expect("opening does not look at finished runs");
        let found = store.check().await;
        assert!(
            matches!(found, Err(StoreError::Corrupt { .. })),
            "{found:?}"
        );
    }
}

#[tokio::test]
async fn sled_never_spills_pages_into_files() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    for n in 10..40 {
        store.create(new_run(n)).await.expect("created");
        let len = usize::try_from(n).expect("small") * 20_000;
        store.append(append(n, 1, len)).await.expect("appended");
        store.append(ending(n, 2)).await.expect("ended");
    }
    store.check().await.expect("sound");
    store.close().await.expect("closed");
    let blobs = std::fs::read_dir(closed.path.join("blobs")).expect("readable");
    assert_eq!(blobs.count(), 0);
}

#[tokio::test]
async fn a_write_that_is_too_large_is_refused_and_the_store_goes_on() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    let claim = store.claim(header(2).run, 0).await.expect("claimed");
    let mut large = append(2, 4, super::MAX_APPEND_BYTES + 1);
    large.epoch = claim.expect("there").epoch;
    let refused = store.append(large.clone()).await;
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    assert_eq!(store.failure(), None);
    large.frames = Bytes::from(vec![3; 20_000_000]).into();
    store.append(large).await.expect("a large one is taken");
    let frames = store.frames(header(2).run, 4, 1).await.expect("readable");
    assert_eq!(frames[0].len(), 20_000_000);
    store.check().await.expect("sound");
    drop(store);
    let store = closed.open().expect("it opens");
    let frames = store.frames(header(2).run, 4, 1).await.expect("readable");
    assert!(frames[0] == vec![3; 20_000_000]);
}

#[tokio::test]
async fn a_dropped_store_can_be_opened_again_at_once() {
    let closed = Closed::new().await;
    for _ in 0..30 {
        let store = closed.open().expect("the directory was released");
        let claim = store.claim(header(2).run, 0).await.expect("claimed");
        let claim = claim.expect("there");
        let next = claim.frames.len() as u64;
        let mut one = append(2, next, 50);
        one.epoch = claim.epoch;
        drop(store.append(one));
    }
    let store = closed.open().expect("it opens");
    let frames = store.frames(header(2).run, 0, 100).await.expect("readable");
    assert_eq!(
        frames.len(),
        34,
        "what was queued before the drop was written"
    );
}

#[tokio::test]
async fn a_store_that_failed_says_why_and_is_opened_again_beside_it_with_all_it_acknowledged() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    let claim = store.claim(header(2).run, 0).await.expect("claimed");
    let claim = claim.expect("there");
    let mut one = append(2, claim.frames.len() as u64, 50);
    one.epoch = claim.epoch;
    let before = store.counts();
    store.append(one.clone()).await.expect("acknowledged");
    let after = store.counts();
    assert_eq!(after.writes - before.writes, 1);
    assert!(after.syncs > before.syncs && after.bytes - before.bytes > 50);
    let failed = store.failed();
    for message in ["the first", "a consequence"] {
        store.shared.fail(&StoreError::Io {
            operation: "syncing".into(),
            message: message.into(),
        });
    }
    assert_eq!(failed.await, "syncing failed: the first");
    one.first_seq += 1;
    let refused = store.append(one.clone()).await;
    let error = "syncing failed: the first";
    assert!(
        matches!(&refused, Err(StoreError::Failed { error: said }) if said == error),
        "{refused:?}"
    );
    let again = store.open_again().await.expect("it opens");
    assert!(!again.stopped_cleanly());
    let claim = again.claim(header(2).run, 0).await.expect("claimed");
    let claim = claim.expect("there");
    assert_eq!(claim.frames.len() as u64, one.first_seq);
    one.epoch = claim.epoch;
    again.append(one).await.expect("it goes on");
    assert_eq!(again.failure(), None);
    assert!(store.failure().is_some(), "the old one stays as it is");
}
