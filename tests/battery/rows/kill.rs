//! `kill -9` at random moments: ten times over one store, and then everything goes on to its end.

use std::time::{Duration, Instant};

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch;
use super::told::Told;
use crate::chance::Chance;

/// Kills of one case.
const KILLS: u64 = 10;

/// The latest kill after the start of a process, in microseconds: it finds the opening of the store, and replay.
const EARLY: u64 = 40_000;

/// The latest kill after the engine is open: it finds runs at every stage.
const LATE: u64 = 100_000;

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let size = chance.one_of(&[0, 100, 4_000, 30_000, 300_000]);
    let mut told = Told::default();
    for kill in 0..KILLS {
        let first = told.first_unfinished().to_string();
        let dir = store.to_string_lossy();
        let size = size.to_string();
        let work = ["work", &*dir, &first, "-", "16", &size];
        let mut process = Process::start(child::command(&work));
        let begun = Instant::now();
        told.is_ready = false;
        let mut moment = begun + Duration::from_micros(chance.below(EARLY));
        let after = Duration::from_micros(chance.below(LATE));
        let waits = kill % 4 != 3;
        let patience = begun + PATIENCE;
        loop {
            let is_waiting = waits && !told.is_ready;
            match process.next_line(if is_waiting { patience } else { moment }) {
                Some(line) => told.hear_text(&line),
                None => break,
            }
            if is_waiting && told.is_ready {
                moment = Instant::now() + after;
            }
        }
        if waits && !told.is_ready {
            told.wrong(format!(
                "14: a process did not open its store at kill {kill}"
            ));
        }
        told.hear_text(&process.kill());
        if let Some(reason) = told.stopped.take() {
            told.wrong(format!(
                "1: a process was stopped before kill {kill}: {reason}"
            ));
        }
    }
    scratch::finish(&store, &mut told);
    Case {
        violations: told.violations,
        count: KILLS,
        trace: format!("{} transfers of {size} bytes", told.finished.len()),
        ..Case::default()
    }
}
