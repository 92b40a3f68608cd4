//! When sled's file is synced: seen by what the database remembers of its last sync.

use super::super::database::Settings;
use super::*;

fn database() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = Settings {
        cache_bytes: 1 << 20,
        skip_fdatasync: false,
        log_file_bytes: super::super::log::FILE_SIZE,
        write_again: false,
    };
    let database = Database::open(directory.path(), &settings).expect("sled opens");
    database.put_down().expect("synced");
    (directory, database)
}

fn unsynced(database: &Database) -> u64 {
    database.by_reading.load(Ordering::Acquire)
}

#[test]
fn what_reading_wrote_is_synced_once_it_is_much() {
    let (_directory, database) = database();
    database.by_reading.store(MAX_BY_READING, Ordering::Release);
    database.settle_after_reading().expect("looked");
    assert_eq!(unsynced(&database), MAX_BY_READING, "not yet");
    database.by_reading.fetch_add(1, Ordering::AcqRel);
    database.settle_after_reading().expect("synced");
    assert_eq!(unsynced(&database), 0);
}

#[test]
fn what_sled_wrote_counts_as_unsynced() {
    let (_directory, database) = database();
    let before = unsynced(&database);
    let written = database.guard("writing", || database.sled.insert("key", vec![7; 2_000]));
    written.expect("sled takes it");
    database.settle_after_reading().expect("looked");
    assert!(
        unsynced(&database) >= before + 2_000,
        "{}",
        unsynced(&database)
    );
}

#[test]
fn a_look_that_others_write_beside_syncs_nothing() {
    let (_directory, database) = database();
    let writing = database.committing.lock();
    database
        .by_reading
        .store(2 * MAX_BY_READING, Ordering::Release);
    database.settle_after_reading().expect("left to the writer");
    assert_eq!(unsynced(&database), 2 * MAX_BY_READING);
    drop(writing);
    database.settle_after_reading().expect("synced");
    assert_eq!(unsynced(&database), 0);
}

#[test]
fn before_a_batch_all_is_synced_even_what_sled_does_not_tell_of() {
    let (_directory, database) = database();
    let synced_at = || database.synced_at.load(Ordering::Acquire);
    database.by_reading.store(1, Ordering::Release);
    database.settle(0).expect("synced");
    assert_eq!(unsynced(&database), 0, "one byte is too much");
    // As if sled had written without saying so.
    database.synced_at.store(1, Ordering::Release);
    database.settle(MAX_BY_READING).expect("looked");
    assert_eq!(synced_at(), 1, "reading alone does not look at the file");
    database.settle(0).expect("synced");
    let changed_at = database.changed_at().expect("measured");
    assert_eq!(synced_at(), changed_at);
    let metadata = database.metadata().expect("measured");
    let modified = metadata.modified().expect("known");
    let since = modified.duration_since(std::time::UNIX_EPOCH);
    let nanos = since.expect("after 1970").as_nanos();
    assert_eq!(u128::try_from(changed_at).expect("positive"), nanos);
}

#[test]
fn a_batch_is_on_the_disk_when_it_is_acknowledged() {
    let (_directory, database) = database();
    database.synced_at.store(1, Ordering::Release);
    let write = |n: u8| (vec![b'k', n], Some(vec![n; 100]));
    database
        .commit((0..10).map(write).collect())
        .expect("committed");
    database
        .commit(vec![(vec![b'k', 3], None)])
        .expect("committed");
    let changed_at = database.changed_at().expect("measured");
    assert_eq!(database.synced_at.load(Ordering::Acquire), changed_at);
    assert_eq!(unsynced(&database), 0);
    let read = |n: u8| database.sled.get([b'k', n]).expect("readable");
    assert_eq!(read(2).as_deref(), Some(&[2; 100][..]));
    assert_eq!(read(3), None);
}
