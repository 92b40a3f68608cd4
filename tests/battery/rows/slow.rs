//! A slow disk: every sync takes its time. Nothing is lost, nothing is given up, and many share one sync.

use std::time::Instant;

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::disk;
use super::scratch;
use super::told::Told;
use crate::chance::Chance;

/// Transfers of one case, all at once.
const TRANSFERS: u64 = 48;

/// How many writes one transfer makes that must wait for a sync, about: the start, two rounds of steps, the word, the timer, the last
/// step, the end.
const ROUNDS: u32 = 9;

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let micros = 5_000 + chance.below(60_000);
    let [transfers, slow] = [TRANSFERS, micros].map(|number| number.to_string());
    let mut command = child::command(&["work", &dir, "0", &transfers, &transfers, "200"]);
    command
        .env("LD_PRELOAD", disk::shim(directory.path()))
        .env("STORE_DIR", &store)
        .env("SHIM_LOG", "/dev/null")
        .env("SLOW_SYNC_US", &slow);
    let began = Instant::now();
    let (said, status) = Process::start(command).hear_out(PATIENCE);
    let took = began.elapsed();
    let mut told = Told::default();
    told.hear_text(&said);
    if !status.is_some_and(|status| status.success()) || told.stopped.is_some() {
        told.wrong(format!("19: the process: {status:?}, {:?}", told.stopped));
    }
    if told.finished.len() as u64 != TRANSFERS {
        told.wrong(format!(
            "14: {} of {TRANSFERS} finished",
            told.finished.len()
        ));
    }
    // One sync for each write of each transfer would take far longer.
    let alone = std::time::Duration::from_micros(micros) * ROUNDS * TRANSFERS as u32;
    if took > alone / 2 {
        told.wrong(format!(
            "the transfers did not share syncs: {took:?}, alone {alone:?}"
        ));
    }
    let acknowledged = told.finished.len() as u64;
    scratch::finish(&store, &mut told);
    Case {
        violations: told.violations,
        count: acknowledged,
        trace: format!("{micros} µs a sync, {took:?} in all"),
        ..Case::default()
    }
}
