//! Power cuts: what only the operating system had is gone, what was acknowledged is not.
//!
//! Owns the moments that are right after acknowledgements and at random, and what a store does whose disk refuses.

use super::child;
use super::cut::{Cut, Luck, Outcome, Recording, cuts, examine, spread};
use super::disk::shim;
use super::said::Said;
use super::work::Numbers;

/// At how many moments of one recording the power is cut, unless the variable `STORE_CUTS`
/// says more.
const CUTS: usize = 6;

/// Cuts the power at several moments of a recording and returns what became of it.
async fn cut_power(task: &str) -> Vec<Cut> {
    let recording = Recording::of(task);
    let acks = recording.which(|record| record.kind == b'A' && record.data.starts_with(b"ack"));
    assert!(acks.len() > CUTS, "the child got to do something");
    // Right after acknowledgements, spread evenly, and at some moments in between.
    let mut moments = spread(&acks, cuts(CUTS));
    let mut numbers = Numbers(task.len() as u64);
    let records = recording.records.len() as u64;
    moments.extend((0..cuts(CUTS)).map(|_| numbers.below(records) as usize));
    let lucks = |at| vec![Luck::None, Luck::Some(at as u64)];
    recording.cut(moments, lucks).await
}

async fn expect_kept(task: &str) {
    for cut in cut_power(task).await {
        assert!(cut.is_kept(), "`{task}`: {}", cut.text());
    }
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_200_bytes() {
    expect_kept("grow 3 200 200 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_4_kib() {
    expect_kept("grow 3 40 4096 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_8_kib() {
    expect_kept("grow 3 30 8192 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_64_kib() {
    expect_kept("grow 3 12 65536 sync").await;
}

#[tokio::test]
async fn a_power_cut_loses_no_acknowledged_record_of_a_mebibyte() {
    expect_kept("grow 3 3 1048576 sync").await;
}

#[tokio::test]
async fn a_power_cut_takes_no_buffered_record_that_the_database_knows() {
    expect_kept("grow 1 700 3000 rare").await;
}

/// Several files of the log are begun, archived and removed.
#[tokio::test]
async fn a_power_cut_while_files_of_the_log_come_and_go_loses_nothing() {
    expect_kept("grow 2 160 30000 sync").await;
    expect_kept("grow 1 1600 3000 mixed").await;
}

/// Letters, notes, sleep, revival and deletion, in small and in large, with files of the log
/// that come and go.
#[tokio::test]
async fn a_power_cut_leaves_every_story_where_its_note_says() {
    expect_kept("tell 3 60 150").await;
    expect_kept("tell 2 60 5000").await;
    expect_kept("tell 2 150 30000").await;
}

/// Files of the log go because what they held was forgotten.
#[tokio::test]
async fn a_power_cut_while_runs_forget_loses_nothing_that_they_kept() {
    expect_kept("forget 3 100 300").await;
    expect_kept("forget 2 60 5000").await;
}

#[tokio::test]
async fn a_power_cut_while_a_store_is_made_leaves_a_directory_that_opens() {
    let recording = Recording::of("grow 1 5 200 sync");
    let acks = recording.which(|record| record.kind == b'A' && record.data.starts_with(b"ack"));
    // From there on it is the other tests' business.
    let first = *acks.first().expect("the child got to say something");
    let lucks = |at| vec![Luck::None, Luck::Some(at as u64), Luck::Some(!(at as u64))];
    recording
        .expect_kept("a store is made", 0..first, lucks)
        .await;
}

#[tokio::test]
async fn a_power_cut_takes_buffered_records_and_no_synced_one() {
    expect_kept("grow 2 400 2000 mixed").await;
}

/// Lets the disk refuse something, and checks what the store makes of it, then and later.
async fn refuse(variable: &str, file: &str, at: u32) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store");
    let output = child::command("until it fails", &store)
        .env("LD_PRELOAD", shim(directory.path()))
        .env("SHIM_LOG", directory.path().join("log"))
        .env(variable, at.to_string())
        .env("FAIL_FILE", file)
        .stderr(std::process::Stdio::inherit())
        .output()
        .expect("the child starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("stopped"),
        "{variable}={at} of {file}: {said}"
    );
    let outcome = examine(&store, &Said::of(&said)).await;
    assert_eq!(outcome, Outcome::Kept, "{variable}={at} of {file}");
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged_until_reopened() {
    for at in [20, 40] {
        refuse("FAIL_SYNC_AT", ".log", at).await;
    }
    for at in [3, 6] {
        refuse("FAIL_SYNC_AT", "/db", at).await;
    }
    // The spare file of the log.
    refuse("FAIL_SYNC_AT", "/next", 0).await;
    for at in [0, 3] {
        refuse("FAIL_SYNC_AT", ".annex", at).await;
    }
    refuse("FAIL_SYNC_AT", "/annex", 0).await;
}

#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing() {
    for at in [20, 41] {
        refuse("FAIL_WRITE_AT", ".log", at).await;
    }
    for at in [6, 15] {
        refuse("FAIL_WRITE_AT", "/db", at).await;
    }
    refuse("FAIL_WRITE_AT", "/next", 3).await;
    for at in [0, 3] {
        refuse("FAIL_WRITE_AT", ".annex", at).await;
    }
}

#[tokio::test]
async fn without_our_own_sync_a_power_cut_would_be_noticed() {
    let outcomes = cut_power("grow 3 100 200 skip").await;
    let lost = outcomes.iter().filter(|cut| !cut.is_kept());
    assert!(
        lost.count() > CUTS,
        "the test sees what it should see: {outcomes:?}"
    );
}
