//! W9, taken apart: how long the removal of finished runs takes, whether the space that they had is used again, and what is given back when the
//! store is opened next.

use std::path::Path;
use std::time::{Duration, Instant};

use workflow_runtime::store::Durability;
use workflow_runtime::{Engine, Retention, workflow};

use crate::engine::{runtime, trivial};
use crate::finished::disk_bytes;
use crate::report::Figure;

/// How many are under way at once.
const AT_ONCE: u64 = 64;

/// How long the store is left alone before it is looked at.
const SETTLE: Duration = Duration::from_secs(2);

/// A megabyte, as limits are given.
const MB: f64 = 1e6;

#[workflow]
async fn ten(n: u64) -> u64 {
    let mut n = n;
    for _ in 0..10 {
        n = trivial(n).await;
    }
    n
}

async fn open(path: &Path) -> Engine {
    let builder = Engine::builder()
        .register::<ten>()
        .durability(Durability::Buffered)
        .retention(Retention::of(Duration::ZERO));
    builder.open(path).await.expect("it opens")
}

/// Finishes the runs, and returns the megabytes on disk after that.
async fn fill(engine: &Engine, path: &Path, runs: u64) -> f64 {
    let tasks = (0..AT_ONCE).map(|task| {
        let engine = engine.clone();
        tokio::spawn(async move {
            for n in (task..runs).step_by(AT_ONCE as usize) {
                let run = engine.start(ten(n)).await.expect("it starts");
                assert_eq!(run.result().await.expect("it ends"), n + 10);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task ends");
    }
    tokio::time::sleep(SETTLE).await;
    disk_bytes(path) as f64 / MB
}

/// Removes what has ended. Returns the seconds that it took, and the megabytes that are left.
async fn remove(engine: &Engine, path: &Path, runs: u64) -> (f64, f64) {
    let began = Instant::now();
    let removed = engine.sweep().await.expect("it sweeps");
    let took = began.elapsed().as_secs_f64();
    assert_eq!(removed, runs, "all have ended");
    tokio::time::sleep(SETTLE).await;
    (took, disk_bytes(path) as f64 / MB)
}

/// Measures it. Says whether the second half fits into the space of the first, and removal is faster than a thousandth of a second a run.
pub fn removal(scratch: &Path, runs: u64) -> bool {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    let path = directory.path().join("store");
    runtime().block_on(async {
        let engine = open(&path).await;
        let full = fill(&engine, &path, runs).await;
        let (took, left) = remove(&engine, &path, runs).await;
        let again = fill(&engine, &path, runs).await;
        let (took_again, left_again) = remove(&engine, &path, runs).await;
        engine.shutdown().await.expect("it stops");
        let closed = disk_bytes(&path) as f64 / MB;
        let engine = open(&path).await;
        let reopened = disk_bytes(&path) as f64 / MB;
        engine.shutdown().await.expect("it stops");
        let figure = |metric, value| Figure::engine("removal", metric, value);
        let figures = [
            figure("runs", runs as f64),
            figure("disk_mb_full", full),
            figure("removal_us_per_run", took * 1e6 / runs as f64).at_most(100.0),
            figure("disk_mb_after_removal", left),
            figure("disk_mb_full_again_to_full", again / full).at_most(1.25),
            figure("second_removal_us_per_run", took_again * 1e6 / runs as f64).at_most(100.0),
            figure("disk_mb_after_second_removal", left_again),
            figure("disk_mb_closed", closed),
            figure("disk_mb_opened_again", reopened),
        ];
        figures
            .iter()
            .fold(true, |met, figure| figure.print() & met)
    })
}
