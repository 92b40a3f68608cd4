//! The annex: its bytes, its files, what is counted of them, and what becomes of damage.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use bytes::Bytes;

use super::super::keys::{self, Key};
use super::super::tests::{Closed, append, ending, header, new_run};
use super::super::{SledOptions, SledStore};
use super::{Entry, Files, Pointer, Tally, directory, encode, file_path, list};
use crate::ids::RunId;
use crate::store::{Store, StoreError, StoreResult};

/// How large a file of the log is in these tests. Those of the annex are four times as large.
const LOG_FILE: u64 = 16 * 1024;

impl Closed {
    /// Opens it with small files.
    fn open_small(&self) -> StoreResult<SledStore> {
        SledStore::open(
            &self.path,
            SledOptions::default().log_file_bytes_for_tests(LOG_FILE),
        )
    }

    fn annex(&self) -> PathBuf {
        directory(&self.path)
    }

    fn annex_files(&self) -> Vec<u64> {
        list(&self.annex()).expect("readable")
    }

    fn newest(&self) -> PathBuf {
        let newest = *self.annex_files().last().expect("a file");
        file_path(&self.annex(), newest)
    }
}

fn run(n: u64) -> RunId {
    header(n).run
}

/// Creates runs that end, with 2,000 bytes in segments each.
async fn finish(store: &SledStore, runs: std::ops::Range<u64>) {
    for n in runs {
        store.create(new_run(n)).await.expect("created");
        store.append(append(n, 1, 1_900)).await.expect("appended");
        store.append(ending(n, 2)).await.expect("ended");
    }
    store.settled();
}

async fn is_whole(store: &SledStore, n: u64) -> bool {
    let frames = store.frames(run(n), 0, 10).await;
    frames.is_ok_and(|frames| frames.iter().map(Bytes::len).collect::<Vec<_>>() == [100, 1_900, 10])
}

fn pointer_of(store: &SledStore, n: u64) -> Option<Pointer> {
    let guard = store.shared.database();
    let database = guard.as_ref().expect("open");
    let (_, pointer) = database
        .pieces(&Key::segment(header(n).position(), 0))
        .expect("readable");
    pointer
}

/// Frozen: what is on a disk is read for ever.
#[test]
fn the_bytes_of_a_record_a_pointer_and_a_count_never_change() {
    let mut file = vec![7; 3];
    let key = Key::letter(RunId::from_bytes([9; 16]), 5);
    let pointer = encode(&mut file, key.as_bytes(), b"a letter", 258, (4, 1_000));
    let hash = "2608d5cb70ec5e7458d86bf77bbb6b40adc87d971bdf4d6f68a86063b26857a6";
    assert_eq!(pointer.offset, 1_003);
    assert_eq!(pointer.len, 4 + 16 + 8 + 2 + 25 + 8);
    let record = &file[3..];
    assert_eq!(record[..4], 59_u32.to_le_bytes());
    let hashed = blake3::derive_key("workflow-runtime 2026-11 store annex", &record[20..]);
    assert_eq!(record[4..20], hashed[..16]);
    assert_eq!(record[20..28], 258_u64.to_le_bytes());
    assert_eq!(record[28..30], 25_u16.to_le_bytes());
    assert_eq!(record[30..55], *key.as_bytes());
    assert_eq!(record[55..], *b"a letter");
    let value = pointer.encode();
    assert_eq!(value[..2], [0, 0]);
    assert_eq!(value[2..10], 4_u64.to_le_bytes());
    assert_eq!(value[10..14], 1_003_u32.to_le_bytes());
    assert_eq!(value[14..18], 63_u32.to_le_bytes());
    assert_eq!(value[18..], hashed[..8]);
    assert_eq!(Pointer::decode(&value), Some(pointer));
    assert_eq!(Pointer::decode(&value[..25]), None);
    assert_eq!(Pointer::decode(&[0, 1, 2]), None);
    assert_eq!(blake3::hash(record).to_hex().as_str(), hash);
    let tally = Tally {
        records: 1,
        bytes: 2,
        end: 3,
    };
    let numbers: Vec<u8> = [1_u64, 2, 3].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(tally.encode(), numbers);
    assert_eq!(Tally::decode(&numbers), Ok(tally));
    assert!(Tally::decode(&numbers[1..]).is_err());
}

