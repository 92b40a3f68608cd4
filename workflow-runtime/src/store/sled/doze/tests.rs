//! Runs that sleep in the log: where they are, what they leave behind, and what happens to them meanwhile.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::super::change::Written;
use super::super::group::Group;
use super::super::op::Op;
use super::super::salvage::Salvage;
use super::super::tests::{append, ending, header, new_run};
use super::super::{SledOptions, SledStore, log};
use super::*;
use crate::store::{
    Changes, Commit, Committed, Creation, Epoch, Letter, Released, RunHeader, RunOrder, RunQuery,
    Store, StoreError,
};

/// So small that a few hundred frames fill the log, which is four files long.
const LOG_FILE: u64 = 16 * 1024;

struct Directory {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Directory {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store");
        Self {
            _directory: directory,
            path,
        }
    }

    fn open(&self) -> SledStore {
        SledStore::open(&self.path, SledOptions::default()).expect("it opens")
    }

    fn open_small(&self) -> SledStore {
        let options = SledOptions::default().log_file_bytes_for_tests(LOG_FILE);
        SledStore::open(&self.path, options).expect("it opens")
    }
}

async fn put_to_sleep(store: &SledStore, n: u64, epoch: Epoch) {
    let wake_at = Some(Timestamp::from_micros(1_000 - n));
    let released = store.put_to_sleep(header(n).run, epoch, wake_at).await;
    assert_eq!(released.expect("an answer"), Released::Asleep);
}

async fn create_asleep(store: &SledStore, n: u64) {
    store.create(new_run(n)).await.expect("created");
    store.append(append(n, 1, 50)).await.expect("appended");
    put_to_sleep(store, n, Epoch::FIRST).await;
}

async fn claim(store: &SledStore, n: u64, frames: usize) -> Epoch {
    let claim = store.claim(header(n).run, 0).await.expect("claimed");
    let claim = claim.expect("there");
    assert_eq!(claim.frames.len(), frames, "run {n}");
    claim.epoch
}

async fn post(store: &SledStore, n: u64) -> Committed {
    let changes = Changes {
        post: vec![Letter {
            to: header(n).run,
            body: Bytes::from_static(b"letter"),
        }],
        ..Changes::default()
    };
    let guards = Vec::new();
    let done = store.commit(Commit { guards, changes }).await;
    done.expect("an answer")
}

/// How many runs are in memory, sleep in the log, and are in the database.
fn counts(store: &SledStore) -> (usize, usize, u64) {
    let guard = store.shared.database();
    let database = guard.as_ref().expect("open");
    let archive = super::super::reads::archive(database).expect("readable");
    let state = store.shared.lock();
    let table = &state.table;
    (
        table.runs.len(),
        table.dozing.iter().count(),
        archive.shelved,
    )
}

/// Writes until every file of the log is gone that is there now.
async fn outlive_the_log(store: &SledStore, path: &Path, n: u64) {
    let firsts = || -> Vec<u64> {
        let files = fs::read_dir(path.join("log")).expect("readable");
        let names = files.map(|file| file.expect("readable").file_name());
        names
            .filter_map(|name| log::first_commit(&name.to_string_lossy()))
            .collect()
    };
    let newest = firsts().into_iter().max().expect("there is a log");
    store.create(new_run(n)).await.expect("created");
    for seq in 1.. {
        store.append(append(n, seq, 2_000)).await.expect("appended");
        if firsts().iter().all(|first| *first > newest) {
            return;
        }
        assert!(seq < 2_000, "the log never moves on");
    }
}

#[tokio::test]
async fn a_run_that_falls_asleep_is_in_the_log_and_in_neither_memory_nor_the_database() {
    let directory = Directory::new();
    let store = directory.open();
    for n in 1..=5 {
        create_asleep(&store, n).await;
    }
    store.settled();
    assert_eq!(counts(&store), (0, 5, 0));
    store.check().await.expect("sound");
    for n in 1..=5 {
        let found = store.header(header(n).run).await.expect("readable");
        let state = found.expect("there").state;
        assert!(matches!(state, RunState::Asleep { .. }), "run {n}");
        let frames = store.frames(header(n).run, 0, 10).await.expect("readable");
        assert_eq!(frames.iter().map(Bytes::len).collect::<Vec<_>>(), [100, 50]);
        let frames = store.frames(header(n).run, 1, 1).await.expect("readable");
        assert_eq!(frames.len(), 1);
    }
    let unfinished = store.unfinished().await.expect("readable");
    assert!(unfinished.is_empty(), "nobody has to look after them");
    drop(store);
    // As a process that is killed leaves it, and as one that stops.
    for _ in 0..2 {
        drop(directory.open());
        let store = directory.open();
        assert_eq!(counts(&store), (0, 5, 0));
        store.close().await.expect("closed");
    }
}

