//! Limits of the process: the size of files (`RLIMIT_FSIZE`), the number of descriptors (`RLIMIT_NOFILE`).
//!
//! A shell sets the limit and becomes the child, so that nothing here needs a system call of its own.

use std::process::ExitStatus;

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch;
use super::told::Told;
use crate::chance::Chance;

/// The signal that a file too large is answered with, unless it is ignored.
const SIGXFSZ: i32 = 25;

/// Files end at some size: the process is killed by it, or the write fails. Nothing that was acknowledged is lost.
pub(super) fn file_size(seed: u64) -> Case {
    use std::os::unix::process::ExitStatusExt as _;
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    // From nothing to a few files of the log, in units of 512 bytes.
    let blocks = chance.below(20_000).pow(2) / 20_000;
    let ignored = seed.is_multiple_of(2);
    let trap = if ignored { "trap '' XFSZ; " } else { "" };
    let script = format!("{trap}ulimit -f {blocks} && exec \"$@\"");
    let shell = ["sh", "-c", &script, "sh"];
    let mut told = Told::default();
    let work = ["work", &*dir, "0", "300", "8", "30000"];
    let (said, status) = Process::start(child::command_behind(&shell, &work)).hear_out(PATIENCE);
    told.hear_text(&said);
    let is_killed = |status: ExitStatus| status.signal() == Some(SIGXFSZ);
    if !status.is_some_and(|status| status.success() || !ignored && is_killed(status)) {
        told.wrong(format!("18: the process: {status:?}"));
    }
    let is_done = told.finished.len() == 300;
    if ignored && told.stopped.is_none() && !is_done {
        told.wrong("19: it neither stopped nor finished".into());
    }
    let trace = format!("{blocks} blocks, {:?}", told.stopped);
    scratch::concluded(&store, told, trace)
}

/// Few descriptors from the beginning, or none any more from some moment on.
pub(super) fn descriptors(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let mut told = Told::default();
    let (most, after) = (5 + chance.below(20), chance.below(60).to_string());
    let command = match seed % 2 {
        0 => {
            let script = format!("ulimit -n {most} && exec \"$@\"");
            let work = ["work", &*dir, "0", "60", "8", "40000"];
            child::command_behind(&["sh", "-c", &script, "sh"], &work)
        }
        _ => {
            let script = "ulimit -n 64 && exec \"$@\"";
            child::command_behind(&["sh", "-c", script, "sh"], &["starve", &dir, &after])
        }
    };
    let (said, status) = Process::start(command).hear_out(PATIENCE);
    told.hear_text(&said);
    // With less than a runtime needs there is no engine: the child panics before it opens anything.
    let is_too_few = seed.is_multiple_of(2) && !told.is_ready && told.stopped.is_none();
    if !status.is_some_and(|status| status.success() || is_too_few) {
        told.wrong(format!("18: the process: {status:?}"));
    }
    let all = if seed.is_multiple_of(2) { 60 } else { 200 };
    if !is_too_few && told.stopped.is_none() && told.finished.len() < all {
        told.wrong("19: it neither stopped nor finished".into());
    }
    let trace = format!("{most} descriptors, {:?}", told.stopped);
    scratch::concluded(&store, told, trace)
}
