//! The rows of the battery: a name, the full figure, and how one case is run.
//!
//! Owns how cases are spread over the machine's cores and how failures are named. What a case does is its own
//! module's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::options::Options;
use super::report::Outcome;
use super::sim;

/// More violations than this are not written down.
const ENOUGH: usize = 5;

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Cases at scale 1.
    full: u64,
    /// Runs the case of a seed.
    case: fn(u64) -> Case,
    /// What is counted.
    counted: &'static str,
}

/// What a case came to.
struct Case {
    /// What does not hold.
    violations: Vec<String>,
    /// How much of what is counted.
    count: u64,
    /// A hash of all that happened, to be compared by hand when a case is run again.
    trace: String,
}

/// All rows.
pub(crate) const ALL: &[Row] = &[
    Row {
        name: "simulation",
        full: 1_000_000,
        case: simulated,
        counted: "processes",
    },
    Row {
        name: "same-seed-same-trace",
        full: 100_000,
        case: simulated_twice,
        counted: "processes",
    },
];

fn simulated(seed: u64) -> Case {
    let verdict = sim::case(seed);
    Case {
        violations: verdict.violations,
        count: verdict.processes as u64,
        trace: verdict.trace.to_hex()[..16].to_owned(),
    }
}

/// The same seed twice: everything that was written and done must be the same, byte for byte.
fn simulated_twice(seed: u64) -> Case {
    let (mut first, again) = (simulated(seed), simulated(seed));
    if first.trace != again.trace {
        let (one, other) = (&first.trace, &again.trace);
        let differs = format!("the trace is {one} and, the second time, {other}");
        first.violations.push(differs);
    }
    first.count += again.count;
    first
}

impl Row {
    /// Runs as many cases as are asked for.
    pub(crate) fn run(&self, options: &Options) -> Outcome {
        let began = Instant::now();
        let seeds = match options.seed {
            Some(seed) => seed..seed + 1,
            None => 0..((self.full as f64 * options.scale) as u64).max(1),
        };
        let cases = seeds.end - seeds.start;
        let (next, counted) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
        let (violations, trace) = (Mutex::new(Vec::new()), Mutex::new(String::new()));
        std::thread::scope(|scope| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let case = (self.case)(seed);
                        counted.fetch_add(case.count, Ordering::Relaxed);
                        if options.seed.is_some() {
                            *trace.lock().expect("nobody panics with it") = case.trace;
                        }
                        let mut all = violations.lock().expect("nobody panics with it");
                        for what in case.violations {
                            if all.len() < ENOUGH {
                                all.push(format!("--only {} --seed {seed}: {what}", self.name));
                            }
                        }
                    }
                });
            }
        });
        Outcome {
            name: self.name,
            cases,
            took: began.elapsed(),
            violations: violations.into_inner().expect("nobody panics with it"),
            remark: match trace.into_inner().expect("nobody panics with it") {
                trace if trace.is_empty() => format!("{} {}", counted.into_inner(), self.counted),
                trace => format!("{} {}, trace {trace}", counted.into_inner(), self.counted),
            },
        }
    }
}