#[tokio::test]
async fn a_run_that_slept_in_the_log_goes_on_where_it_was_and_may_sleep_there_again() {
    let directory = Directory::new();
    let store = directory.open();
    create_asleep(&store, 1).await;
    for frames in 2..10 {
        let epoch = claim(&store, 1, frames).await;
        assert_eq!(counts(&store), (1, 0, 0));
        let mut next = append(1, frames as u64, 50);
        next.epoch = epoch;
        store.append(next).await.expect("owned");
        put_to_sleep(&store, 1, epoch).await;
        assert_eq!(counts(&store), (0, 1, 0));
        if frames % 3 == 0 {
            let late = store.append(append(1, frames as u64 + 1, 50)).await;
            let is_stale = matches!(late, Err(StoreError::StaleEpoch { .. }));
            assert!(is_stale, "nobody owns it: {late:?}");
        }
    }
    store.check().await.expect("sound");
    drop(store);
    let store = directory.open();
    let epoch = claim(&store, 1, 10).await;
    let mut last = ending(1, 10);
    last.epoch = epoch;
    store.append(last).await.expect("owned");
    store.settled();
    assert_eq!(counts(&store), (0, 0, 1), "it has ended");
}

#[tokio::test]
async fn runs_that_sleep_in_the_log_move_to_the_database_before_it_is_too_long() {
    let directory = Directory::new();
    let store = directory.open_small();
    for n in 1..=20 {
        create_asleep(&store, n).await;
    }
    assert_eq!(counts(&store).1, 20);
    outlive_the_log(&store, &directory.path, 100).await;
    store.settled();
    let (_, dozing, shelved) = counts(&store);
    assert_eq!((dozing, shelved), (0, 20));
    store.check().await.expect("sound");
    let asleep = store.asleep(None, 100).await.expect("readable");
    assert_eq!(asleep.len(), 20);
    for n in 1..=20 {
        claim(&store, n, 2).await;
    }
}

/// A store in whose log run 1 sleeps with 30 frames, of which the file with the first ones is gone.
async fn without_beginning() -> Directory {
    let directory = Directory::new();
    let store = directory.open_small();
    create_asleep(&store, 1).await;
    // Woken, told of and asleep again while the log moves on: old files go, each with an older record of it.
    for frames in 2..30 {
        let epoch = claim(&store, 1, frames).await;
        let mut next = append(1, frames as u64, 20);
        next.epoch = epoch;
        store.append(next).await.expect("owned");
        put_to_sleep(&store, 1, epoch).await;
        let other = 1_000 + frames as u64;
        store.create(new_run(other)).await.expect("created");
        store.append(append(other, 1, 5_000)).await.expect("owned");
        store.append(ending(other, 2)).await.expect("ended");
        store.settled();
    }
    let first = log::file_path(&log::directory(&directory.path), 0);
    assert!(!first.exists(), "the file with its beginning is gone");
    assert!(store.shared.lock().table.dozing.contains(header(1).run));
    directory
}

#[tokio::test]
async fn what_the_log_tells_of_a_run_whose_beginning_is_gone_counts_from_where_it_fell_asleep() {
    let directory = without_beginning().await;
    for _ in 0..2 {
        drop(directory.open_small());
        let store = directory.open_small();
        let frames = store.frames(header(1).run, 0, 100).await;
        assert_eq!(frames.expect("readable").len(), 30);
        store.check().await.expect("sound");
    }
}

#[tokio::test]
async fn a_repair_finds_all_of_a_run_that_sleeps_in_the_log_with_or_without_the_database() {
    for without in [false, true] {
        let directory = without_beginning().await;
        if without {
            fs::write(directory.path.join("db"), vec![0; 100_000]).expect("written");
        }
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let salvage = Salvage::begin(&directory.path).expect("nobody has it open");
        let found = salvage.read(&directory.path, scratch.path());
        let found = found.expect("readable");
        let run = &found.runs[&header(1).run];
        assert_eq!(run.frames.len(), 30, "without the database: {without}");
        let state = &run.header.as_ref().expect("it has a header").state;
        assert!(matches!(state, RunState::Asleep { .. }), "{state:?}");
        assert_eq!(found.damage.is_empty(), !without, "{:?}", found.damage);
    }
}