#[test]
fn a_record_in_which_any_bit_is_flipped_is_not_read() {
    let mut file = Vec::new();
    let key = Key::letter(RunId::from_bytes([9; 16]), 5);
    encode(&mut file, key.as_bytes(), b"a letter", 258, (4, 1_000));
    assert!(Entry::read(&file).is_ok());
    for bit in 0..8 * file.len() {
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(Entry::read(&file).is_err(), "bit {bit}");
        file[bit / 8] ^= 1 << (bit % 8);
    }
    for len in 0..file.len() {
        assert!(Entry::read(&file[..len]).is_err(), "{len} bytes");
    }
}

#[tokio::test]
async fn segments_lie_in_the_annex_and_sled_points_to_them() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    finish(&store, 10..20).await;
    let pointer = pointer_of(&store, 10).expect("it lies in the annex");
    assert!(is_whole(&store, 10).await);
    store.check().await.expect("sound");
    let path = file_path(&closed.annex(), pointer.file);
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let format = fs::read_to_string(closed.path.join("FORMAT")).expect("there");
    assert_eq!(format, "workflow-runtime store, format 3\n");
}

#[tokio::test]
async fn a_store_of_format_1_becomes_one_of_the_newest_format_before_it_has_an_annex() {
    let closed = Closed::new().await;
    closed.settle().await;
    // As an older release leaves it: all in sled.
    let at = header(4).position();
    closed.tamper(|database| {
        let mut writes = Vec::new();
        for prefix in [keys::SEGMENT, keys::MAIL, keys::ANNEX] {
            for held in database.held(&[prefix], usize::MAX).expect("readable") {
                let (name, _) = keys::split_piece(&held.key).expect("a key");
                writes.push((held.key.clone(), None));
                if let Some(pointer) = held.pointer {
                    let record = database.fetch(name, pointer.encode().into());
                    let record = record.expect("readable").expect("there");
                    let pieces = keys::cut(&record).into_iter().enumerate();
                    writes.extend(pieces.map(|(number, piece)| {
                        let number = u16::try_from(number).expect("few");
                        let key = [name, &number.to_be_bytes()].concat();
                        (key, Some(piece))
                    }));
                } else if prefix != keys::ANNEX {
                    writes.pop();
                }
            }
        }
        let mut archive = super::super::reads::archive(database).expect("readable");
        archive.annex = super::super::bytes::Census::default();
        super::super::plan::put(&mut writes, &Key::archive(), &archive.encode());
        writes
    });
    fs::remove_dir_all(closed.annex()).expect("removed");
    let format = closed.path.join("FORMAT");
    fs::write(&format, "workflow-runtime store, format 1\n").expect("written");
    let store = closed.open().expect("it opens");
    let written = fs::read_to_string(&format).expect("there");
    assert!(
        written.ends_with("1\n"),
        "reading changes nothing: {written}"
    );
    let lengths = async |store: &SledStore| -> Vec<usize> {
        let frames = store.frames(at.run, 0, 10).await.expect("readable");
        frames.iter().map(Bytes::len).collect()
    };
    assert_eq!(lengths(&store).await, [100, 10]);
    store.check().await.expect("sound");
    finish(&store, 10..20).await;
    let written = fs::read_to_string(&format).expect("there");
    assert!(written.ends_with("3\n"), "{written}");
    // Both kinds side by side, and both are deleted.
    assert_eq!(lengths(&store).await, [100, 10]);
    assert!(is_whole(&store, 10).await);
    let gone = vec![at.run, run(10)];
    assert_eq!(store.delete(gone).await.expect("an answer"), 2);
    store.check().await.expect("sound");
}

