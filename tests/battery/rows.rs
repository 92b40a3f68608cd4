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
    /// Runs the case of a seed: what does not hold, and what to count.
    case: fn(u64) -> (Vec<String>, u64),
    /// What is counted.
    counted: &'static str,
}

/// All rows.
pub(crate) const ALL: [Row; 2] = [
    Row {
        name: "simulation",
        full: 1_000_000,
        case: simulated,
        counted: "processes",
    },
    Row {
        name: "same-seed-same-trace",
        full: 10_000,
        case: traced_twice,
        counted: "processes",
    },
];

fn simulated(seed: u64) -> (Vec<String>, u64) {
    let verdict = sim::case(seed);
    (verdict.violations, verdict.processes as u64)
}

fn traced_twice(seed: u64) -> (Vec<String>, u64) {
    let (one, two) = (sim::case(seed), sim::case(seed));
    let mut violations = one.violations;
    if one.trace != two.trace {
        violations.push("the same seed has another trace the second time".into());
    }
    (violations, (one.processes + two.processes) as u64)
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
        let violations = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let (wrong, count) = (self.case)(seed);
                        counted.fetch_add(count, Ordering::Relaxed);
                        let mut all = violations.lock().expect("nobody panics with it");
                        for what in wrong {
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
            remark: format!("{} {}", counted.into_inner(), self.counted),
        }
    }
}
