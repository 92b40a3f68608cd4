//! What must last while files of the log go: letters, notes, sleep, tombstones; and what
//! must be noticed if sled loses it.

use bytes::Bytes;

use super::keys::{self, Key};
use super::plan::put;
use super::segment::{Tombstone, pack};
use super::table::MAX_TAIL_BYTES;
use super::tests::{Closed, append, ending, header, new_run};
use super::{SledOptions, SledStore};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{
    Changes, Commit, Committed, Durability, EndKind, Epoch, Letter, NewRun, NoteChange, NoteKey,
    Released, RunState, Sleeper, Store, StoreError,
};

fn note(name: &str) -> NoteKey {
    NoteKey::new(2, &[name.as_bytes()])
}

async fn commit(
    store: &SledStore,
    post: &[(u64, &'static str)],
    notes: &[(NoteKey, &'static str)],
) {
    let post = post.iter().map(|(n, body)| Letter {
        to: header(*n).run,
        body: Bytes::from_static(body.as_bytes()),
    });
    let notes = notes.iter().map(|(key, value)| NoteChange {
        key: key.clone(),
        value: Some(Bytes::from_static(value.as_bytes())),
    });
    let changes = Changes {
        post: post.collect(),
        notes: notes.collect(),
        ..Changes::default()
    };
    let guards = Vec::new();
    let done = store.commit(Commit { guards, changes }).await;
    assert_eq!(done.expect("an answer"), Committed::Done);
}

async fn put_to_sleep(store: &SledStore, n: u64, epoch: Epoch) {
    let wake_at = Some(Timestamp::from_micros(n));
    let released = store.put_to_sleep(header(n).run, epoch, wake_at).await;
    assert_eq!(released.expect("an answer"), Released::Asleep);
}

async fn claim(store: &SledStore, n: u64) -> Epoch {
    let claim = store.claim(header(n).run, 0).await.expect("claimed");
    claim.expect("there").epoch
}

/// Runs until every file of the log that is there now is gone.
async fn outlive_the_log(closed: &Closed, store: &SledStore, from: u64) {
    let newest = || {
        let files = std::fs::read_dir(closed.path.join("log")).expect("readable");
        let names = files.map(|file| file.expect("readable").file_name());
        let firsts = names.filter_map(|name| super::log::first_commit(&name.to_string_lossy()));
        firsts.collect::<Vec<u64>>()
    };
    let before = newest().into_iter().max().expect("there is a log");
    for n in from.. {
        store.create(new_run(n)).await.expect("created");
        store.append(append(n, 1, 600_000)).await.expect("appended");
        store.append(ending(n, 2)).await.expect("ended");
        if newest().iter().all(|first| *first > before) {
            return;
        }
        assert!(n < from + 300, "the log never moves on");
    }
}

#[tokio::test]
async fn a_file_of_the_log_that_was_begun_and_never_written_to_is_no_loss() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let open = || SledStore::open(&path, SledOptions::default());
    let store = open().expect("it opens");
    store.create(new_run(10)).await.expect("created");
    store.append(ending(10, 1)).await.expect("ended");
    store.settled();
    let next = store.shared.lock().ledger.commit() + 1;
    store.close().await.expect("closed");
    drop(store);
    // What a process leaves that dies right after it has begun a file.
    let begun = super::log::file_path(&path.join("log"), next);
    std::fs::write(begun, []).expect("a file can be made");
    // Processes that commit nothing, and have time to archive and to remove files.
    for _ in 0..3 {
        let store = open().expect("nothing is lost");
        store.settled();
        let frames = store.frames(header(10).run, 0, 10).await;
        assert_eq!(frames.expect("readable").len(), 2);
        store.close().await.expect("closed");
    }
    let store = open().expect("nothing is lost");
    store.create(new_run(11)).await.expect("created");
    store.close().await.expect("closed");
    let store = open().expect("it goes on in that file");
    let frames = store.frames(header(11).run, 0, 10).await;
    assert_eq!(frames.expect("readable").len(), 1);
}

#[tokio::test]
async fn what_is_idle_lasts_and_does_not_keep_the_log() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    // A letter to a run that is awake, one to a run that sleeps, two of which one was taken, a
    // note, a run that was woken, and one that was taken up again.
    for n in 10..16 {
        store.create(new_run(n)).await.expect("created");
    }
    for n in [11, 13] {
        put_to_sleep(&store, n, Epoch::FIRST).await;
    }
    store.settled();
    commit(
        &store,
        &[(10, "a"), (11, "b"), (12, "c"), (12, "d")],
        &[(note("x"), "1")],
    )
    .await;
    let mut taking = append(12, 1, 9);
    taking.taken = 1;
    store.append(taking).await.expect("taken");
    claim(&store, 13).await;
    let mut failed = ending(14, 1);
    failed.end = failed.end.map(|end| crate::store::RunEnd {
        kind: EndKind::Failed,
        ..end
    });
    store.append(failed).await.expect("failed");
    store.settled();
    let reopening = crate::store::Reopening {
        run: header(14).run,
        seq: 2,
        frame: Bytes::from_static(b"again"),
        guards: Vec::new(),
        notes: Vec::new(),
        letters: Vec::new(),
    };
    store.revive(reopening).await.expect("revived");
    outlive_the_log(&closed, &store, 100).await;
    store.check().await.expect("sound");
    drop(store);
    for _ in 0..2 {
        let store = closed.open().expect("it opens");
        for (n, bodies) in [
            (10, vec![(0, "a")]),
            (11, vec![(0, "b")]),
            (12, vec![(1, "d")]),
        ] {
            let mail = store.mail(header(n).run, 0).await.expect("readable");
            let mail: Vec<(u64, &[u8])> = mail.iter().map(|m| (m.number, &*m.body)).collect();
            let bodies: Vec<_> = bodies.iter().map(|(n, b)| (*n, b.as_bytes())).collect();
            assert_eq!(mail, bodies, "run {n}");
        }
        let value = store.note(note("x")).await.expect("readable");
        assert_eq!(value.as_deref(), Some(&b"1"[..]));
        let state = |n| {
            let found = store.header(header(n).run);
            async { found.await.expect("readable").expect("there").state }
        };
        assert!(matches!(state(11).await, RunState::Asleep { .. }));
        assert_eq!(state(13).await, RunState::Active, "it was woken");
        assert_eq!(state(14).await, RunState::Active, "it was revived");
        let frames = store.frames(header(14).run, 0, 10).await.expect("readable");
        assert_eq!(frames.len(), 3);
        store.check().await.expect("sound");
    }
}

#[tokio::test]
async fn sleeping_runs_are_not_in_memory_also_after_opening() {
    const RUNS: u64 = 300;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let open = || SledStore::open(&path, super::SledOptions::default()).expect("it opens");
    let store = open();
    for n in 0..RUNS {
        let mut run: NewRun = new_run(n);
        if n % 2 == 0 {
            let wake_at = Some(Timestamp::from_micros(n));
            run.header.state = RunState::Asleep { wake_at };
        }
        store.create(run).await.expect("created");
        if n % 2 == 1 {
            put_to_sleep(&store, n, Epoch::FIRST).await;
        }
    }
    store.settled();
    let in_memory = |store: &SledStore| store.shared.lock().table.runs.len();
    assert_eq!(in_memory(&store), 0);
    drop(store);
    let store = open();
    assert_eq!(in_memory(&store), 0, "none is read on opening");
    let all = store.asleep(None, 1_000).await.expect("listed");
    assert_eq!(all.len() as u64, RUNS);
    assert!(all.is_sorted_by_key(|sleeper: &Sleeper| sleeper.wake_at));
    // Awake, and asleep again.
    let epoch = claim(&store, 5).await;
    assert_eq!(in_memory(&store), 1);
    put_to_sleep(&store, 5, epoch).await;
    store.settled();
    assert_eq!(in_memory(&store), 0);
    store.check().await.expect("sound");
}

#[tokio::test]
async fn a_tombstone_goes_once_the_log_begins_behind_it() {
    let closed = Closed::new().await;
    closed.settle().await;
    let store = closed.open().expect("it opens");
    let run = header(4).run;
    let own = NoteKey::of_run(run, &[b"own"]);
    commit(&store, &[], &[(own.clone(), "1")]).await;
    assert_eq!(store.delete(vec![run]).await.expect("an answer"), 1);
    let tombstones = |store: &SledStore| {
        let guard = store.shared.database();
        let database = guard.as_ref().expect("open");
        database.held(&[keys::DELETED], 10).expect("readable").len()
    };
    assert_eq!(tombstones(&store), 1);
    drop(store);
    let store = closed.open().expect("it opens");
    assert_eq!(store.header(run).await.expect("readable"), None);
    assert_eq!(store.note(own.clone()).await.expect("readable"), None);
    outlive_the_log(&closed, &store, 100).await;
    store.create(new_run(4)).await.expect("the id is free");
    store.append(ending(4, 1)).await.expect("ended");
    store.settled();
    assert_eq!(tombstones(&store), 0);
    drop(store);
    let store = closed.open().expect("it opens");
    let frames = store.frames(run, 0, 10).await.expect("readable");
    assert_eq!(frames.len(), 2, "the new run");
    assert_eq!(store.note(own).await.expect("readable"), None);
}

#[tokio::test]
async fn a_deletion_that_was_cut_short_is_finished_before_anything_else() {
    let closed = Closed::new().await;
    closed.settle().await;
    let at = header(50).position();
    // As if the process had died after the header went and before the segments did. The
    // tombstone is older than the log, so that only its segments matter.
    closed.tamper(|database| {
        let mut writes = Vec::new();
        let frames: Vec<Bytes> = (0..200).map(|n| vec![n; 3_000].into()).collect();
        for (key, record) in pack(at, 0, frames.iter()) {
            put(&mut writes, &key, &record);
        }
        let tombstone = Tombstone {
            as_of: 0,
            segments_of: Some(at.created_at),
        };
        put(&mut writes, &Key::deleted(at.run), &tombstone.encode());
        let mut archive = super::reads::archive(database).expect("readable");
        archive
            .deleted
            .add(super::segment::deleted_member(at.run, 0));
        put(&mut writes, &Key::archive(), &archive.encode());
        writes
    });
    let store = closed.open().expect("it opens");
    store.create(new_run(50)).await.expect("created");
    store.append(append(50, 1, 5_000)).await.expect("appended");
    store.settled();
    let frames = store.frames(at.run, 0, 100).await.expect("readable");
    let lengths: Vec<usize> = frames.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [100, 5_000]);
    let guard = store.shared.database();
    let database = guard.as_ref().expect("open");
    let left = database.held(&Key::segments(at), 1_000).expect("readable");
    assert!(left.len() < 5, "{}", left.len());
}

#[tokio::test]
async fn many_long_runs_that_are_deleted_together_leave_nothing_behind() {
    const RUNS: u64 = 40;
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    let runs = || 100..100 + RUNS;
    for n in runs() {
        // Some forty segments each: far more than go in one batch.
        store.create(new_run(n)).await.expect("created");
        for seq in 1..40 {
            let mut one = append(n, seq, 9_000);
            one.durability = Durability::Buffered;
            store.append(one).await.expect("appended");
        }
        store.append(ending(n, 40)).await.expect("ended");
    }
    store.settled();
    let ids = runs().map(|n| header(n).run).collect();
    assert_eq!(store.delete(ids).await.expect("an answer"), RUNS);
    store.settled();
    store.check().await.expect("sound");
    let nothing_is_left = |store: &SledStore| {
        let guard = store.shared.database();
        let database = guard.as_ref().expect("open");
        for n in runs() {
            let at = header(n).position();
            let left = database.held(&Key::segments(at), 10).expect("readable");
            assert_eq!(left.len(), 0, "run {n}");
        }
    };
    nothing_is_left(&store);
    drop(store);
    let store = closed.open().expect("it opens");
    nothing_is_left(&store);
    for n in runs() {
        let found = store.header(header(n).run).await.expect("readable");
        assert_eq!(found, None, "run {n}");
    }
    store.check().await.expect("sound");
}

/// Makes a store with a sleeper, a note, a letter and a tombstone in the database.
async fn furnished() -> (Closed, RunId) {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    store.create(new_run(20)).await.expect("created");
    // Too long to sleep in the log.
    let long = append(20, 1, super::doze::MAX_BYTES);
    store.append(long).await.expect("appended");
    put_to_sleep(&store, 20, Epoch::FIRST).await;
    commit(&store, &[(1, "letter")], &[(note("x"), "1")]).await;
    let epoch = claim(&store, 1).await;
    let mut long = append(1, 10, MAX_TAIL_BYTES + 1);
    long.epoch = epoch;
    store.append(long).await.expect("appended");
    store.settled();
    assert_eq!(
        store.delete(vec![header(4).run]).await.expect("an answer"),
        1
    );
    store.settled();
    store.check().await.expect("sound");
    store.close().await.expect("closed");
    (closed, header(20).run)
}

#[tokio::test]
async fn a_lost_sleeper_or_note_is_found_by_the_check() {
    for lost in ["sleeper", "note"] {
        let (closed, sleeper) = furnished().await;
        closed.tamper(|_| {
            let wake_at = Some(Timestamp::from_micros(20));
            match lost {
                "sleeper" => vec![(Key::wake(wake_at, sleeper).piece(0), None)],
                _ => vec![(Key::note(&note("x")).piece(0), None)],
            }
        });
        let store = closed.open().expect("opening does not look at them");
        // Archives may be made while it looks; then it looks again.
        let found = store.check().await;
        assert!(
            matches!(found, Err(StoreError::Corrupt { .. })),
            "{lost}: {found:?}"
        );
    }
}

#[tokio::test]
async fn a_lost_letter_or_tombstone_is_damage() {
    for lost in ["letter 0", "the tombstones"] {
        let (closed, _) = furnished().await;
        closed.tamper(|_| {
            let key = match lost {
                "letter 0" => Key::letter(header(1).run, 0),
                _ => Key::deleted(header(4).run),
            };
            vec![(key.piece(0), None)]
        });
        closed.expect_corrupt(lost);
    }
}
