//! Runs that left memory, through the engine: what they cost, and whether they are back in time.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use workflow_runtime::journal::Event;
use workflow_runtime::store::Durability;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::{Engine, RunId, sleep, sleep_until, workflow};

use crate::engine::{resident_bytes, runtime, trivial};
use crate::report::Figure;
use crate::sleepers::id;

/// sled's cache, kept so small that the entries of a quarter of the runs fill it: a cache that fills up
/// between two measurements would be taken for what a run costs. sled counts bytes on disk, of which its nodes take about
/// ten times as much in memory: by a heap profile 1 MiB were 2,200 nodes with 25,000 runs and 6,600 with 100,000.
const CACHE: u64 = 128 * 1024;

/// How many runs are being started at once.
const STARTS_AT_ONCE: u64 = 64;

/// How many are in memory at most before they leave it: a process keeps most of the memory that its
/// busiest moment took, and that is not what a sleeping run takes.
const AWAKE_AT_ONCE: usize = 512;

/// How long a run waits in memory before it leaves: short, so that few are there at once.
const EVICT_AFTER: Duration = Duration::from_millis(50);

#[workflow]
async fn reminder(n: u64) -> u64 {
    // Not due in the order of their starts, as reminders are: the store sorts them by time.
    let seconds = 30 * 24 * 3600 + n * 7_919 % 1_000_000;
    let n = trivial(n).await;
    sleep(Duration::from_secs(seconds)).await;
    n
}

#[workflow]
async fn alarm(at_micros: u64) -> u64 {
    sleep_until(SystemTime::UNIX_EPOCH + Duration::from_micros(at_micros)).await;
    at_micros
}

async fn open(path: &Path, durability: Durability) -> Engine {
    let options = SledOptions::default().cache_bytes(CACHE);
    let store = SledStore::open(path, options).expect("the store opens");
    Engine::builder()
        .register::<reminder>()
        .register::<alarm>()
        .durability(durability)
        .evict_after(EVICT_AFTER)
        .open_with(store)
        .await
        .expect("the engine opens")
}

