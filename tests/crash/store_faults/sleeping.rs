//! Power cuts where runs that sleep in the log are most at risk: right after a file of the log was removed.
//!
//! Such a run needs nothing that the log told of it before it fell asleep, so files with its beginning go. The record that took their place
//! must be on the disk before that, although nobody asked for a sync of it. Stories have frames so short that they sleep in the
//! log, and files of it so small that many come and go.

use super::cut::{Luck, Recording, cuts, spread};
use super::disk::Record;

/// At how many moments of each kind the power is cut, unless the variable `STORE_CUTS` says more.
const MOMENTS: usize = 24;

fn is_log(record: &Record) -> bool {
    record.path.extension().is_some_and(|end| end == "log")
}

async fn expect_kept(task: &str, kind: u8, lucks: impl Fn(usize) -> Vec<Luck>) {
    let recording = Recording::of(task);
    let all = recording.which(|record| is_log(record) && record.kind == kind);
    let moments = spread(&all, cuts(MOMENTS));
    assert!(moments.len() > 3, "`{task}` has such moments: {moments:?}");
    recording.expect_kept(task, moments, lucks).await;
}

#[tokio::test]
async fn a_file_of_the_log_is_there_until_those_who_sleep_behind_it_are_on_the_disk() {
    expect_kept("tell 3 150 200 short", b'U', |_| vec![Luck::Names]).await;
    expect_kept("doze 400 300", b'U', |_| vec![Luck::Names]).await;
}

#[tokio::test]
async fn a_power_cut_while_runs_fall_asleep_in_the_log_and_are_woken_loses_nothing() {
    let lucks = |at: usize| {
        let seed = at as u64;
        vec![Luck::None, Luck::Some(seed), Luck::Pages(seed, 4)]
    };
    expect_kept("tell 3 150 200 short", b'W', lucks).await;
    expect_kept("doze 400 300", b'W', lucks).await;
}
