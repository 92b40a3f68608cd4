//! What a child does whose annex is to be compacted: it fills some files, deletes most runs of each, and waits until what
//! is left was moved together.
//!
//! Owns that work. It says `deleting` before it begins to delete: from there on only a compaction writes to the annex.

use std::path::Path;
use std::time::{Duration, Instant};

use workflow_runtime::store::sled::SledStore;
use workflow_runtime::store::{Creation, Epoch, Store, StoreError};

use super::child::{expect_stopped, say, small_log};
use super::work::{append, ending, id, new_run};

/// One run in so many is kept: less than a quarter, below which a file is compacted.
const KEPT: u64 = 8;

/// The archiver is that far behind only if it hangs.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Does it with so many runs of two frames of this length.
pub(super) async fn tidy(path: &Path, runs: u64, len: usize) {
    let store = SledStore::open(path, small_log()).expect("the store opens");
    for n in 0..runs {
        let created = store.create(new_run(n, len)).await.expect("created");
        let Creation::Created(epoch) = created else {
            panic!("{n} is taken");
        };
        let ended = store.append(ending(n, epoch, 1, len)).await;
        ended.expect("ended");
        say(&format!("ack {n} 2 {len}"));
    }
    let all = runs * 2 * len as u64;
    wait_until(|| annex_bytes(path) > all).await;
    say("deleting");
    let going: Vec<u64> = (0..runs).filter(|n| n % KEPT > 0).collect();
    for n in &going {
        say(&format!("going {n}"));
    }
    match store.delete(going.iter().map(|n| id(*n)).collect()).await {
        Ok(count) => {
            assert_eq!(count, going.len() as u64);
            for n in &going {
                say(&format!("gone {n}"));
            }
            wait_until(|| annex_bytes(path) < all / 2 || store.failure().is_some()).await;
        }
        Err(StoreError::Failed { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    // What is left to be compacted may fail as late as this.
    match store.create(new_run(runs, len)).await {
        Ok(_) => {
            say(&format!("ack {runs} 1 {len}"));
            std::mem::forget(store);
        }
        Err(StoreError::Failed { .. }) => {
            expect_stopped(&store, append(0, Epoch::FIRST, 2, len)).await;
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns how long the files of the annex are together.
fn annex_bytes(store: &Path) -> u64 {
    let Ok(files) = std::fs::read_dir(store.join("annex")) else {
        return 0; // it is made with the first file
    };
    let lengths = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
    lengths.sum()
}

async fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANGS_AFTER, "it never comes to that");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