/// Waits until nothing is in memory.
async fn all_left(engine: &Engine) {
    let began = Instant::now();
    while engine.runs_in_memory() > 0 {
        let left = engine.runs_in_memory();
        assert!(began.elapsed() < Duration::from_secs(600), "{left} stay");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Looks through all runs that sleep; seconds.
async fn look_through(engine: &Engine, runs: u64) -> f64 {
    let began = Instant::now();
    let asleep = engine.runs_asleep().await.expect("counted");
    assert_eq!(asleep, runs);
    began.elapsed().as_secs_f64()
}

/// Starts runs of `reminder`, as a service would.
async fn start_reminders(engine: &Engine, runs: u64) {
    let tasks: Vec<_> = (0..STARTS_AT_ONCE)
        .map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                for n in (task..runs).step_by(STARTS_AT_ONCE as usize) {
                    while engine.runs_in_memory() > AWAKE_AT_ONCE {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    engine.start(reminder(n)).await.expect("it starts");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task ends");
    }
}

/// Fills a store with runs that fall asleep; prints what the process grew by for each after the first
/// quarter: sled's cache is full by then, and what is allocated once is there.
pub fn fill(path: &Path, runs: u64) {
    runtime().block_on(async {
        let engine = open(path, Durability::Buffered).await;
        let first = runs / 4;
        start_reminders(&engine, first).await;
        all_left(&engine).await;
        settle().await;
        let before = resident_bytes();
        start_reminders(&engine, runs - first).await;
        all_left(&engine).await;
        settle().await;
        let each = (resident_bytes() - before) / (runs - first) as f64;
        println!("{each}");
        look_through(&engine, runs).await;
        engine.shutdown().await.expect("it stops");
    });
}

/// Opens a store of sleeping runs in a process that did not make them; prints how long that took
/// and what the process grew by.
pub fn reload(path: &Path, runs: u64) {
    runtime().block_on(async {
        let before = resident_bytes();
        let began = Instant::now();
        let engine = open(path, Durability::Buffered).await;
        let opened = began.elapsed().as_secs_f64();
        settle().await;
        let grown = resident_bytes() - before;
        // Last: it fills sled's cache, and the engine never does it.
        let known = opened + look_through(&engine, runs).await;
        println!("{opened} {known} {grown}");
        engine.shutdown().await.expect("it stops");
    });
}

/// Prints what an index of so many times and ids needs for each, and nothing else.
pub fn index(runs: u64) {
    let before = resident_bytes();
    let mut index: BTreeSet<(u64, RunId)> = BTreeSet::new();
    for n in 0..runs {
        index.insert((n, id(n)));
    }
    let each = (resident_bytes() - before) / index.len() as f64;
    println!("{each}");
}

/// Measures so many sleeping runs. Says whether they cost no more and are back as soon as asked.
///
/// What a process takes whatever it holds (sled's tables, its cache) is not a run's: a restart is measured
/// with a quarter of the runs as well, and a run is what the difference comes to.
pub fn sleepers(scratch: &Path, runs: u64) -> bool {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    let path = |runs: u64| {
        let path = directory.path().join(runs.to_string());
        path.to_str().expect("a path of text").to_owned()
    };
    let fill = |runs: u64| child(&["fill-asleep", &runs.to_string(), &path(runs)])[0];
    let reload = |runs: u64| child(&["reload-asleep", &runs.to_string(), &path(runs)]);
    let few = runs / 4;
    let index = child(&["index-memory", &runs.to_string()])[0];
    fill(few);
    let filling = fill(runs);
    let of_few = reload(few);
    let of_all = reload(runs);
    let each = (of_all[2] - of_few[2]) / (runs - few) as f64;
    let figure = |metric, value| Figure::engine("sleepers", metric, value);
    let figures = [
        figure("bytes_per_run_of_an_index", index),
        figure("bytes_per_run_falling_asleep", filling),
        figure("bytes_per_run_falling_asleep_beyond_index", filling - index).at_most(200.0),
        figure("bytes_after_restart_with_a_quarter", of_few[2]),
        figure("bytes_after_restart", of_all[2]),
        figure("bytes_per_run_after_restart", each),
        figure("bytes_per_run_after_restart_beyond_index", each - index).at_most(200.0),
        figure("open_s", of_all[0]),
        figure("all_looked_through_s", of_all[1]).at_most(5.0),
    ];
    figures
        .iter()
        .fold(true, |met, figure| figure.print() & met)
}

/// Runs this program as another process; the numbers that it prints.
pub fn child(words: &[&str]) -> Vec<f64> {
    let output = std::process::Command::new(std::env::current_exe().expect("our own path"))
        .arg("child")
        .args(words)
        .stderr(std::process::Stdio::inherit())
        .output()
        .expect("a child can be started");
    assert!(output.status.success(), "{words:?} failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.split_whitespace().map(str::parse);
    numbers.map(|number| number.expect("a number")).collect()
}

/// Has so many timers due at the same moment, of runs that all left memory before.
/// Says whether none was early and none later than asked.
pub fn timers(scratch: &Path, runs: u64) -> bool {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    runtime().block_on(async {
        let engine = open(&directory.path().join("store"), Durability::Synced).await;
        let due = SystemTime::now() + Duration::from_secs(20);
        let due_micros = due
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("now is after 1970");
        let due_micros = u64::try_from(due_micros.as_micros()).expect("not that far");
        let tasks: Vec<_> = (0..STARTS_AT_ONCE)
            .map(|task| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut started = Vec::new();
                    for _ in (task..runs).step_by(STARTS_AT_ONCE as usize) {
                        started.push(engine.start(alarm(due_micros)).await.expect("it starts"));
                    }
                    started
                })
            })
            .collect();
        let mut started = Vec::new();
        for task in tasks {
            started.extend(task.await.expect("a task ends"));
        }
        all_left(&engine).await;
        assert!(SystemTime::now() < due, "all sleep before they are due");
        let (mut soonest, mut latest) = (f64::INFINITY, f64::NEG_INFINITY);
        for run in &started {
            run.result().await.expect("it ends");
        }
        let ended = SystemTime::now()
            .duration_since(due)
            .expect("none ends before");
        for run in &started {
            let lateness = lateness(&engine, run.id()).await;
            soonest = soonest.min(lateness);
            latest = latest.max(lateness);
        }
        engine.shutdown().await.expect("it stops");
        let figure = |metric, value| Figure::engine("timers", metric, value);
        let early = figure("soonest_s_after_deadline", soonest)
            .at_least(0.0)
            .print();
        let late = figure("latest_s_after_deadline", latest)
            .at_most(2.0)
            .print();
        figure("all_ended_s_after_deadline", ended.as_secs_f64()).print();
        early && late
    })
}

/// Seconds from a timer's deadline to the record that it fired.
async fn lateness(engine: &Engine, run: RunId) -> f64 {
    let journal = engine.journal(run).await.expect("it has a journal");
    let (mut deadline, mut fired) = (None, None);
    for record in journal.records() {
        match &record.event {
            Event::TimerSet(timer) => deadline = Some(timer.deadline),
            Event::TimerFired(_) => fired = Some(record.time),
            _ => {}
        }
    }
    let deadline = deadline.expect("its timer was set").as_micros() as f64;
    let fired = fired.expect("its timer fired").as_micros() as f64;
    (fired - deadline) / 1e6
}

/// Lets the store archive what it holds and memory be given back.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(2_500)).await;
}
