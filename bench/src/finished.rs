//! A store with many finished runs: what the engine keeps of them in memory, how long opening takes, what they take on disk.
//!
//! One child makes the runs, says what it has grown by, starts a thousand that do not end and goes without an orderly stop; another opens that
//! store. What is left after retention is W9's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use workflow_runtime::store::Durability;
use workflow_runtime::{Engine, EngineBuilder, step, workflow};

use crate::engine::{resident_bytes, runtime, trivial};
use crate::leaving::child;
use crate::report::Figure;

/// Runs that have not ended.
const UNFINISHED: u64 = 1_000;

/// How many are under way at once.
const AT_ONCE: u64 = 1_024;

/// A megabyte, as limits are given.
const MB: f64 = 1e6;

/// How long the store is left alone before it is looked at.
const SETTLE: Duration = Duration::from_secs(5);

/// Counts the runs that are at a step which never ends.
#[derive(Default)]
struct Stuck(AtomicU64);

#[step]
async fn stuck(#[resource] at: &Stuck) -> bool {
    at.0.fetch_add(1, Ordering::Relaxed);
    std::future::pending().await
}

#[workflow]
async fn short(n: u64) -> u64 {
    trivial(n).await
}

#[workflow]
async fn unfinished(n: u64) -> bool {
    trivial(n).await;
    stuck().await
}

fn builder() -> (EngineBuilder, Arc<Stuck>) {
    let at = Arc::new(Stuck::default());
    let builder = Engine::builder()
        .register::<short>()
        .register::<unfinished>()
        .durability(Durability::Buffered)
        .resource_arc(at.clone());
    (builder, at)
}

async fn all_stuck(at: &Stuck) {
    while at.0.load(Ordering::Relaxed) < UNFINISHED {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Makes the runs; prints the bytes that the process has grown by, and what its store has on disk.
/// Ends without an orderly stop.
pub fn fill(path: &Path, runs: u64) {
    runtime().block_on(async {
        let (builder, at) = builder();
        let engine = builder.open(path).await.expect("it opens");
        let before = resident_bytes();
        let tasks = (0..AT_ONCE).map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for n in (task..runs).step_by(AT_ONCE as usize) {
                    let run = engine.start(short(n)).await.expect("it starts");
                    assert_eq!(run.result().await.expect("it ends"), n + 1);
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("a task ends");
        }
        tokio::time::sleep(SETTLE).await;
        let grown = resident_bytes() - before;
        let bytes = disk_bytes(path);
        for n in 0..UNFINISHED {
            engine.start(unfinished(n)).await.expect("it starts");
        }
        all_stuck(&at).await;
        println!("{grown} {bytes} {}", resident_bytes());
        std::process::exit(0);
    });
}

/// Opens such a store; prints the seconds until the engine is open and until all unfinished runs are where they were.
pub fn open(path: &Path) {
    runtime().block_on(async {
        let (builder, at) = builder();
        let began = Instant::now();
        let engine = builder.open(path).await.expect("it opens");
        let opened = began.elapsed().as_secs_f64();
        all_stuck(&at).await;
        let resumed = began.elapsed().as_secs_f64();
        println!("{opened} {resumed}");
        let stopped = engine.shutdown().grace(Duration::ZERO).await;
        stopped.expect("it stops");
    });
}

/// What a directory takes on disk: allocated blocks, not lengths of files.
pub fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let each = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // Removed meanwhile.
        Err(_) => 0,
    });
    each.sum()
}

/// Measures so many finished runs. Says whether all is what was asked for.
pub fn finished(scratch: &Path, runs: u64) -> bool {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    let path = directory.path().join("store");
    let path = path.to_str().expect("a path of text");
    let filled = child(&["fill-finished", &runs.to_string(), path]);
    let opened = child(&["open-finished", path]);
    let figure = |metric, value| Figure::engine("finished-runs", metric, value);
    let figures = [
        figure("runs", runs as f64),
        figure("grown_mb", filled[0] / MB).at_most(150.0),
        figure("resident_mb_with_unfinished_runs", filled[2] / MB),
        figure("open_s", opened[0]).at_most(1.0),
        figure("all_unfinished_resumed_s", opened[1]),
        figure("disk_bytes_per_run_of_one_step", filled[1] / runs as f64),
    ];
    figures
        .iter()
        .fold(true, |met, figure| figure.print() & met)
}