#[tokio::test]
async fn a_letter_to_a_run_that_sleeps_in_the_log_brings_it_back_into_memory() {
    let directory = Directory::new();
    let store = directory.open();
    create_asleep(&store, 1).await;
    assert_eq!(post(&store, 1).await, Committed::Done);
    assert_eq!(counts(&store), (1, 0, 0));
    let due = store.asleep(None, 10).await.expect("readable");
    assert_eq!(due[0].wake_at, Some(Timestamp::default()), "it is due");
    let epoch = claim(&store, 1, 2).await;
    let mut taking = append(1, 2, 10);
    (taking.epoch, taking.taken) = (epoch, 1);
    store.append(taking).await.expect("owned");
    put_to_sleep(&store, 1, epoch).await;
    assert_eq!(counts(&store), (0, 1, 0));
    // The number of the next letter sleeps with it.
    drop(store);
    let store = directory.open();
    assert_eq!(post(&store, 1).await, Committed::Done);
    let mail = store.mail(header(1).run, 0).await.expect("readable");
    assert_eq!(mail[0].number, 1);
}

/// Both are in one group only now and then, so the group is made here.
#[tokio::test]
async fn a_letter_in_the_group_in_which_a_run_falls_asleep_keeps_it_in_memory() {
    let directory = Directory::new();
    let store = directory.open();
    store.create(new_run(1)).await.expect("created");
    let run = header(1).run;
    let (released, _keep) = oneshot::channel();
    let (committed, _keep_too) = oneshot::channel();
    let mut commit = Commit::default();
    commit.changes.post.push(Letter {
        to: run,
        body: Bytes::from_static(b"letter"),
    });
    let mut ops = vec![
        Op::Sleep(run, Epoch::FIRST, None, released),
        Op::Commit(commit, committed),
    ];
    let mut group = Group::default();
    group.gather(&store.shared, &mut ops).expect("sound");
    assert!(group.dozes, "it was about to");
    let mut state = store.shared.lock();
    let state = &mut *state;
    let block = Written { commit: 2, at: 0 };
    for change in group.changes.drain(..) {
        change.apply(&mut state.table, &mut state.ledger, block);
    }
    let live = state.table.runs.get(&run).expect("it is in memory");
    assert!(live.asleep() && live.has_mail());
}

#[tokio::test]
async fn an_id_that_sleeps_in_the_log_is_taken() {
    let directory = Directory::new();
    let store = directory.open();
    create_asleep(&store, 1).await;
    let again = store.create(new_run(1)).await.expect("an answer");
    assert!(matches!(again, Creation::Exists(_)), "{again:?}");
    assert_eq!(counts(&store), (0, 1, 0), "it was not disturbed");
}

#[tokio::test]
async fn runs_that_sleep_in_the_log_are_listed_with_all_others_in_order() {
    let directory = Directory::new();
    let store = directory.open();
    // Every third ends, every third sleeps, every third is awake; two namespaces.
    for n in 0..30 {
        let mut run = new_run(n);
        if n % 2 == 1 {
            run.header.namespace = "other".into();
        }
        store.create(run).await.expect("created");
        match n % 3 {
            0 => store.append(ending(n, 1)).await.expect("ended"),
            1 => put_to_sleep(&store, n, Epoch::FIRST).await,
            _ => {}
        }
    }
    store.settled();
    assert_eq!(counts(&store), (10, 10, 10));
    for order in [RunOrder::NewestFirst, RunOrder::OldestFirst] {
        for namespace in [None, Some("other")] {
            let mut query = RunQuery {
                namespace: namespace.map(Into::into),
                order,
                limit: 4,
                ..RunQuery::default()
            };
            let mut found = Vec::new();
            loop {
                let page = store.list(query.clone()).await.expect("readable");
                query.after = page.last().map(RunHeader::position);
                found.extend(page.iter().map(|header| header.created_at.as_micros()));
                if page.len() < query.limit {
                    break;
                }
            }
            let mut expected: Vec<u64> = (0..30).collect();
            expected.retain(|n| namespace.is_none() || n % 2 == 1);
            if order == RunOrder::NewestFirst {
                expected.reverse();
            }
            assert_eq!(found, expected, "{order:?} {namespace:?}");
        }
    }
    let mut woken = Vec::new();
    let mut after = None;
    loop {
        let page = store.asleep(after, 3).await.expect("readable");
        woken.extend(page.iter().map(|sleeper| sleeper.run));
        after = page.last().cloned();
        if page.len() < 3 {
            break;
        }
    }
    let expected: Vec<_> = (0..30).rev().filter(|n| n % 3 == 1).collect();
    let expected: Vec<_> = expected.into_iter().map(|n| header(n).run).collect();
    assert_eq!(woken, expected, "soonest first");
}