#[tokio::test]
async fn a_file_goes_once_nothing_of_it_is_needed() {
    let closed = Closed::new().await;
    let store = closed.open_small().expect("it opens");
    finish(&store, 100..200).await;
    let before = closed.annex_files();
    assert!(before.len() > 3, "{before:?}");
    let ids = (100..200).map(run).collect();
    assert_eq!(store.delete(ids).await.expect("an answer"), 100);
    store.settled();
    let after = closed.annex_files();
    assert_eq!(after.last(), before.last(), "the newest stays");
    // The long run of the store lies in one of them.
    assert!(after.len() <= 2, "{after:?}");
    store.check().await.expect("sound");
    drop(store);
    let store = closed.open_small().expect("it opens");
    store.check().await.expect("sound");
    finish(&store, 300..310).await;
    assert!(is_whole(&store, 305).await);
}

#[tokio::test]
async fn a_file_that_is_hardly_needed_is_emptied_into_the_newest() {
    let closed = Closed::new().await;
    let store = closed.open_small().expect("it opens");
    finish(&store, 100..300).await;
    let before = closed.annex_files();
    let (kept, gone): (Vec<u64>, Vec<u64>) = (100..300).partition(|n| n % 8 == 0);
    let moved = pointer_of(&store, kept[12]).expect("it lies in the annex");
    let ids: Vec<RunId> = gone.iter().map(|n| run(*n)).collect();
    assert_eq!(store.delete(ids).await.expect("an answer"), 175);
    store.settled();
    let after = closed.annex_files();
    assert!(after.len() <= before.len() / 2, "{before:?} {after:?}");
    assert!(!after.contains(&moved.file));
    // A reader that had looked it up before finds it all the same.
    let key = Key::segment(header(kept[12]).position(), 0);
    let found = store.shared.read(|database| {
        let old = moved.encode();
        database.fetch(key.as_bytes(), old.into())
    });
    assert!(found.expect("readable").is_some());
    for n in &kept {
        assert!(is_whole(&store, *n).await, "{n}");
    }
    store.check().await.expect("sound");
    drop(store);
    let store = closed.open_small().expect("it opens");
    store.check().await.expect("sound");
    for n in &kept {
        assert!(is_whole(&store, *n).await, "{n}");
    }
}

#[tokio::test]
async fn damage_in_the_annex_hits_the_record_that_it_is_in() {
    let closed = Closed::new().await;
    let store = closed.open().expect("it opens");
    finish(&store, 10..20).await;
    let pointer = pointer_of(&store, 14).expect("it lies in the annex");
    drop(store);
    let path = file_path(&closed.annex(), pointer.file);
    let mut bytes = fs::read(&path).expect("readable");
    bytes[pointer.offset as usize + 500] ^= 4;
    fs::write(&path, bytes).expect("written");
    let store = closed.open().expect("it opens");
    match store.frames(run(14), 0, 10).await {
        Err(StoreError::Corrupt { place, .. }) => {
            assert!(place.contains(&run(14).to_string()), "{place}");
        }
        other => panic!("{other:?}"),
    }
    for n in [10, 11, 12, 13, 15, 16, 17, 18, 19] {
        assert!(is_whole(&store, n).await, "{n}");
    }
    let checked = store.check().await;
    assert!(matches!(checked, Err(StoreError::Corrupt { .. })));
    // It can be deleted, and then all is sound.
    assert_eq!(store.delete(vec![run(14)]).await.expect("an answer"), 1);
    store.check().await.expect("sound");
}

#[tokio::test]
async fn a_file_with_damage_in_it_is_never_removed_with_what_is_needed() {
    let closed = Closed::new().await;
    let store = closed.open_small().expect("it opens");
    finish(&store, 100..200).await;
    let hit = pointer_of(&store, 120).expect("it lies in the annex");
    let path = file_path(&closed.annex(), hit.file);
    let mut bytes = fs::read(&path).expect("readable");
    bytes[hit.offset as usize + 500] ^= 4;
    fs::write(&path, bytes).expect("written");
    let ids = (100..200).filter(|n| *n != 120).map(run).collect();
    assert_eq!(store.delete(ids).await.expect("an answer"), 99);
    store.settled();
    assert!(path.exists(), "what is left of it may be mended");
    assert_eq!(pointer_of(&store, 120), Some(hit));
    finish(&store, 300..310).await;
    assert!(is_whole(&store, 305).await, "the store goes on");
}

