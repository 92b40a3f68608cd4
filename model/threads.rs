//! The embedded store under a scheduler that decides which thread goes on: committer, archiver and callers in many orders.
//!
//! Owns the situations. `model/run` puts this file beside the store's own sources, in a copy in which locks, condition
//! variables, atomics and threads are shuttle's; all else is the code that ships, with a real sled on a real directory. A thread
//! that would wait for ever is a failure there, whoever it is.

use std::sync::Arc;

use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use super::tests::{append, header, new_run};
use super::{SledOptions, SledStore};
use crate::store::{Creation, Epoch, Store, StoreError};

/// How many places at which a thread is held up a schedule of the second kind has.
const DEPTH: usize = 3;

fn schedules() -> usize {
    let asked = std::env::var("MODEL_SCHEDULES").ok();
    asked.map_or(200, |asked| asked.parse().expect("a number of schedules"))
}

/// Runs a situation in so many random orders, and in as many in which some thread is always held up.
fn in_every_order(situation: fn()) {
    let mut config = Config::new();
    // sled works on the stack of whoever calls it.
    config.stack_size = 4 * 1024 * 1024;
    Runner::new(RandomScheduler::new(schedules()), config.clone()).run(situation);
    Runner::new(PctScheduler::new(DEPTH, schedules()), config).run(situation);
}

/// A store in a directory of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        // In memory if that is there: nothing is cut off here, and thousands of stores are made.
        let shared = std::path::Path::new("/dev/shm");
        Self(match shared.is_dir() {
            true => tempfile::tempdir_in(shared).expect("a temporary directory"),
            false => tempfile::tempdir().expect("a temporary directory"),
        })
    }

    fn open(&self) -> Arc<SledStore> {
        let path = self.0.path().join("store");
        Arc::new(SledStore::open(path, SledOptions::default()).expect("it opens"))
    }
}

fn frames(store: &SledStore, n: u64) -> usize {
    let frames = block_on(store.frames(header(n).run, 0, usize::MAX));
    frames.expect("readable").len()
}

/// Appends to run 1 until it is refused as it may be. Returns how many frames were acknowledged, with the first.
fn append_until(store: &SledStore, refused: fn(&StoreError) -> bool) -> usize {
    let mut acknowledged = 1;
    for seq in 1..=3 {
        match block_on(store.append(append(1, seq, 20))) {
            Ok(()) => acknowledged += 1,
            Err(error) if refused(&error) => break,
            Err(error) => panic!("{error}"),
        }
    }
    acknowledged
}

#[test]
fn every_append_is_answered_and_kept() {
    in_every_order(|| {
        const APPENDS: u64 = 3;
        let place = Place::new();
        let store = place.open();
        let callers: Vec<_> = (0..3)
            .map(|n| {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    block_on(store.create(new_run(n))).expect("created");
                    for seq in 1..=APPENDS {
                        block_on(store.append(append(n, seq, 20))).expect("durable");
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().expect("ends");
        }
        block_on(store.close()).expect("closes");
        drop(store);
        let store = place.open();
        for n in 0..3 {
            assert_eq!(frames(&store, n) as u64, 1 + APPENDS, "run {n}");
        }
    });
}

#[test]
fn what_is_acknowledged_while_the_store_closes_is_kept() {
    in_every_order(|| {
        let place = Place::new();
        let store = place.open();
        block_on(store.create(new_run(1))).expect("created");
        let caller = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                append_until(&store, |error| matches!(error, StoreError::Stopped { .. }))
            })
        };
        block_on(store.close()).expect("closes");
        let acknowledged = caller.join().expect("ends");
        drop(store);
        assert_eq!(frames(&place.open(), 1), acknowledged);
    });
}

#[test]
fn nothing_of_the_owner_before_is_written_behind_a_claim() {
    in_every_order(|| {
        let place = Place::new();
        let store = place.open();
        block_on(store.create(new_run(1))).expect("created");
        let before = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                append_until(&store, |error| {
                    matches!(error, StoreError::StaleEpoch { .. })
                })
            })
        };
        let claim = block_on(store.claim(header(1).run, 0));
        let claim = claim.expect("an answer").expect("there");
        assert_ne!(claim.epoch, Epoch::FIRST);
        let found = claim.frames.len();
        let mut own = append(1, found as u64, 20);
        own.epoch = claim.epoch;
        block_on(store.append(own)).expect("owned");
        let acknowledged = before.join().expect("ends");
        assert_eq!(
            acknowledged, found,
            "what the claim found is what was acknowledged"
        );
        assert_eq!(frames(&store, 1), found + 1);
        block_on(store.close()).expect("closes");
    });
}

#[test]
fn of_those_who_create_one_run_one_does() {
    in_every_order(|| {
        let place = Place::new();
        let store = place.open();
        let racers: Vec<_> = (0..3)
            .map(|_| {
                let store = Arc::clone(&store);
                thread::spawn(move || match block_on(store.create(new_run(7))) {
                    Ok(Creation::Created(_)) => 1,
                    Ok(Creation::Exists(_)) => 0,
                    Err(error) => panic!("{error}"),
                })
            })
            .collect();
        let created: i32 = racers
            .into_iter()
            .map(|racer| racer.join().expect("ends"))
            .sum();
        assert_eq!(created, 1);
        block_on(store.close()).expect("closes");
    });
}
