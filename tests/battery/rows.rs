//! The rows of the battery: a name, the full figure, and how one case is run.
//!
//! Owns how cases are spread over the machine's cores and how failures are named. What a case does is its own
//! module's.

mod changed;
pub(crate) mod child;
mod clocks;
mod crashes;
mod cuts;
mod damaged;
#[path = "../crash/store_faults/disk.rs"]
mod disk;
mod disk_full;
mod dropped;
mod duplicates;
mod frames;
mod hostile;
mod kill;
mod limits;
mod newer;
mod patience;
mod poison;
mod power;
mod read_only;
mod refusing;
pub(crate) mod scratch;
mod sized;
mod slow;
pub(crate) mod soak;
mod told;
mod torn;
mod two_processes;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::options::Options;
use super::report::Outcome;
use super::sim;

/// What does not hold is written down of so many cases; the others are counted, and named by their seeds.
const ENOUGH: usize = 5;

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Cases at scale 1.
    full: u64,
    /// The fewest cases, so that each kind of them is tried.
    least: u64,
    how: How,
    /// What is counted.
    counted: &'static str,
}

/// How the cases of a row are run.
enum How {
    /// Runs the case of a seed; as many at once as there are cores.
    Seeds(fn(u64) -> Case),
    /// The same, one after the other: they measure, or take the whole machine.
    OneByOne(fn(u64) -> Case),
    /// Runs one case of a size; the seed is the size.
    Size(fn(u64) -> Case),
}

/// What a case came to.
#[derive(Default)]
pub(crate) struct Case {
    /// What does not hold.
    pub(crate) violations: Vec<String>,
    /// How much of what is counted.
    pub(crate) count: u64,
    /// A word for how it went, which is counted too, unless it is empty.
    pub(crate) also: &'static str,
    /// A hash of all that happened, or figures, to be compared by hand when a case is run again.
    pub(crate) trace: String,
    /// Why nothing was tried, if nothing was.
    pub(crate) skipped: Option<String>,
}

impl Case {
    /// Writes down what does not hold.
    pub(crate) fn wrong(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Writes down what does not hold unless it does.
    pub(crate) fn holds(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(what());
        }
    }

    /// A case that could not be tried here.
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self {
            skipped: Some(why.into()),
            ..Self::default()
        }
    }
}

const fn row(
    name: &'static str,
    (full, least): (u64, u64),
    how: How,
    counted: &'static str,
) -> Row {
    Row {
        name,
        full,
        least,
        how,
        counted,
    }
}

/// All rows.
pub(crate) const ALL: [Row; 27] = [
    row(
        "simulation",
        (1_000_000, 1),
        How::Seeds(simulated),
        "processes",
    ),
    row(
        "same-seed-same-trace",
        (100_000, 1),
        How::Seeds(simulated_twice),
        "processes",
    ),
    row(
        "crash-every-write",
        (700, 7),
        How::Seeds(crashes::case),
        "crashes",
    ),
    row("kill", (1_000, 1), How::Seeds(kill::case), "kills"),
    row(
        "power-cut-simulated",
        (100_000, 1),
        How::Seeds(cuts::case),
        "cuts",
    ),
    row("power-cut", (50, 1), How::Seeds(power::case), "cuts"),
    row("torn-write", (200, 1), How::Seeds(torn::case), "torn ends"),
    row(
        "damaged-files",
        (10_000, 20),
        How::Seeds(damaged::case),
        "refused or noticed",
    ),
    row(
        "disk-full",
        (20, 1),
        How::Seeds(disk_full::case),
        "acknowledged",
    ),
    row(
        "io-error",
        (200, 4),
        How::Seeds(refusing::case),
        "acknowledged",
    ),
    row("slow-disk", (50, 1), How::Seeds(slow::case), "acknowledged"),
    row(
        "read-only-directory",
        (50, 1),
        How::Seeds(read_only::case),
        "refused",
    ),
    row(
        "two-processes",
        (200, 2),
        How::Seeds(two_processes::case),
        "refused",
    ),
    row(
        "file-size-limit",
        (60, 2),
        How::Seeds(limits::file_size),
        "acknowledged",
    ),
    row(
        "no-descriptors",
        (100, 2),
        How::Seeds(limits::descriptors),
        "acknowledged",
    ),
    row(
        "clock-jumps",
        (1_000, 1),
        How::Seeds(clocks::case),
        "timers",
    ),
    row(
        "panic-abort-block",
        (40, 4),
        How::Seeds(poison::case),
        "deaths",
    ),
    row(
        "dropped-futures",
        (2_000, 5),
        How::Seeds(dropped::case),
        "dropped",
    ),
    row(
        "hostile-input",
        (hostile::FULL, 12),
        How::OneByOne(hostile::case),
        "refused",
    ),
    row("fan-out", (10_000, 200), How::Size(sized::fan_out), "steps"),
    row(
        "long-history",
        (100_000, 400),
        How::Size(sized::long_history),
        "steps",
    ),
    row(
        "many-runs",
        (100_000, 400),
        How::Size(sized::many_runs),
        "runs",
    ),
    row(
        "duplicate-delivery",
        (100_000, 1),
        How::Seeds(duplicates::case),
        "deliveries",
    ),
    row(
        "code-changed",
        (10_000, 10),
        How::Seeds(changed::case),
        "parked",
    ),
    // The size is in seconds.
    row("soak", (1_800, 9), How::Size(soak::case), "orders"),
    row("newer-format", (300, 3), How::Seeds(newer::case), "refused"),
    row(
        "newer-journal-file",
        (100, 2),
        How::Seeds(newer::file),
        "refused",
    ),
];

