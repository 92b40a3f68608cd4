//! Two processes, one directory: the second is refused and changes nothing; the lock goes with the first, also by `kill -9`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch;
use super::told::Told;
use crate::chance::Chance;

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let mut case = Case::default();
    let mut told = Told::default();
    let work = ["work", &*dir, "0", "6", "4", "500"];
    told.hear_text(&Process::start(child::command(&work)).hear_out(PATIENCE).0);
    let mut hold = child::command(&["hold", &dir]);
    hold.stdin(Stdio::piped());
    let mut holder = hold.spawn().expect("a child starts");
    let mut input = holder.stdin.take().expect("piped");
    let output = holder.stdout.take().expect("piped");
    let mut line = String::new();
    let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line);
    case.holds(line == "@ready\n", || {
        format!("14: the holder says {line:?}")
    });
    // The holder archives what it found when it opened, and may be late with it where others have the processor: only while it is
    // stopped is whatever changes the work of somebody else. It holds its lock all the same.
    scratch::wait_until_quiet(&store);
    stop(holder.id());
    let before = scratch::files(&store);
    for _ in 0..=chance.below(3) {
        let work = ["work", &*dir, "6", "9", "4", "500"];
        let (said, status) = Process::start(child::command(&work)).hear_out(PATIENCE);
        let is_refused = said.starts_with("@stopped") && said.contains("in use by another process");
        case.holds(is_refused, || {
            format!("the second process: {said:?}, {status:?}")
        });
        case.count += 1;
    }
    let after = scratch::files(&store);
    let changed = changed(&before, &after);
    case.holds(changed.is_empty(), || {
        format!("a refused process changed the store: {changed:?}")
    });
    signal(holder.id(), "CONT");
    match seed % 2 {
        0 => drop(holder.kill()),
        _ => drop(input.write_all(b"\n")),
    }
    drop(input);
    let _ = holder.wait();
    scratch::finish(&store, &mut told);
    case.holds(told.finished.len() == 6, || {
        format!("14: {} of 6 finished", told.finished.len())
    });
    case.violations.append(&mut told.violations);
    case
}

/// Sends a process of ours a signal.
fn signal(process: u32, name: &str) {
    let mut kill = Command::new("sh");
    kill.args(["-c", &format!("kill -{name} {process}")]);
    assert!(kill.status().is_ok_and(|status| status.success()));
}

/// Stops a process, and waits until none of its threads does anything any more.
fn stop(process: u32) {
    signal(process, "STOP");
    while !is_stopped(process) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it is there");
    threads.flatten().all(|thread| {
        let about = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Behind the name, which is in brackets. A thread that is gone does nothing either.
        about
            .rsplit_once(") ")
            .is_none_or(|(_, state)| state.starts_with('T'))
    })
}

/// The files that are not the same.
fn changed<'a>(
    before: &'a BTreeMap<PathBuf, Vec<u8>>,
    after: &'a BTreeMap<PathBuf, Vec<u8>>,
) -> Vec<&'a Path> {
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    let other = after
        .iter()
        .filter(|(path, bytes)| before.get(*path) != Some(bytes));
    let all = gone.chain(other.map(|(path, _)| path));
    all.map(PathBuf::as_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_stopped_changes_nothing_and_what_was_changed_is_named() {
        let directory = tempfile::tempdir().expect("made");
        let mut writer = Command::new("sh");
        writer.args(["-c", "i=0; while :; do i=$((i + 1)); echo $i >>here; done"]);
        let mut writer = writer.current_dir(&directory).spawn().expect("starts");
        let look = || scratch::files(directory.path());
        while look().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop(writer.id());
        let before = look();
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(look(), before);
        signal(writer.id(), "CONT");
        while look() == before {
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.kill().expect("killed");
        writer.wait().expect("it ends");
        let (after, gone) = (look(), BTreeMap::new());
        assert_eq!(changed(&before, &after), [Path::new("here")]);
        assert_eq!(changed(&before, &gone), [Path::new("here")]);
        assert!(changed(&before, &before).is_empty());
    }
}
