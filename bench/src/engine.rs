//! The same work through the engine, on its embedded store, synced.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use workflow_runtime::store::Durability;
use workflow_runtime::{Engine, sleep, step, workflow};

use super::cost::processor_time;
use super::floor::{self, DURATION};

/// Steps of one run in the throughput workloads. A start and an end are synced too, and are not
/// counted.
pub const STEPS_PER_RUN: u64 = 500;

/// Steps of a short run, in which the start and the end weigh.
pub const STEPS_PER_SHORT_RUN: u64 = 50;

/// The runtime that everything is measured on.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

#[step]
pub async fn trivial(n: u64) -> u64 {
    n + 1
}

#[workflow]
async fn chain(steps: u64) -> u64 {
    let mut n = 0;
    while n < steps {
        n = trivial(n).await;
    }
    n
}

pub fn fresh(scratch: &Path) -> tempfile::TempDir {
    tempfile::tempdir_in(scratch).expect("a directory can be made")
}

pub async fn open(path: &Path, durability: Durability) -> Engine {
    Engine::builder()
        .register::<chain>()
        .durability(durability)
        .open(path.join("store"))
        .await
        .expect("the store opens")
}

/// Runs `at_once` chains of so many steps at a time until the time is up; steps per second.
pub fn steps_per_second(scratch: &Path, at_once: usize, steps: u64) -> f64 {
    let dir = fresh(scratch);
    runtime().block_on(async {
        let engine = open(dir.path(), Durability::Synced).await;
        let rate = drive(&engine, at_once, steps, |began, _| {
            began.elapsed() < DURATION
        })
        .await;
        engine.shutdown().await.expect("it stops");
        rate
    })
}

