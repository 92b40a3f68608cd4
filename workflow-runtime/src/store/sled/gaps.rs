//! Journals with a gap in the embedded store: what reaches the database, what is removed from it, what is not believed.

use super::bytes::Census;
use super::database::{Database, Settings};
use super::keys::Key;
use super::plan::put;
use super::reads;
use super::segment::{Stored, live_member};
use super::table::{Entry, MAX_TAIL_BYTES, Place};
use super::tests::{append, header, new_run};
use super::{SledOptions, SledStore};
use crate::store::{Epoch, Released, Store, StoreError};

fn open(path: &std::path::Path) -> SledStore {
    SledStore::open(path, SledOptions::default()).expect("it opens")
}

impl SledStore {
    /// How many pieces of segments the database has of a run.
    fn segments(&self, n: u64) -> usize {
        let prefix = Key::segments(header(n).position());
        let keys = self.shared.read(|database| database.held(&prefix, 100_000));
        keys.expect("readable").len()
    }
}

#[tokio::test]
async fn what_is_forgotten_before_it_was_archived_never_reaches_the_database() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = open(&path);
    store.create(new_run(1)).await.expect("created");
    for seq in 1..3_000 {
        let mut one = append(1, seq, 100);
        one.durability = crate::store::Durability::Buffered;
        store.append(one).await.expect("appended");
        if seq % 20 == 0 {
            let forgotten = store.forget(header(1).run, Epoch::FIRST, seq - 5).await;
            forgotten.expect("an answer");
        }
    }
    store.settled();
    // The log's first file is left for a prepared one; what was needed of it then has moved, and nothing else.
    let moved = store.segments(1);
    // On a busy machine the archiver comes to it more than once; all of it would be some 25.
    assert!(moved <= 8, "{moved} of 3,000 records of 100 bytes");
    store.close().await.expect("closed");
    // A clean stop leaves the log behind: what is left of the run moved.
    let log: u64 = std::fs::read_dir(path.join("log"))
        .expect("readable")
        .map(|file| file.expect("there").metadata().expect("there").len())
        .sum();
    assert!(log < 1_000, "{log} bytes of log");
    let store = open(&path);
    assert_eq!(store.segments(1), 2, "before the gap and behind it");
    let kept = store.journal(header(1).run).await.expect("readable");
    assert_eq!((kept.kept_from, kept.frames.len()), (2_975, 2 + 25));
    store.check().await.expect("sound");
}

#[tokio::test]
async fn segments_that_were_forgotten_are_removed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = open(&path);
    store.create(new_run(1)).await.expect("created");
    let (run, mut epoch, mut seq) = (header(1).run, Epoch::FIRST, 1);
    for _ in 0..30 {
        for _ in 0..10 {
            let mut one = append(1, seq, 1_000);
            one.epoch = epoch;
            store.append(one).await.expect("appended");
            seq += 1;
        }
        let below = seq - 4;
        store.forget(run, epoch, below).await.expect("an answer");
        let asleep = store.put_to_sleep(run, epoch, None).await;
        assert_eq!(asleep.expect("an answer"), Released::Asleep);
        store.settled();
        let claim = store.claim(run, below).await.expect("claimed");
        epoch = claim.expect("there").epoch;
        assert!(store.segments(1) < 12, "{} at {seq}", store.segments(1));
        store.check().await.expect("sound");
    }
    let kept = store.journal(run).await.expect("readable");
    assert_eq!((kept.kept_from, kept.frames.len()), (297, 2 + 4));
}

/// The log begins behind what the database has of a run, and nothing says that the run forgot what is between.
#[tokio::test]
async fn a_gap_that_nothing_explains_is_damage() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = open(&path);
    store.create(new_run(1)).await.expect("created");
    for seq in 1..10 {
        let one = append(1, seq, MAX_TAIL_BYTES / 8);
        store.append(one).await.expect("appended");
    }
    store.settled();
    store.append(append(1, 10, 50)).await.expect("appended");
    drop(store);
    let settings = Settings {
        cache_bytes: 1 << 20,
        skip_fdatasync: false,
        log_file_bytes: super::log::FILE_SIZE,
        write_again: false,
    };
    let database = Database::open(&path, &settings).expect("sled opens");
    let mut archive = reads::archive(&database).expect("there");
    let key = Key::live(header(1).run);
    let record = database.get(&key).expect("readable").expect("there");
    let mut stored = Stored::decode(&record).expect("sound");
    assert_eq!(stored.frames, 10);
    stored.frames = 9; // as if the last one had been lost between log and database
    archive.live = Census::default();
    archive.live.add(live_member(
        header(1).run,
        &Entry {
            as_of: stored.as_of,
            archived: stored.frames,
            kept_from: 0,
            letters: (stored.taken, stored.next_letter),
            place: Place::Live,
            pieces: 1,
        },
    ));
    let mut writes = Vec::new();
    put(&mut writes, &key, &stored.encode());
    put(&mut writes, &Key::archive(), &archive.encode());
    database.commit(writes).expect("written");
    database.close().expect("closed");
    match SledStore::open(&path, SledOptions::default()) {
        Err(StoreError::Corrupt { detail, .. }) => {
            assert!(detail.contains("record 10 of"), "{detail}");
            assert!(detail.contains("but record 9 is next"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}
