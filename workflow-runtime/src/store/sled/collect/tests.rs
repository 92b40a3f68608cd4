//! When sled is made to collect; and that its file stays short for it, on a real disk.

use std::collections::VecDeque;

use super::super::database::{Database, Settings};
use super::*;

const LOG_FILE: u64 = 4 * MEBIBYTE;

fn collector() -> Collector {
    Collector::new(LOG_FILE)
}

/// One of which a round begins as soon as the file is too long.
fn ready() -> Collector {
    let mut collector = collector();
    collector.wrote(1_000 * MEBIBYTE);
    collector
}

/// Goes on with a round to its end. Returns how many fillers that took.
fn rest(collector: &mut Collector, len: u64) -> u64 {
    let batches = std::iter::from_fn(|| Some(collector.fillers_alone(len).len() as u64));
    batches.take_while(|count| *count > 0).sum()
}

#[test]
fn a_short_file_is_left_to_sled() {
    let mut collector = ready();
    assert!(collector.fillers(8 * MEBIBYTE, 0, 200).is_empty());
    assert!(collector.fillers(39 * MEBIBYTE, 102_400, 200).is_empty());
    assert!(!collector.fillers(41 * MEBIBYTE, 102_400, 200).is_empty());
}

#[test]
fn fillers_differ_from_those_before() {
    let mut collector = ready();
    let first = collector.fillers(9 * MEBIBYTE, 0, 100);
    let second = collector.fillers(9 * MEBIBYTE, 0, 100);
    assert_eq!((first.len(), second.len()), (800, 800));
    for ((key, one), (same, other)) in first.iter().zip(&second) {
        assert_eq!(key, same);
        assert_ne!(one, other, "sled would pass over it");
    }
    let mut keys: Vec<_> = first.iter().map(|(key, _)| key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 800, "a batch has one change of a key");
    assert_eq!(collector.fillers(9 * MEBIBYTE, 0, 1).len(), FEWEST);
    assert_eq!(collector.fillers(9 * MEBIBYTE, 0, 5_000).len(), MOST);
}

#[test]
fn a_round_ends_when_the_file_is_short_again() {
    let mut collector = ready();
    assert!(collector.fillers_alone(9 * MEBIBYTE).is_empty());
    assert!(!collector.fillers(9 * MEBIBYTE, 0, 100).is_empty());
    assert!(!collector.fillers(6 * MEBIBYTE, 0, 100).is_empty());
    assert_eq!(collector.fillers_alone(6 * MEBIBYTE).len(), MOST);
    assert!(!collector.fillers_alone(6 * MEBIBYTE - 1).is_empty());
    assert!(collector.fillers_alone(6 * MEBIBYTE).is_empty());
}

#[test]
fn the_first_round_waits_for_a_quarter_of_the_file_to_be_written() {
    let mut collector = collector();
    collector.wrote(5 * MEBIBYTE - 1);
    assert!(collector.fillers(20 * MEBIBYTE, 0, 192).is_empty());
    collector.wrote(1);
    assert!(!collector.fillers(20 * MEBIBYTE, 0, 192).is_empty());
}

#[test]
fn a_round_is_as_long_as_the_file_and_the_next_one_waits_until_as_much_was_written() {
    let mut collector = ready();
    let first = collector.fillers(100 * MEBIBYTE, 0, 192).len() as u64;
    // What is written in a round does not count: most of it are fillers.
    collector.wrote(1_000 * MEBIBYTE);
    let all = first + rest(&mut collector, 100 * MEBIBYTE);
    assert!((400_000..400_000 + MOST as u64).contains(&all), "{all}");
    // However long the file has become meanwhile, and however often it is asked for.
    collector.wrote(100 * MEBIBYTE - 1);
    assert!(collector.fillers(100 * MEBIBYTE, 0, 192).is_empty());
    assert!(collector.fillers(200 * MEBIBYTE, 0, 192).is_empty());
    collector.wrote(1);
    assert!(collector.fillers(8 * MEBIBYTE, 0, 192).is_empty());
    assert!(!collector.fillers(100 * MEBIBYTE, 0, 192).is_empty());
}

/// Numbers that look random and are the same every time.
fn mixed(number: u64) -> [u8; 8] {
    super::super::bytes::mix(number).to_be_bytes()
}

/// What archives do to sled in a store whose runs come and go, and of which a few notes stay. Returns how long the file was at most
/// in the last quarter, and how long it may be.
fn come_and_go() -> (u64, u64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let settings = Settings {
        cache_bytes: 8 << 20,
        skip_fdatasync: true,
        log_file_bytes: MEBIBYTE / 2,
        write_again: false,
    };
    let database = Database::open(directory.path(), &settings).expect("sled opens");
    let (batches, each, window) = (900_u64, 64, 1_000);
    let mut there = VecDeque::new();
    let (mut stays, mut longest) = (0, 0);
    let key = |kind: u8, parts: &[&[u8]]| [&[kind], parts.concat().as_slice(), &[0, 0]].concat();
    let keys_of = |run: u64| {
        let (time, id) = (run.to_be_bytes(), [mixed(run), mixed(!run)].concat());
        let inverted = (!run).to_be_bytes();
        [
            key(b'h', &[&inverted, &id]),
            key(b'r', &[&id]),
            key(b's', &[&time, &id, &[0; 8]]),
        ]
    };
    for batch in 0..batches {
        let mut writes: Vec<Write> = Vec::new();
        for run in batch * each..(batch + 1) * each {
            there.push_back(run);
            let values = [120, 18, 28].map(|len| Some(vec![7; len]));
            writes.extend(keys_of(run).into_iter().zip(values));
            if run % 2 == 0 {
                writes.push((key(b'n', &[&mixed(run ^ (1 << 60))]), Some(vec![7; 60])));
                stays += 1;
            }
        }
        let mut all = vec![writes];
        if there.len() > window + 256 {
            let gone = there.drain(..256).flat_map(keys_of);
            all.push(gone.map(|key| (key, None)).collect());
        }
        let entries = 3 * there.len() as u64 + stays;
        for writes in all {
            let done = database.commit_and_collect(writes, entries);
            done.expect("committed");
        }
        while database.collect().expect("collected") {}
        if batch > batches / 4 * 3 {
            longest = longest.max(database.file_len().expect("measured"));
        }
    }
    let entries = 3 * there.len() as u64 + stays;
    (longest, MEBIBYTE + entries * BYTES_AN_ENTRY)
}

#[test]
fn the_file_stays_short_although_entries_come_and_go() {
    // Without fillers the file has 20 MiB here, and grows on.
    let (length, limit) = come_and_go();
    assert!(length < limit + limit / 2, "{length}, {limit}");
}
