//! `engine.once`: answers from the record, and first executions.

use std::path::Path;
use std::time::Instant;

use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, Error};

use crate::floor;
use crate::report::{Figure, median};

/// Answers of one measurement.
const ANSWERS: u64 = 200_000;

/// Keys that they are spread over.
const KEYS: u64 = 1_000;

/// First executions of one measurement on disk.
const FIRSTS: u64 = 2_000;

async fn once(engine: &Engine, key: u64) {
    let body = ("ada", key);
    let work = async || Ok::<_, Error>(format!("charged {} {}", body.0, body.1));
    let outcome = engine.once(key).body(&body).run(work).await;
    assert!(outcome.expect("it is done").starts_with("charged ada"));
}

/// How many times this process has asked the system to write.
fn write_calls() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("Linux tells");
    let line = io.lines().find_map(|line| line.strip_prefix("syscw: "));
    line.expect("it is there").parse().expect("a number")
}

/// Counts durable writes: of a first execution, and of an answer from the record.
fn writes() -> (f64, f64) {
    one_core().block_on(async {
        let store = MemoryStore::new();
        let engine = Engine::builder().open_with(store.clone()).await;
        let engine = engine.expect("it opens");
        let before = store.writes();
        for key in 0..KEYS {
            once(&engine, key).await;
        }
        let first = store.writes();
        for n in 0..10 * KEYS {
            once(&engine, n % KEYS).await;
        }
        let (firsts, answers) = (first - before, store.writes() - first);
        (
            firsts as f64 / KEYS as f64,
            answers as f64 / (10 * KEYS) as f64,
        )
    })
}

struct OnDisk {
    firsts_per_second: f64,
    answers_per_second: f64,
    /// Calls of `write` in the whole measurement of answers.
    write_calls: f64,
}

fn on_disk(scratch: &Path) -> OnDisk {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    one_core().block_on(async {
        let engine = Engine::builder().open(directory.path().join("store")).await;
        let engine = engine.expect("it opens");
        let began = Instant::now();
        for key in 0..FIRSTS {
            once(&engine, key).await;
        }
        let firsts = began.elapsed().as_secs_f64();
        // What is archived in the background belongs to the first executions.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let calls = write_calls();
        let began = Instant::now();
        for n in 0..ANSWERS {
            once(&engine, n % KEYS).await;
        }
        let answers = began.elapsed().as_secs_f64();
        let write_calls = write_calls() - calls;
        engine.shutdown().await.expect("it stops");
        OnDisk {
            firsts_per_second: FIRSTS as f64 / firsts,
            answers_per_second: ANSWERS as f64 / answers,
            write_calls: write_calls as f64,
        }
    })
}

fn one_core() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}

/// Measures the guard. Says whether it is what was asked for.
pub fn guard(scratch: &Path, repeats: usize) -> bool {
    let (firsts, answers) = writes();
    let mut all = Figure::engine("guard-first", "durable_writes", firsts)
        .at_most(1.0)
        .print();
    all &= Figure::engine("guard-repeated", "durable_writes", answers)
        .at_most(0.0)
        .print();
    let (mut rates, mut calls) = (Vec::new(), Vec::new());
    let (mut first, mut ratios) = (Vec::new(), Vec::new());
    let mut before = floor::records_per_second(scratch, 1);
    for _ in 0..repeats {
        let measured = on_disk(scratch);
        let after = floor::records_per_second(scratch, 1);
        rates.push(measured.answers_per_second);
        calls.push(measured.write_calls);
        first.push(measured.firsts_per_second);
        ratios.push(measured.firsts_per_second / f64::midpoint(before, after));
        before = after;
    }
    Figure::engine("guard-first", "per_s", median(&mut first))
        .ratio(median(&mut ratios))
        .print();
    all &= Figure::engine("guard-repeated", "per_s", median(&mut rates))
        .at_least(100_000.0)
        .print();
    all &= Figure::engine("guard-repeated", "write_calls", median(&mut calls))
        .at_most(0.0)
        .print();
    all
}
