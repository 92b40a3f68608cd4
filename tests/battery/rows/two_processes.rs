//! Two processes, one directory: the second is refused and changes nothing; the lock goes with the first, also by `kill -9`.

use std::io::Write as _;
use std::process::Stdio;

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
    let before = scratch::wait_until_quiet(&store);
    for _ in 0..=chance.below(3) {
        let work = ["work", &*dir, "6", "9", "4", "500"];
        let (said, status) = Process::start(child::command(&work)).hear_out(PATIENCE);
        let is_refused = said.starts_with("@stopped") && said.contains("in use by another process");
        case.holds(is_refused, || {
            format!("the second process: {said:?}, {status:?}")
        });
        case.count += 1;
    }
    case.holds(scratch::files(&store) == before, || {
        "a refused process changed the store".into()
    });
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