fn simulated(seed: u64) -> Case {
    let verdict = sim::case(seed);
    Case {
        violations: verdict.violations,
        count: verdict.processes as u64,
        trace: verdict.trace.to_hex()[..16].to_owned(),
        ..Case::default()
    }
}

/// What the cases of a row came to so far.
#[derive(Default)]
struct Sum {
    violations: Vec<String>,
    violated: usize,
    seeds: BTreeSet<u64>,
    count: u64,
    also: BTreeMap<&'static str, u64>,
    trace: String,
    skipped: Option<String>,
}

impl Sum {
    fn add(&mut self, row: &str, seed: u64, case: Case) {
        self.count += case.count;
        if !case.also.is_empty() {
            *self.also.entry(case.also).or_default() += 1;
        }
        self.trace = case.trace;
        self.skipped = self.skipped.take().or(case.skipped);
        self.violated += case.violations.len();
        if !case.violations.is_empty() {
            self.seeds.insert(seed);
        }
        if self.seeds.len() <= ENOUGH {
            let written = case.violations.iter();
            let written = written.map(|what| format!("--only {row} --seed {seed}: {what}"));
            self.violations.extend(written);
        }
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
        let share = (self.full as f64 * options.scale) as u64;
        let share = share.max(self.least.min(self.full));
        let (seeds, case, cores) = match self.how {
            How::Seeds(case) => (0..share, case, cores()),
            How::OneByOne(case) => (0..share, case, 1),
            How::Size(case) => (share..share + 1, case, 1),
        };
        let seeds = options.seed.map_or(seeds, |seed| seed..seed + 1);
        let (next, sum) = (AtomicU64::new(seeds.start), Mutex::new(Sum::default()));
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let case = caught(case, seed);
                        let mut sum = sum.lock().expect("nobody panics with it");
                        sum.add(self.name, seed, case);
                    }
                });
            }
        });
        let sum = sum.into_inner().expect("nobody panics with it");
        let mut remark = format!("{} {}", sum.count, self.counted);
        for (also, count) in &sum.also {
            remark = format!("{remark}; {count} {also}");
        }
        if (options.seed.is_some() || matches!(self.how, How::Size(_))) && !sum.trace.is_empty() {
            remark = format!("{remark}, {}", sum.trace);
        }
        if let Some(why) = &sum.skipped {
            remark = format!("{remark}; NOT TRIED: {why}");
        }
        Outcome {
            name: self.name,
            cases: match self.how {
                How::Size(_) => 1,
                _ => seeds.end - seeds.start,
            },
            took: began.elapsed(),
            violations: sum.violations,
            violated: sum.violated,
            seeds: sum.seeds,
            remark,
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a case; a panic in it is a violation like any other.
fn caught(case: fn(u64) -> Case, seed: u64) -> Case {
    std::panic::catch_unwind(|| case(seed)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(|text| &**text);
        let said = said.or(panic.downcast_ref::<&str>().copied());
        let mut broken = Case::default();
        broken.wrong(format!("18: a panic: {}", said.unwrap_or("without a word")));
        broken
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(scale: f64, seed: Option<u64>) -> Options {
        Options {
            scale,
            only: None,
            seed,
            json: false,
        }
    }

    fn odd_is_wrong(seed: u64) -> Case {
        assert_ne!(seed, 4, "four is worse");
        let mut case = Case::default();
        case.holds(seed.is_multiple_of(2), || format!("{seed} is odd"));
        case.count = 1;
        case
    }

    #[test]
    fn a_row_counts_its_cases_and_names_the_seeds_that_are_wrong() {
        let row = row("odd", (60, 3), How::Seeds(odd_is_wrong), "seeds");
        let tenth = row.run(&options(0.1, None));
        assert_eq!((tenth.cases, &*tenth.remark), (6, "5 seeds"));
        let mut wrong = tenth.violations;
        wrong.sort();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert_eq!(wrong[0], "--only odd --seed 1: 1 is odd");
        assert!(wrong[2].contains("--seed 4: 18: a panic: "), "{wrong:?}");
        assert_eq!(row.run(&options(0.001, None)).cases, 3);
        assert_eq!(row.run(&options(0.001, Some(9))).violations.len(), 1);
        assert_eq!(row.run(&options(0.001, Some(8))).violations.len(), 0);
        let all = row.run(&options(1.0, None));
        assert_eq!(all.violations.len(), ENOUGH, "the first are written down");
        assert_eq!((all.violated, all.seeds.len()), (31, 31), "all are counted");
    }
}
