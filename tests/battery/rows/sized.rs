//! Much of one thing: a run of many steps at once, a run with a long history, many runs. Time grows with the size and not
//! faster; memory stays below a bound for each of them.
//!
//! Each is done by a child in two sizes, a quarter and the whole, which are compared.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use workflow_runtime::{Engine, Result, step, workflow};

use super::Case;
use super::child::{self, Process};
use super::scratch;
use super::workload::Line;

/// A child that is not done after so long is stuck.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Runs that are started at the same time.
const AT_ONCE: u64 = 256;

/// Four times as much may take so many times the processor's time: 4 is linear, 16 would be quadratic.
const FACTOR: u32 = 6;

/// Below this a difference in time says nothing: it is counted in hundredths of a second.
const NOISE: Duration = Duration::from_millis(300);

/// How often bodies ran.
#[derive(Default)]
struct Ticks(AtomicU64);

#[step]
async fn tick(#[resource] ticks: &Ticks, at: u64) -> Result<u64> {
    ticks.0.fetch_add(1, Ordering::Relaxed);
    Ok(at)
}

#[workflow]
async fn fan(steps: u64) -> Result<u64> {
    Ok(try_join_all((0..steps).map(tick)).await?.iter().sum())
}

#[workflow]
async fn long(steps: u64) -> Result<u64> {
    let mut sum = 0;
    for at in 0..steps {
        sum += tick(at).await?;
    }
    Ok(sum)
}

/// Does the work of a child, and says how long it took and how much memory.
pub(super) fn live(kind: &str, size: u64, dir: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime can be made");
    let ticks = Arc::new(Ticks::default());
    let began = Instant::now();
    let done = runtime.block_on(async {
        let builder = Engine::builder().register::<fan>().register::<long>();
        let engine = builder.resource_arc(ticks.clone()).open(dir).await?;
        let sum = match kind {
            "fan-out" => engine.start(fan(size)).key("one").await?.result().await?,
            "long-history" => engine.start(long(size)).key("one").await?.result().await?,
            _ => many(&engine, size).await?,
        };
        let took = began.elapsed();
        engine.shutdown().await?;
        Ok::<_, workflow_runtime::Error>((sum, took))
    });
    match done {
        Ok((sum, took)) => {
            let ticked = ticks.0.load(Ordering::Relaxed);
            let (kib, worked) = (peak_kib(), processor_millis());
            let millis = took.as_millis();
            Line::Stopped(format!("{sum} {ticked} {millis} {worked} {kib}")).say();
        }
        Err(error) => Line::Trouble(format!("{error:#}")).say(),
    }
}

async fn many(engine: &Engine, runs: u64) -> Result<u64> {
    let mut sum = 0;
    for first in (0..runs).step_by(AT_ONCE as usize) {
        let some = (first..runs.min(first + AT_ONCE)).map(|number| async move {
            let run = engine.start(long(1)).key(format!("run-{number}")).await?;
            Ok::<u64, workflow_runtime::Error>(run.result().await? + number)
        });
        for one in join_all(some).await {
            sum += one?;
        }
    }
    Ok(sum)
}

/// The most memory that this process had, in KiB.
pub(super) fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The processor's time that this process took: other than time itself, it does not depend on what else the machine does.
fn processor_millis() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything: the state, ten numbers, and the ticks of program and system.
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    ticks * 10
}

/// What one child came to.
struct Figures {
    took: Duration,
    worked: Duration,
    kib: u64,
}

pub(super) fn fan_out(size: u64) -> Case {
    compared("fan-out", size, 24)
}

pub(super) fn long_history(size: u64) -> Case {
    compared("long-history", size, 4)
}

pub(super) fn many_runs(size: u64) -> Case {
    compared("many-runs", size, 2)
}

/// Does a quarter and the whole, and compares. `kib` is what each one may take.
fn compared(kind: &str, size: u64, kib: u64) -> Case {
    let mut case = Case::default();
    let quarter = measured(kind, (size / 4).max(1), &mut case);
    let whole = measured(kind, size, &mut case);
    let (Some(quarter), Some(whole)) = (quarter, whole) else {
        return case;
    };
    case.holds(whole.worked < quarter.worked * FACTOR + NOISE, || {
        format!(
            "not linear: {size} took {:?} of the processor, a quarter {:?}",
            whole.worked, quarter.worked
        )
    });
    // The cache of the store fills up once, whatever the size.
    let more = whole.kib.saturating_sub(quarter.kib);
    case.holds(more < 96 * 1024 + kib * size, || {
        format!(
            "memory: {size} took {} KiB, a quarter {} KiB",
            whole.kib, quarter.kib
        )
    });
    let each = |time: Duration| time.as_secs_f64() * 1e6 / size as f64;
    case.trace = format!(
        "{:.0} µs each, {:.0} µs of the processor (of a quarter of them: {:.0}), at most {} MiB ({})",
        each(whole.took),
        each(whole.worked),
        each(quarter.worked) * 4.0,
        whole.kib / 1024,
        quarter.kib / 1024
    );
    case.count = size;
    case
}

fn measured(kind: &str, size: u64, case: &mut Case) -> Option<Figures> {
    let directory = scratch::directory();
    let dir = directory
        .path()
        .join("store")
        .to_string_lossy()
        .into_owned();
    let command = child::command(&["sized", kind, &size.to_string(), &dir]);
    let (said, status) = Process::start(command).hear_out(PATIENCE);
    let numbers: Vec<u64> = said
        .strip_prefix("@stopped ")
        .map(|line| {
            line.split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect()
        })
        .unwrap_or_default();
    let [sum, ticked, millis, worked, kib] = numbers[..] else {
        case.wrong(format!("14: {size}: {said:?}, {status:?}"));
        return None;
    };
    let right = size * (size - 1) / 2;
    case.holds((sum, ticked) == (right, size), || {
        format!("4: {size} gave {sum}, not {right}; {ticked} bodies ran")
    });
    let records = recorded(Path::new(&dir), case);
    let expected = match kind {
        "many-runs" => 3 * size,
        _ => size + 2,
    };
    case.holds(records == expected, || {
        format!("2: {records} records verify, not {expected}")
    });
    Some(Figures {
        took: Duration::from_millis(millis),
        worked: Duration::from_millis(worked),
        kib,
    })
}

/// Verifies every chain in the store.
fn recorded(store: &Path, case: &mut Case) -> u64 {
    scratch::runtime().block_on(async {
        let engine = match Engine::builder().open(store).await {
            Ok(engine) => engine,
            Err(error) => {
                case.wrong(format!("1: it does not open: {error}"));
                return 0;
            }
        };
        let verified = engine.verify().await;
        let _ = engine.shutdown().await;
        match verified {
            Ok(verified) => {
                let damaged = verified.damaged.iter().map(|damage| format!("2: {damage}"));
                case.violations.extend(damaged);
                verified.records
            }
            Err(error) => {
                case.wrong(format!("2: {error}"));
                0
            }
        }
    })
}
