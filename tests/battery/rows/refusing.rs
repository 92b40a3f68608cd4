//! A disk that refuses: `EIO` at a sync or a write, of the log, of the database, of a file that is begun.
//!
//! The refusals come from a preloaded shim. Nothing is acknowledged after the first, the engine says so, and the
//! next process goes on; where one sync was refused, the same process with a reopened engine before.

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::disk;
use super::scratch;
use super::told::Told;
use crate::chance::Chance;

/// What is refused, of which files, and up to which time it is done.
const REFUSALS: [(&str, &str, u64); 8] = [
    ("FAIL_SYNC_AT", ".log", 60),
    ("FAIL_WRITE_AT", ".log", 60),
    ("FAIL_SYNC_AT", "/db", 5),
    ("FAIL_WRITE_AT", "/db", 12),
    ("FAIL_SYNC_AT", "/next", 1),
    ("FAIL_WRITE_AT", "/next", 3),
    ("FAIL_SYNC_AT", "/mark", 2),
    ("FAIL_WRITE_AT", "/mark", 2),
];

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let (variable, file, most) = REFUSALS[usize::try_from(seed).expect("small") % REFUSALS.len()];
    let at = chance.below(most);
    let size = chance.one_of(&["0", "3000", "60000"]);
    let mut command = child::command(&["work", &dir, "0", "400", "8", size]);
    command
        .env("LD_PRELOAD", disk::shim(directory.path()))
        .env("STORE_DIR", &store)
        .env("SHIM_LOG", "/dev/null")
        .env("FAIL_FILE", file)
        .env("FAIL_WRITE_EIO", "1")
        .env(variable, at.to_string());
    // One sync is refused, but every write from the moment on: then only the next process finds a disk that works.
    let reopens = variable == "FAIL_SYNC_AT";
    if reopens {
        command.env(child::REOPENS, "1");
    }
    let (said, status) = Process::start(command).hear_out(PATIENCE);
    let mut told = Told::default();
    told.hear_text(&said);
    if !status.is_some_and(|status| status.success()) {
        told.wrong(format!("18: the process: {status:?}"));
    }
    // Not every moment comes: the archiver may have less to do, the mark may be written seldom.
    let is_stopped = told.stopped.is_some();
    let went_on = told.finished.len() == 400;
    if !is_stopped && !went_on {
        told.wrong("19: it neither stopped nor finished".into());
    }
    if reopens && told.is_ready && !went_on {
        told.wrong("19: it did not go on when it was reopened".into());
    }
    if !is_stopped && file == ".log" {
        told.wrong("19: a refusal of the log was not noticed".into());
    }
    let trace = format!("{variable}={at} of {file}, stopped: {:?}", told.stopped);
    scratch::concluded(&store, told, trace)
}
