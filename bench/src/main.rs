//! Measures the engine against the raw floor of the same disk, in the same run.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml -- floor` prints one JSON line per
//! figure. Machines are noisy and disks drift, so every figure is the median of interleaved
//! repeats: floor, engine, floor, engine, …, floor; a ratio is taken between neighbours only.
//!
//! Environment: `BENCH_DIR` (where the files go; default: a temporary directory beside the build),
//! `BENCH_REPEATS` (default 5).

mod aims;
mod cost;
mod duplicates;
mod endless;
mod engine;
#[cfg(feature = "files")]
mod files;
mod finished;
mod floor;
mod guard;
mod inside;
mod keys;
mod leaving;
mod machine;
mod removal;
mod report;
mod resume;
mod rivals;
mod sleepers;
mod suspended;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use report::{Figure, median};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let dir = std::env::var_os("BENCH_DIR").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench-data")),
        PathBuf::from,
    );
    std::fs::create_dir_all(&dir).expect("the data directory can be made");
    let scratch = tempfile::tempdir_in(&dir).expect("a directory of our own can be made");
    let scratch = scratch.path();
    match words.as_slice() {
        ["all", words @ ..] => return done(rivals::all(words, scratch)),
        ["quick"] => return done(rivals::quick(scratch)),
        ["report", file] => return done(rivals::report(file)),
        ["floor"] => {
            throughput(scratch, "");
            replay(scratch);
            in_child("waiting-memory", "bytes_per_run", Some(4_096.0));
            in_child("open-empty", "ms", Some(50.0));
        }
        ["waiting-memory"] => {
            let stays = in_child("waiting-memory", "bytes_per_run", Some(4_096.0));
            let may_leave = in_child("waiting-memory-evictable", "bytes_per_run", Some(4_096.0));
            return met(stays && may_leave);
        }
        ["open-empty"] => return met(in_child("open-empty", "ms", Some(50.0))),
        ["aims"] => return met(aims::all(scratch)),
        ["throughput"] => return met(throughput(scratch, "")),
        ["throughput", workload] => return met(throughput(scratch, workload)),
        ["replay"] => return met(replay(scratch)),
        ["resume"] => return met(resume::after_a_kill(scratch, repeats())),
        ["suspended"] => return met(suspended::suspended(scratch, repeats())),
        ["finished", runs] => {
            let runs = runs.parse().expect("a number of runs");
            return met(finished::finished(scratch, runs));
        }
        ["removal", runs] => {
            let runs = runs.parse().expect("a number of runs");
            return met(removal::removal(scratch, runs));
        }
        ["processor"] => return met(cost::processor(scratch, repeats())),
        #[cfg(feature = "files")]
        ["replay-file"] => return met(files::replay(scratch, repeats())),
        #[cfg(not(feature = "files"))]
        ["replay-file"] => {
            eprintln!("replay-file needs `--features files`");
            return ExitCode::FAILURE;
        }
        ["sustained"] => return met(sustained(scratch, repeats())),
        ["sleepers-store"] => sleepers::sleepers(scratch, 100_000),
        ["sleepers"] => return met(leaving::sleepers(scratch, 100_000)),
        ["sleepers", runs] => {
            let runs = runs.parse().expect("a number of runs");
            return met(leaving::sleepers(scratch, runs));
        }
        ["timers"] => return met(leaving::timers(scratch, 10_000)),
        ["duplicates"] => return met(duplicates::duplicates(scratch, repeats())),
        ["signals"] => return met(inside::signals(scratch, repeats())),
        ["endless"] => return met(endless::resumes(scratch, repeats())),
        ["guard"] => return met(guard::guard(scratch, repeats())),
        ["fan-out"] => {
            let linear = inside::fan_out_time(scratch, repeats());
            let small = in_child("fan-out-memory", "bytes_per_step", Some(4_096.0));
            return met(linear && small);
        }
        ["shared-lookups"] => return met(keys::shared_lookups(repeats())),
        ["steps", at_once] => {
            let at_once = at_once.parse().expect("a number of runs");
            println!(
                "{:.0}",
                engine::steps_per_second(scratch, at_once, engine::STEPS_PER_SHORT_RUN)
            );
        }
        ["cost", at_once, runs] => {
            let at_once = at_once.parse().expect("a number");
            let runs = runs.parse().expect("a number");
            cost::steps(scratch, at_once, runs, engine::STEPS_PER_SHORT_RUN);
        }
        ["cost", at_once, runs, steps] => {
            let at_once = at_once.parse().expect("a number");
            let runs = runs.parse().expect("a number");
            cost::steps(scratch, at_once, runs, steps.parse().expect("a number"));
        }
        ["cost-replay", steps] => cost::replay(scratch, steps.parse().expect("a number")),
        ["child", "waiting-memory"] => println!("{}", engine::waiting_memory(scratch, None)),
        ["child", "waiting-memory-evictable"] => {
            let never_reached = Duration::from_secs(600);
            println!("{}", engine::waiting_memory(scratch, Some(never_reached)));
        }
        ["child", "fill-sleepers", runs, path] => {
            let runs = runs.parse().expect("a number of runs");
            sleepers::fill_store(Path::new(path), runs);
        }
        ["child", "index-memory", runs] => leaving::index(runs.parse().expect("a number")),
        ["child", "fill-asleep", runs, path] => {
            leaving::fill(Path::new(path), runs.parse().expect("a number"));
        }
        ["child", "reload-asleep", runs, path] => {
            leaving::reload(Path::new(path), runs.parse().expect("a number"));
        }
        ["child", "fill-endless", passes, path] => {
            endless::fill(Path::new(path), passes.parse().expect("a number"));
        }
        ["child", "resume-endless", path] => endless::look(Path::new(path)),
        ["child", "record-to-kill", path] => resume::record(Path::new(path)),
        ["child", "resume-killed", path] => resume::resume(Path::new(path)),
        ["child", "suspend", path] => suspended::suspend(Path::new(path)),
        ["child", "fill-finished", runs, path] => {
            finished::fill(Path::new(path), runs.parse().expect("a number"));
        }
        ["child", "open-finished", path] => finished::open(Path::new(path)),
        ["child", "fan-out-memory"] => inside::fan_out_memory(scratch, 10_000),
        ["child", "open-empty"] => println!("{}", engine::open_empty(scratch)),
        _ => {
            eprintln!(
                "usage: bench all [--only SYSTEM,…,WORKLOAD,…] [--repeats N] [--short] [--missing] [--fresh] | quick | report FILE | \
                 aims | floor | throughput [WORKLOAD] | replay | resume | suspended | finished RUNS | removal RUNS | processor | sustained | replay-file | \
                 waiting-memory | open-empty | sleepers [N] | \
                 sleepers-store | timers | duplicates | signals | endless | guard | fan-out | shared-lookups | steps N | cost AT_ONCE RUNS [STEPS] | cost-replay STEPS"
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// What could not be done at all is a failure.
fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// A figure that is missed is a failure.
fn met(all: bool) -> ExitCode {
    match all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn repeats() -> usize {
    std::env::var("BENCH_REPEATS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(5)
}

/// Steps per second, synced, beside what the disk gives a plain file at the same concurrency; of all workloads, or of one.
fn throughput(scratch: &Path, only: &str) -> bool {
    let (mut all_met, mut any) = (true, false);
    for (workload, at_once, steps, asked) in [
        ("sequential", 1, engine::STEPS_PER_RUN, 0.65),
        ("concurrent-64", 64, engine::STEPS_PER_RUN, 0.70),
        ("concurrent-1024", 1024, engine::STEPS_PER_RUN, 0.45),
        ("short-64", 64, engine::STEPS_PER_SHORT_RUN, 0.70),
        ("short-1024", 1024, engine::STEPS_PER_SHORT_RUN, 0.45),
    ] {
        if !only.is_empty() && only != workload {
            continue;
        }
        any = true;
        let (mut rates, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = floor::records_per_second(scratch, at_once);
        for _ in 0..repeats() {
            let rate = engine::steps_per_second(scratch, at_once, steps);
            let one_way = machine::one_way_ns();
            let after = floor::records_per_second(scratch, at_once);
            let ratio = rate / f64::midpoint(before, after);
            eprintln!(
                "{workload}: {rate:.0} steps/s, {ratio:.3} of the floor's {before:.0} and {after:.0}; {one_way:.0} ns between processors"
            );
            rates.push(rate);
            floors.push(after);
            ratios.push(ratio);
            before = after;
        }
        Figure::floor(workload, "records_per_s", median(&mut floors)).print();
        all_met &= Figure::engine(workload, "steps_per_s", median(&mut rates))
            .ratio(median(&mut ratios))
            .ratio_at_least(asked)
            .print();
    }
    if !any {
        eprintln!(
            "there is no workload `{only}`: sequential, concurrent-64, concurrent-1024, short-64, short-1024"
        );
    }
    any && all_met
}

/// Steps per second when a recorded run is replayed.
fn replay(scratch: &Path) -> bool {
    let mut all_met = true;
    for (workload, steps) in [("replay-10000", 10_000), ("replay-100000", 100_000)] {
        let measured: Vec<_> = (0..repeats().min(3))
            .map(|_| engine::replay(scratch, steps))
            .collect();
        let mut rates: Vec<f64> = measured.iter().map(|m| m.steps_per_second).collect();
        let mut opens: Vec<f64> = measured.iter().map(|m| m.open_ms).collect();
        all_met &= Figure::engine(workload, "steps_per_s", median(&mut rates))
            .at_least(1_000_000.0)
            .print();
        Figure::engine(workload, "open_ms", median(&mut opens)).print();
    }
    all_met
}

/// Whether a store that holds 1,000,000 steps is slower than a new one: the last two slices of ten
/// against the first two, by their part of the floor and by their processor time.
fn sustained(scratch: &Path, repeats: usize) -> bool {
    let (mut ratios, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let slices = engine::sustained(scratch, 1_000_000, 100_000);
        let of_floor: Vec<f64> = slices.iter().map(|slice| slice.ratio).collect();
        let cpu: Vec<f64> = slices.iter().map(|slice| slice.cpu_us_per_step).collect();
        eprintln!("of the floor, per 100,000 steps: {of_floor:.3?}");
        eprintln!("processor time of a step: {cpu:.2?} us");
        let change = |values: &[f64]| {
            let ends = values.iter().rev().take(2).sum::<f64>();
            ends / values.iter().take(2).sum::<f64>()
        };
        ratios.push(change(&of_floor));
        costs.push(change(&cpu));
    }
    eprintln!("last to first: {ratios:.2?} of the floor, {costs:.2?} of processor time");
    Figure::engine("sustained-1024", "cpu_last_to_first", median(&mut costs)).print();
    Figure::engine("sustained-1024", "last_to_first", median(&mut ratios))
        .at_least(0.8)
        .print()
}

/// Measures what needs a process of its own.
fn in_child(workload: &'static str, metric: &'static str, at_most: Option<f64>) -> bool {
    let mut values: Vec<f64> = (0..repeats())
        .map(|_| {
            let output = std::process::Command::new(std::env::current_exe().expect("our own path"))
                .args(["child", workload])
                .output()
                .expect("a child can be started");
            let text = String::from_utf8_lossy(&output.stdout);
            text.trim().parse().expect("the child prints a number")
        })
        .collect();
    let mut figure = Figure::engine(workload, metric, median(&mut values));
    if let Some(limit) = at_most {
        figure = figure.at_most(limit);
    }
    figure.print()
}