#[tokio::test]
async fn a_run_that_has_more_than_the_log_holds_sleeps_in_the_database() {
    let directory = Directory::new();
    let store = directory.open();
    store.create(new_run(1)).await.expect("created");
    let long = append(1, 1, MAX_BYTES);
    store.append(long).await.expect("appended");
    put_to_sleep(&store, 1, Epoch::FIRST).await;
    store.settled();
    assert_eq!(counts(&store), (0, 0, 1));
    // And so does one of which the database has something already.
    let epoch = claim(&store, 1, 2).await;
    put_to_sleep(&store, 1, epoch).await;
    store.settled();
    assert_eq!(counts(&store), (0, 0, 1));
    store.check().await.expect("sound");
}

#[tokio::test]
async fn a_damaged_record_is_named_and_others_are_read() {
    let directory = Directory::new();
    let store = directory.open();
    create_asleep(&store, 1).await;
    create_asleep(&store, 2).await;
    let place = store.shared.lock().table.dozing.place(header(1).run);
    let place = place.expect("it sleeps there");
    let path = log::file_path(&log::directory(&directory.path), 0);
    let file = fs::File::options().write(true).read(true).open(path);
    let file = file.expect("there");
    let at = u64::from(place.at) + u64::from(place.len) - 1;
    let mut last = [0];
    file.read_exact_at(&mut last, at).expect("readable");
    file.write_all_at(&[last[0] ^ 1], at).expect("writable");
    let run = header(1).run;
    for refused in [
        store.claim(run, 0).await.map(|_| ()),
        store.header(run).await.map(|_| ()),
        store.check().await,
    ] {
        assert!(
            matches!(&refused, Err(StoreError::Corrupt { place, .. }) if place.contains(&run.to_string())),
            "{refused:?}"
        );
    }
    claim(&store, 2, 2).await;
}

#[tokio::test]
async fn a_store_of_format_2_becomes_one_of_format_3_before_a_run_sleeps_in_its_log() {
    let directory = Directory::new();
    directory.open().close().await.expect("closed");
    let format = directory.path.join("FORMAT");
    fs::write(&format, "workflow-runtime store, format 2\n").expect("written");
    let store = directory.open();
    let written = || fs::read_to_string(&format).expect("there");
    store.create(new_run(1)).await.expect("created");
    assert!(written().ends_with("2\n"), "nothing of it is needed yet");
    put_to_sleep(&store, 1, Epoch::FIRST).await;
    assert!(written().ends_with("3\n"), "{}", written());
}

fn slumber() -> Slumber {
    let mut header = header(7);
    header.state = RunState::Asleep {
        wake_at: Some(Timestamp::from_micros(9)),
    };
    Slumber {
        stored: Stored {
            header,
            as_of: 4,
            frames: 2,
            kept_from: 0,
            taken: 1,
            next_letter: 3,
        },
        frames: vec![Bytes::from_static(b"first"), Bytes::new()],
    }
}

/// For ever: a change here makes existing stores unreadable.
#[test]
fn the_bytes_of_a_record_are_frozen() {
    let bytes = slumber().encode();
    assert_eq!(Slumber::decode(&bytes.clone().into()), Ok(slumber()));
    let hash = blake3::hash(&bytes).to_hex();
    assert_eq!(
        (bytes.len(), hash.as_str()),
        (
            114,
            "b82ff907afd6e99a21c8226644d894a8a75271b62e474391cbe370498ec488eb"
        )
    );
}

#[test]
fn no_flipped_bit_and_no_cut_passes_for_a_record() {
    let bytes = slumber().encode();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        assert!(Slumber::decode(&flipped.into()).is_err(), "byte {at}");
        let cut = Bytes::copy_from_slice(&bytes[..at]);
        assert!(Slumber::decode(&cut).is_err(), "{at} bytes");
    }
}

#[test]
fn a_record_of_a_run_that_does_not_sleep_or_is_not_whole_is_refused() {
    for wrong in ["awake", "short", "empty", "forgetful"] {
        let mut slumber = slumber();
        match wrong {
            "awake" => slumber.stored.header.state = RunState::Active,
            "short" => slumber.stored.frames = 3,
            "empty" => (slumber.stored.frames, slumber.frames) = (0, Vec::new()),
            _ => slumber.stored.kept_from = 2,
        }
        let record = slumber.encode().into();
        assert!(Slumber::decode(&record).is_err(), "{wrong}");
    }
}
