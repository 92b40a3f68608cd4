//! Faults aimed at the compaction of the annex: what is needed of a file is moved to another one, and the file goes.
//!
//! Kills, power cuts and a disk that refuses, before and after each of its writes, syncs and removals. Owns the aim: the child says
//! when it begins to delete, and from there on only a compaction writes to the annex.

use std::process::Stdio;

use super::annex::is_annex;
use super::cut::{Luck, Outcome, Recording, examine};
use super::said::Said;

/// Some five files, of which less than a quarter is needed at the end.
const TIDY: &str = "tidy 48 1500";

/// What the child says before it deletes.
const DELETING: &str = "deleting";

/// Lets a child meet a fault at the `at`-th such moment since it began to delete. Returns what it said, what it complained of, and whether
/// it came to its end, if that moment came.
async fn meet(fault: &[(&str, &str)], at: usize) -> Option<(String, bool)> {
    let recording = Recording::new();
    let mut child = recording.child(TIDY);
    let (variable, file) = fault[0];
    child
        .env("SHIM_ARM", DELETING)
        .env(variable, at.to_string())
        .env("FAIL_FILE", file)
        .envs(fault[1..].iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = child.output().expect("the child starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(DELETING), "{fault:?} {at}: {text}");
    // Twice: the one who opens it goes on with the compaction.
    for time in ["first", "second"] {
        assert_eq!(
            examine(&recording.store, &Said::of(&text)).await,
            Outcome::Kept,
            "{fault:?} {at}, opened for the {time} time: {text}"
        );
    }
    let met = !output.status.success() || text.contains("stopped");
    let why = String::from_utf8_lossy(&output.stderr);
    met.then(|| (format!("{text}{why}"), output.status.success()))
}

/// Has a fault come at every such moment, and returns how many there are.
async fn meet_all(fault: &[(&str, &str)], is_kill: bool) -> usize {
    let mut moments = 0;
    while let Some((text, came_to_its_end)) = meet(fault, moments).await {
        assert_eq!(came_to_its_end, !is_kill, "{fault:?} {moments}: {text}");
        moments += 1;
    }
    moments
}

#[tokio::test]
async fn a_power_cut_anywhere_in_a_compaction_loses_nothing() {
    let recording = Recording::of(TIDY);
    let begun = recording.which(|record| record.data.starts_with(DELETING.as_bytes()));
    let [begun] = begun[..] else {
        panic!("it deletes once: {begun:?}");
    };
    let count = |kind| {
        let all = recording.which(|record| record.kind == kind && is_annex(record));
        all.iter().filter(|at| **at > begun).count()
    };
    let (written, synced, removed) = (count(b'W'), count(b'S'), count(b'U'));
    assert!(written > 0 && synced >= written, "{written} {synced}");
    assert!(removed > 2, "files go: {removed}");
    let lucks = |at: usize| {
        let seed = at as u64;
        let varied = [
            Luck::Some(seed),
            Luck::Pages(seed, 4),
            Luck::Without(0),
            Luck::Without(1),
        ];
        vec![Luck::None, Luck::Names, varied[at % varied.len()]]
    };
    let moments = begun..recording.records.len();
    let cuts = recording.expect_kept(TIDY, moments, lucks).await;
    assert!(cuts > 60, "{cuts}");
}

#[tokio::test]
async fn a_process_killed_anywhere_in_a_compaction_loses_nothing() {
    for (fault, at_least) in [
        (("KILL_BEFORE_WRITE", ".annex"), 1),
        (("KILL_BEFORE_UNLINK", ".annex"), 3),
        (("KILL_BEFORE_WRITE", "/db"), 3),
    ] {
        let moments = meet_all(&[fault], true).await;
        assert!(moments >= at_least, "{fault:?}: {moments} times");
    }
}

#[tokio::test]
async fn a_disk_that_refuses_anything_of_a_compaction_stops_the_store_and_loses_nothing() {
    let eio = ("FAIL_WRITE_EIO", "1");
    for (fault, at_least) in [
        (&[("FAIL_WRITE_AT", ".annex")][..], 1),
        (&[("FAIL_WRITE_AT", ".annex"), eio], 1),
        (&[("FAIL_SYNC_AT", ".annex")], 1),
        (&[("FAIL_WRITE_AT", "/db"), eio], 3),
        (&[("FAIL_SYNC_AT", "/db")], 2),
    ] {
        let moments = meet_all(fault, false).await;
        assert!(moments >= at_least, "{fault:?}: {moments} times");
    }
}

#[tokio::test]
async fn a_write_that_fails_late_is_heard_of_by_those_who_wait_for_it() {
    // sled wakes nobody who waits by then, if the write is that of a buffer which another one filled.
    let late = [
        ("FAIL_WRITE_AT", "/db"),
        ("FAIL_WRITE_EIO", "1"),
        ("FAIL_WRITE_US", "50000"),
    ];
    let moments = meet_all(&late, false).await;
    assert!(moments >= 3, "{moments} times");
}
