//! Power cuts where the annex is most at risk: right after sled was told of a record, and right after a file was removed.
//!
//! What sled points to must be on the disk before sled's file is, its name and its directory included; a file must be there until
//! sled's file is on the disk that does not point to it. Owns these two moments; they need no luck.

use super::cut::{Luck, Recording, cuts, spread};
use super::disk::Record;

/// At how many moments of each kind the power is cut, unless the variable `STORE_CUTS` says more.
const MOMENTS: usize = 24;

pub(super) fn is_annex(record: &Record) -> bool {
    record.path.extension().is_some_and(|end| end == "annex")
}

/// Cuts the power at moments of this kind, and expects that nothing is lost.
async fn expect_kept(task: &str, kind: u8, luck: Luck) {
    let recording = Recording::of(task);
    let database = recording.store.join("db");
    let all = recording.which(|record| {
        let is_meant = match kind {
            b'S' => record.path == database,
            _ => is_annex(record),
        };
        is_meant && record.kind == kind
    });
    let moments = spread(&all, cuts(MOMENTS));
    assert!(moments.len() > 3, "`{task}` has such moments: {moments:?}");
    recording.expect_kept(task, moments, |_| vec![luck]).await;
}

#[tokio::test]
async fn what_sled_points_to_is_on_the_disk_before_sled_is() {
    expect_kept("tell 2 40 3000 small", b'S', Luck::None).await;
    expect_kept("grow 1 24 30000 sync", b'S', Luck::None).await;
}

#[tokio::test]
async fn a_file_of_the_annex_is_there_until_nothing_on_the_disk_points_to_it() {
    expect_kept("tell 3 60 3000 small", b'U', Luck::Names).await;
}

/// With files that come, are emptied and go.
#[tokio::test]
async fn a_power_cut_while_files_of_the_annex_come_and_go_loses_nothing() {
    for seed in 0..3 {
        expect_kept("tell 2 60 3000 small", b'W', Luck::Some(seed)).await;
        expect_kept("tell 2 60 3000 small", b'W', Luck::Pages(seed, 4)).await;
    }
}
