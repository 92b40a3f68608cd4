//! Power cuts where the annex is most at risk: right after sled was told of a record, and right after a file was removed.
//!
//! What sled points to must be on the disk before sled's file is, its name and its directory included; a file must be there until
//! sled's file is on the disk that does not point to it. Owns these two moments; they need no luck.

use super::child;
use super::disk::{Disk, Record};
use super::power::{Luck, Outcome, cuts, examine, record};

/// At how many moments of each kind the power is cut, unless the variable `STORE_CUTS` says more.
const MOMENTS: usize = 24;

/// Returns some of the moments at which something happened, spread evenly.
fn some(records: &[Record], is_meant: impl Fn(&Record) -> bool) -> Vec<usize> {
    let all: Vec<usize> = (0..records.len())
        .filter(|at| is_meant(&records[*at]))
        .collect();
    let most = cuts(MOMENTS).min(all.len());
    (1..=most).map(|i| all[i * all.len() / most - 1]).collect()
}

fn is_annex(record: &Record) -> bool {
    record.path.extension().is_some_and(|end| end == "annex")
}

/// Cuts the power at these moments, and expects that nothing is lost.
async fn expect_kept(task: &str, kind: u8, luck: Luck) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (store, records) = record(task, directory.path());
    let database = store.join("db");
    let moments = some(&records, |record| {
        let is_meant = match kind {
            b'S' => record.path == database,
            _ => is_annex(record),
        };
        is_meant && record.kind == kind
    });
    assert!(moments.len() > 3, "`{task}` has such moments: {moments:?}");
    let after = directory.path().join("after");
    let mut disk = Disk::default();
    let mut said = String::new();
    for (at, record) in records.iter().enumerate() {
        if record.kind == b'A' {
            said.push_str(&String::from_utf8_lossy(&record.data));
        }
        disk.play(record);
        if moments.contains(&at) {
            luck.survive(&disk, &store, &after);
            let (acknowledged, told) = (child::acknowledged(&said), child::told(&said));
            assert_eq!(
                examine(&after, &acknowledged, &told).await,
                Outcome::Kept,
                "`{task}`, power cut after record {at}, {luck:?}"
            );
        }
    }
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
