//! What sleeping runs cost the embedded store: memory, opening, finding them again.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use workflow_runtime::clock::Timestamp;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{Durability, NewRun, RunHeader, RunState, Sleeper, Store};
use workflow_runtime::{Digest, RunId};

use crate::engine::{resident_bytes, runtime};
use crate::report::Figure;

/// sled's cache, kept small so that it is not taken for what a run costs.
const CACHE: u64 = 4 * 1024 * 1024;

/// How many creations are under way at once.
const AT_ONCE: u64 = 1_024;

/// How many sleepers are read at once.
const PAGE: usize = 1_000;

fn open(path: &Path) -> Arc<SledStore> {
    let options = SledOptions::default().cache_bytes(CACHE);
    Arc::new(SledStore::open(path, options).expect("it opens"))
}

/// Returns an id that looks random and is not (the finalizer of splitmix64).
pub fn id(n: u64) -> RunId {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&x.to_be_bytes());
    bytes[8..].copy_from_slice(&x.rotate_left(29).to_be_bytes());
    RunId::from_bytes(bytes)
}

fn new_run(n: u64) -> NewRun {
    NewRun {
        header: RunHeader {
            run: id(n),
            namespace: "default".into(),
            workflow: "reminder".into(),
            version: 1,
            key: Some(format!("customer-{n}").into()),
            input_digest: Digest::from_bytes([0; 16]),
            created_at: Timestamp::from_micros(1_700_000_000_000_000 + n),
            origin: None,
            state: RunState::Asleep {
                wake_at: Some(Timestamp::from_micros(
                    1_800_000_000_000_000 + n * 7_919 % 1_000_000,
                )),
            },
        },
        first: vec![7; 200].into(),
        rest: Vec::new(),
        durability: Durability::Buffered,
    }
}

async fn fill(store: &Arc<SledStore>, from: u64, runs: u64) {
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for n in (from + task..from + runs).step_by(AT_ONCE as usize) {
                    store.create(new_run(n)).await.expect("created");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task ends");
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
}

/// Fills a store with sleeping runs, and says what that cost.
pub fn fill_store(path: &Path, runs: u64) {
    runtime().block_on(async {
        let store = open(path);
        fill(&store, 0, runs / 10).await; // what is allocated once is not a run's
        let before = resident_bytes();
        let begun = Instant::now();
        fill(&store, runs / 10, runs - runs / 10).await;
        let more = (runs - runs / 10) as f64;
        let rate = more / begun.elapsed().as_secs_f64();
        let each = (resident_bytes() - before) / more;
        Figure::engine("sleepers-store", "created_per_s", rate).print();
        Figure::engine("sleepers-store", "bytes_per_run_while_filling", each).print();
    });
}

/// Measures so many sleeping runs, in a process that did not make them.
pub fn sleepers(scratch: &Path, runs: u64) {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    let path = directory.path().join("store");
    let filled = std::process::Command::new(std::env::current_exe().expect("our own path"))
        .args(["child", "fill-sleepers", &runs.to_string()])
        .arg(&path)
        .status()
        .expect("a child can be started");
    assert!(filled.success(), "the store is filled");
    runtime().block_on(async {
        let before = resident_bytes();
        for opening in ["open_ms", "open_again_ms"] {
            let begun = Instant::now();
            let store = open(&path);
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            Figure::engine("sleepers-store", opening, ms).print();
            let each = (resident_bytes() - before) / runs as f64;
            Figure::engine("sleepers-store", "bytes_per_run_opened", each).print();
            let begun = Instant::now();
            assert_eq!(count(&store).await, runs, "all are found");
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            Figure::engine("sleepers-store", "list_all_ms", ms).print();
            let each = (resident_bytes() - before) / runs as f64;
            Figure::engine("sleepers-store", "bytes_per_run_listed", each).print();
        }
    });
}

/// Pages through all sleepers.
async fn count(store: &SledStore) -> u64 {
    let mut last: Option<Sleeper> = None;
    let mut count = 0;
    loop {
        let page = store.asleep(last, PAGE).await.expect("listed");
        let Some(end) = page.last() else {
            return count;
        };
        count += page.len() as u64;
        last = Some(end.clone());
    }
}