#[tokio::test]
async fn a_count_that_is_missing_is_damage() {
    let closed = Closed::new().await;
    closed.settle().await;
    closed.tamper(|_| vec![(Key::annex(0).piece(0), None)]);
    closed.expect_corrupt("the counts of the annex");
    assert!(closed.newest().exists(), "nothing is removed by it");
}

#[tokio::test]
async fn a_record_that_no_count_knows_is_found_by_the_check() {
    let closed = Closed::new().await;
    closed.settle().await;
    // Another segment points to the same bytes.
    closed.tamper(|database| {
        let held = database.held(&[keys::SEGMENT], 100).expect("readable");
        let pointer = held.iter().find_map(|held| held.pointer).expect("one");
        let key = Key::segment(header(77).position(), 0);
        vec![(key.piece(0), Some(pointer.encode()))]
    });
    let store = closed.open().expect("it opens");
    match store.check().await {
        Err(StoreError::Corrupt { place, .. }) => assert!(place.contains("annex"), "{place}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_follows_the_last_record_is_cut_off_and_files_that_nothing_counts_go() {
    let closed = Closed::new().await;
    closed.settle().await;
    let newest = closed.newest();
    let len = fs::metadata(&newest).expect("there").len();
    let mut bytes = fs::read(&newest).expect("readable");
    bytes.extend_from_slice(&[5; 1_000]);
    fs::write(&newest, bytes).expect("written");
    let torn = file_path(&closed.annex(), 9);
    fs::write(&torn, b"never pointed to").expect("written");
    let store = closed.open().expect("it opens");
    assert_eq!(fs::metadata(&newest).expect("there").len(), len);
    assert!(!torn.exists());
    finish(&store, 10..12).await;
    assert_eq!(
        pointer_of(&store, 10).map(|pointer| u64::from(pointer.offset)),
        Some(len)
    );
    drop(store);
    let store = closed.open().expect("it opens");
    assert!(is_whole(&store, 10).await);
    store.check().await.expect("sound");
}

#[tokio::test]
async fn a_file_that_lost_its_end_is_not_written_to() {
    let closed = Closed::new().await;
    closed.settle().await;
    let newest = closed.newest();
    let bytes = fs::read(&newest).expect("readable");
    let left = &bytes[..bytes.len() - 10];
    fs::write(&newest, left).expect("written");
    let store = closed.open().expect("it opens");
    finish(&store, 10..12).await;
    assert!(is_whole(&store, 10).await);
    assert_eq!(fs::read(&newest).expect("readable"), left);
    drop(store);
    fs::remove_file(&newest).expect("removed");
    let store = closed.open().expect("it opens");
    assert!(is_whole(&store, 10).await, "another file");
    let checked = store.check().await;
    assert!(matches!(checked, Err(StoreError::Corrupt { .. })));
}

#[test]
fn files_that_are_gone_are_not_kept_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Files::new(directory.path());
    fs::create_dir(files.directory()).expect("made");
    let mut bytes = Vec::new();
    let pointer = encode(&mut bytes, b"name", b"record", 1, (3, 0));
    let path = file_path(files.directory(), 3);
    fs::write(&path, &bytes).expect("written");
    let open = || files.open().len();
    assert_eq!(
        &files.read(b"name", &pointer).expect("there")[..],
        b"record"
    );
    assert!(files.read(b"other", &pointer).is_err(), "another key");
    assert_eq!(open(), 1);
    fs::remove_file(&path).expect("removed");
    files.forget(3);
    assert_eq!(open(), 0);
    assert!(matches!(
        files.read(b"name", &pointer),
        Err(super::Unread::Gone)
    ));
}