/// Starts runs, `at_once` at a time, as long as `more` says so; steps per second.
pub async fn drive(
    engine: &Engine,
    at_once: usize,
    steps: u64,
    more: impl Fn(Instant, u64) -> bool + Send + Sync + 'static,
) -> f64 {
    let more = Arc::new(more);
    let done = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let (engine, more, done) = (engine.clone(), more.clone(), done.clone());
            tokio::spawn(async move {
                while more(began, done.load(Ordering::Relaxed)) {
                    let run = engine.start(chain(steps)).await.expect("it starts");
                    assert_eq!(run.result().await.expect("it ends"), steps);
                    done.fetch_add(steps, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task ends");
    }
    done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// What one slice of a long run of the engine took.
pub struct Slice {
    /// Steps per second, as a part of the floor's records right before and after it.
    pub ratio: f64,
    pub cpu_us_per_step: f64,
}

/// Measures every `slice` steps until `total` steps are journaled, 1,024 runs at a time, with the floor
/// between them.
pub fn sustained(scratch: &Path, total: u64, slice: u64) -> Vec<Slice> {
    let dir = fresh(scratch);
    let runtime = runtime();
    let engine = runtime.block_on(open(dir.path(), Durability::Synced));
    let mut slices = Vec::new();
    let mut before = floor::records_per_second(scratch, 1024);
    for _ in 0..total / slice {
        let cpu = processor_time();
        // Each run takes ten steps; those that have begun when there are enough still end.
        let rate = drive(&engine, 1024, 10, move |_, done| done + 10_240 <= slice);
        let rate = runtime.block_on(rate);
        let cpu = processor_time() - cpu;
        let after = floor::records_per_second(scratch, 1024);
        slices.push(Slice {
            ratio: rate / f64::midpoint(before, after),
            cpu_us_per_step: cpu.as_secs_f64() * 1e6 / slice as f64,
        });
        before = after;
    }
    let stopped = runtime.block_on(engine.shutdown().into_future());
    stopped.expect("it stops");
    slices
}

/// Says that a replayed run has got to where nothing is recorded.
struct Frontier {
    reached: Notify,
    stay: AtomicBool,
}

#[step]
async fn frontier(#[resource] frontier: &Frontier) -> bool {
    frontier.reached.notify_one();
    if frontier.stay.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    true
}

#[workflow]
async fn chain_to_frontier(steps: u64) -> bool {
    let mut n = 0;
    while n < steps {
        n = trivial(n).await;
    }
    frontier().await
}

/// What replaying a run took.
pub struct Replay {
    /// Steps per second from the moment the engine is open to the first new step.
    pub steps_per_second: f64,
    /// Processor time from the beginning of the opening on.
    pub cpu: Duration,
    /// Opening the store and the engine.
    pub open_ms: f64,
}

/// Records a run of `steps` steps, stops before its end, and measures its replay.
pub fn replay(scratch: &Path, steps: u64) -> Replay {
    let dir = fresh(scratch);
    let builder = |stay| {
        let frontier = Arc::new(Frontier {
            reached: Notify::new(),
            stay: AtomicBool::new(stay),
        });
        let builder = Engine::builder()
            .register::<chain_to_frontier>()
            .durability(Durability::Buffered)
            .resource_arc(frontier.clone());
        (builder, frontier)
    };
    let path = dir.path().join("store");
    runtime().block_on(async {
        let (first, recorded) = builder(true);
        let engine = first.open(&path).await.expect("it opens");
        engine
            .start(chain_to_frontier(steps))
            .key("it")
            .await
            .expect("it starts");
        recorded.reached.notified().await;
        engine
            .shutdown()
            .grace(Duration::ZERO)
            .await
            .expect("it stops");
    });
    // Another runtime, as another process would have.
    runtime().block_on(async {
        let (second, replayed) = builder(false);
        let (began, cpu) = (Instant::now(), processor_time());
        let engine = second.open(&path).await.expect("it opens");
        let opened = Instant::now();
        replayed.reached.notified().await;
        let took = opened.elapsed();
        let cpu = processor_time() - cpu;
        engine.shutdown().await.expect("it stops");
        Replay {
            cpu,
            steps_per_second: steps as f64 / took.as_secs_f64(),
            open_ms: (opened - began).as_secs_f64() * 1000.0,
        }
    })
}

#[workflow]
async fn one_step_then_sleep(n: u64) -> u64 {
    let n = trivial(n).await;
    sleep(Duration::from_secs(3600)).await;
    n
}

/// Resident bytes per run that waits in memory.
pub fn waiting_memory(scratch: &Path, evict_after: Option<Duration>) -> f64 {
    const RUNS: u64 = 64 * 200;
    let dir = fresh(scratch);
    runtime().block_on(async {
        let engine = Engine::builder()
            .register::<one_step_then_sleep>()
            .durability(Durability::Buffered)
            .evict_after(evict_after)
            .open(dir.path().join("store"))
            .await
            .expect("it opens");
        // As a service would: 64 starts at a time.
        let start = async |runs: u64| {
            let tasks: Vec<_> = (0..64)
                .map(|_| {
                    let engine = engine.clone();
                    tokio::spawn(async move {
                        for n in 0..runs / 64 {
                            let started = engine.start(one_step_then_sleep(n)).await;
                            started.expect("it starts");
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("a task ends");
            }
        };
        start(640).await; // what is allocated once is not a run's
        settle().await;
        let before = resident_bytes();
        start(RUNS).await;
        settle().await;
        let after = resident_bytes();
        engine
            .shutdown()
            .grace(Duration::ZERO)
            .await
            .expect("it stops");
        (after - before) / RUNS as f64
    })
}

/// Lets the runs get to their sleep.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// Returns how much memory this process has.
pub fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a process has a resident size");
    let kib: f64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number");
    kib * 1024.0
}

/// Milliseconds from nothing to an open engine on an empty directory.
pub fn open_empty(scratch: &Path) -> f64 {
    let dir = fresh(scratch);
    runtime().block_on(async {
        let began = Instant::now();
        let engine = open(dir.path(), Durability::Synced).await;
        let took = began.elapsed();
        engine.shutdown().await.expect("it stops");
        took.as_secs_f64() * 1000.0
    })
}
