//! W6: memory of runs that are suspended, beyond an engine that has none.
//!
//! Everything is at its defaults, and a run leaves memory `evict_after` (10 s) after it fell asleep: what is measured is what is
//! left once all have gone. A child of its own each time; and one in which the allocator has one arena, which shows what is the engine's
//! and what the allocator keeps for threads.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use workflow_runtime::{Engine, sleep, workflow};

use crate::engine::{resident_bytes, runtime};
use crate::report::{Figure, median};

/// Suspended runs.
const RUNS: u64 = 10_000;

/// How many are started at once.
const AT_ONCE: u64 = 64;

/// Runs that are started before anything is counted.
const WARM_UP: u64 = 10;

/// A megabyte, as limits are given.
const MB: f64 = 1e6;

/// How long all of them may take to leave.
const PATIENCE: Duration = Duration::from_secs(120);

#[workflow]
async fn day(n: u64) -> u64 {
    sleep(Duration::from_secs(86_400)).await;
    n
}

/// Has a few runs fall asleep and leave, as in the comparison with others: the pages of the program that this takes are no memory of
/// runs, and are counted as long as nobody has touched them.
async fn warm_up(engine: &Engine) {
    for n in 0..WARM_UP {
        engine.start(day(n)).await.expect("it starts");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Suspends the runs; prints the bytes that the process has grown by when the last began to sleep, and when all had left.
pub fn suspend(path: &Path) {
    runtime().block_on(async {
        let engine = Engine::builder().register::<day>().open(path).await;
        let engine = engine.expect("it opens");
        warm_up(&engine).await;
        let before = resident_bytes();
        let tasks = (0..AT_ONCE).map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for n in (task..RUNS).step_by(AT_ONCE as usize) {
                    engine.start(day(n)).await.expect("it starts");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("a task ends");
        }
        let at_first = resident_bytes() - before;
        let began = Instant::now();
        while engine.runs_in_memory() > 0 {
            assert!(
                began.elapsed() < PATIENCE,
                "{} have not left",
                engine.runs_in_memory()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The store archives behind them.
        tokio::time::sleep(Duration::from_secs(3)).await;
        println!("{at_first} {}", resident_bytes() - before);
        // Without an orderly stop, so that a heap profile of this process shows what is there now.
        std::process::exit(0);
    });
}

/// Measures it. Says whether it is what was asked for.
pub fn suspended(scratch: &Path, repeats: usize) -> bool {
    let (mut at_first, mut left, mut one_arena) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let said = child(scratch, None);
        at_first.push(said[0] / MB);
        left.push(said[1] / MB);
        one_arena.push(child(scratch, Some("1"))[1] / MB);
    }
    let figure =
        |metric, values: &mut [f64]| Figure::engine("suspended-10000", metric, median(values));
    figure("grown_mb_before_they_leave", &mut at_first).print();
    figure("grown_mb_of_one_arena", &mut one_arena).print();
    figure("grown_mb", &mut left).at_most(5.0).print()
}

fn child(scratch: &Path, arenas: Option<&str>) -> Vec<f64> {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command
        .args(["child", "suspend"])
        .arg(directory.path().join("store"));
    if let Some(arenas) = arenas {
        command.env("MALLOC_ARENA_MAX", arenas);
    }
    let output = command.output().expect("a child can be started");
    assert!(output.status.success(), "the child failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.split_whitespace().map(str::parse);
    numbers.map(|number| number.expect("a number")).collect()
}
