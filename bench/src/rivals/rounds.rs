//! The rounds: in each, every system takes its turn, with the raw floor before and after.
//!
//! Disks drift by the minute, so that only neighbours compare. In every round another system begins. Servers run only during the
//! turns of those who need them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::build::{self, Program};
use super::catalogue::{Contestant, Needs, Selection, Workload};
use super::conclude::{self, Beside};
use super::progress::Progress;
use super::report::Figure;
use super::sample::{self, AT_ONCE, Pace, SETTINGS, Sample, Setting};
use super::servers;
use crate::floor;

/// How long the floor is measured before a rate, and again after it.
const FLOOR: Duration = Duration::from_millis(500);

/// The same beside what is no rate, where it only tells how the disk was.
const FLOOR_ASIDE: Duration = Duration::from_millis(200);

/// A comparison that is to be made.
pub struct Rounds {
    pub selection: Selection,
    pub repeats: usize,
    /// Repeats of what takes long: W3, W4, W6.
    pub long_repeats: usize,
    pub pace: Pace,
    /// The folder of this crate.
    pub bench: PathBuf,
    pub scratch: PathBuf,
}

/// What is known of a contestant before it is measured.
struct Known {
    contestant: Contestant,
    program: Result<Program, String>,
    /// Runs at once at which it was fastest.
    best: usize,
}

impl Rounds {
    /// Measures it all, and hands over the figures of each workload as it is done: a run is long, and may be interrupted.
    pub fn run(&self, mut hand_over: impl FnMut(Vec<Figure>)) {
        if self
            .selection
            .contestants
            .iter()
            .any(|one| one.needs == Needs::Postgres)
        {
            servers::forget(&self.bench.join("target"));
        }
        let mut known = self.build();
        let mut progress = Progress::new(self.work());
        if self.selection.has(Workload::W2Best) || self.selection.has(Workload::W9) {
            for one in &mut known {
                progress.begin(&format!("best setting of {}", one.contestant.title()));
                one.best = self.best_of(one);
            }
        }
        for workload in self.workloads() {
            let mut figures = Vec::new();
            let samples = self.measure(workload, &known, &mut progress);
            for (one, samples) in known.iter().zip(&samples) {
                if self.selection.has(workload) {
                    figures.extend(conclude::figures(workload, one.contestant, samples));
                }
                if workload == Workload::W2 && self.selection.has(Workload::W7) {
                    figures.extend(conclude::figures(Workload::W7, one.contestant, samples));
                }
            }
            for figure in &mut figures {
                self.note_missing_samples(workload, figure);
            }
            hand_over(figures);
        }
        progress.end();
    }

    /// A median of fewer samples than asked for says so.
    fn note_missing_samples(&self, workload: Workload, figure: &mut Figure) {
        let samples = figure.samples.len();
        if samples > 0 && samples < self.repeats(workload) {
            figure.notes.push(format!("median of {samples}"));
        }
    }

    /// What is run: W7 is what W2 costs.
    fn workloads(&self) -> Vec<Workload> {
        let mut workloads = self.selection.workloads.clone();
        if self.selection.has(Workload::W7) {
            workloads.push(Workload::W2);
        }
        workloads.retain(|workload| *workload != Workload::W7);
        workloads.sort();
        workloads.dedup();
        workloads
    }

    fn repeats(&self, workload: Workload) -> usize {
        match workload {
            Workload::Syncs | Workload::W9 => 1,
            _ if is_long(workload) => self.long_repeats,
            _ => self.repeats,
        }
    }

    /// How many samples there will be.
    fn work(&self) -> usize {
        let contestants = self.selection.contestants.len();
        let repeats: usize = self.workloads().iter().map(|one| self.repeats(*one)).sum();
        let is_searched = self.selection.has(Workload::W2Best) || self.selection.has(Workload::W9);
        contestants * (repeats + usize::from(is_searched))
    }

    /// Builds every system once, also if it takes part in several modes.
    fn build(&self) -> Vec<Known> {
        let mut programs = BTreeMap::new();
        for contestant in &self.selection.contestants {
            programs.entry(contestant.system).or_insert_with(|| {
                eprintln!("building {}", contestant.system);
                let program = build::program(contestant, &self.bench);
                if let Err(why) = &program {
                    eprintln!("{} is left out: {why}", contestant.system);
                }
                program
            });
        }
        let contestants = self.selection.contestants.iter();
        contestants
            .map(|contestant| Known {
                contestant: *contestant,
                program: programs[contestant.system].clone(),
                best: AT_ONCE,
            })
            .collect()
    }

    fn take(&self, workload: Workload, one: &Known, at_once: usize, seconds: u64) -> Sample {
        let program = match &one.program {
            Ok(program) => program,
            Err(why) => return Sample::Skipped(why.clone()),
        };
        let setting = Setting {
            contestant: one.contestant,
            program,
            scratch: &self.scratch,
            target: &self.bench.join("target"),
            at_once,
            seconds,
            pace: self.pace,
        };
        sample::take(workload, &setting)
    }

    /// Tries each setting once.
    fn best_of(&self, one: &Known) -> usize {
        let rates = SETTINGS.map(|at_once| {
            let rate = match self.take(Workload::W2Best, one, at_once, self.pace.trial) {
                Sample::Said(said) => said.figures.get("steps_per_s").copied(),
                Sample::Skipped(_) => None,
            };
            (at_once, rate.unwrap_or(0.0))
        });
        let best = rates.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        best.filter(|(_, rate)| *rate > 0.0)
            .map_or(AT_ONCE, |(at_once, _)| *at_once)
    }

    /// Takes all samples of a workload: a list per contestant.
    fn measure(
        &self,
        workload: Workload,
        known: &[Known],
        progress: &mut Progress,
    ) -> Vec<Vec<Beside>> {
        let mut samples: Vec<Vec<Beside>> = known.iter().map(|_| Vec::new()).collect();
        let mut taken = vec![Duration::ZERO; known.len()];
        for round in 0..self.repeats(workload) {
            for turn in 0..known.len() {
                let n = (turn + round) % known.len();
                let one = &known[n];
                if is_long(workload) && taken[n].as_secs() >= self.pace.budget {
                    progress.skip();
                    continue;
                }
                let title = one.contestant.title();
                progress.begin(&format!(
                    "{} of {title}, round {}",
                    workload.name(),
                    round + 1
                ));
                let floor_at_once = match workload {
                    Workload::W2 => AT_ONCE,
                    Workload::W2Best | Workload::W9 => one.best,
                    _ => 1,
                };
                let time = match is_rate(workload) {
                    true => FLOOR,
                    false => FLOOR_ASIDE,
                };
                let floor = || floor::records_per_second_for(&self.scratch, floor_at_once, time);
                let before = floor();
                let began = Instant::now();
                let sample = self.take(workload, one, one.best, self.pace.turn);
                taken[n] += began.elapsed();
                let floor = f64::midpoint(before, floor());
                samples[n].push(Beside { sample, floor });
            }
        }
        samples
    }
}

/// Says whether a workload is measured in the floor's own unit.
fn is_rate(workload: Workload) -> bool {
    use Workload::{W1, W2, W2Best, W3};
    matches!(workload, W1 | W2 | W2Best | W3)
}

/// Says whether one sample of a workload may take longer than all of another's.
fn is_long(workload: Workload) -> bool {
    use Workload::{W3, W4Few, W4Many, W6};
    matches!(workload, W3 | W4Few | W4Many | W6)
}
