//! The soak: chaos at full load on one store for as long as is asked for, with memory, descriptors and disk sampled.
//!
//! Owns the acts and what is done to the processes. Three acts of the same length, each half of it chaos (`kill -9` and
//! orderly stops at random moments, one to four before the store is looked at) and half one process that is left
//! alone. After each the store is opened, and the checker of invariants looks at all runs. What the processes do is in `orders`, whether
//! what they say is right in `book`, whether the samples are flat in `flat`.

mod asked;
mod book;
mod flat;
mod orders;
mod plot;
mod sample;
#[cfg(test)]
mod unheard;

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use workflow_runtime::store::{ParkReason, RunHeader, RunState, StateKind};
use workflow_runtime::{Engine, EngineError, Retention};

use self::asked::Asked;
use self::book::Book;
use self::orders::{GIVES_UP, Leak};
use self::sample::Sample;
use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch;
use super::workload::World;
use crate::chance::Chance;

pub(crate) use self::orders::live;

/// Acts of a soak: one to warm up, two to compare.
const ACTS: u32 = 3;

/// The most processes between two looks at the store.
const BURST: u64 = 4;

/// The latest end of a process that is ended while it opens its store, in milliseconds.
const EARLY: u64 = 150;

/// The latest end of one that has opened it.
const LATE: u64 = 4_000;

/// Between two samples, unless the soak is short.
const EVERY: Duration = Duration::from_secs(2);

/// A row of the battery that is shorter than this says nothing of flatness.
const JUDGED: u64 = 600;

/// Orders a second, unless another number is asked for: what a sweep can follow on a machine that does other things too.
const RATE: u32 = 200;

/// A soak under way.
struct Soak {
    began: Instant,
    every: Duration,
    _directory: TempDir,
    store: PathBuf,
    rate: u32,
    leak: Leak,
    chance: Chance,
    book: Book,
    samples: Vec<Sample>,
    next_sample: Instant,
    life: u64,
    kills: u64,
    stops: u64,
    checks: u64,
    /// What became of each process, a line each.
    lives: String,
}

/// How a process is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Stopped,
}

/// As a row of the battery: so many seconds.
pub(super) fn case(seconds: u64) -> Case {
    let asked = Asked {
        length: Duration::from_secs(seconds),
        seed: seconds,
        ..Asked::default()
    };
    let soak = Soak::run(&asked);
    let kept = soak.keep().map(|kept| format!("; {kept}"));
    let mut case = Case {
        count: soak.book.ended(),
        trace: soak.summary() + &kept.unwrap_or_default(),
        violations: soak.book.violations,
        ..Case::default()
    };
    case.holds(case.count > 0, || "14: no order has ended".into());
    if seconds >= JUDGED {
        match flat::judge(&soak.samples) {
            Ok(verdicts) => {
                let bad = verdicts.iter().filter(|verdict| !verdict.is_flat());
                case.violations.extend(bad.map(flat::Verdict::text));
            }
            Err(why) => case.wrong(why),
        }
    }
    case
}

/// `battery soak`: soaks, writes samples and the plot, and says whether all is flat.
pub(crate) fn command(words: &[String]) -> ExitCode {
    let asked = match Asked::parse(words) {
        Ok(asked) => asked,
        Err(problem) => {
            println!("{problem}\n\n{}", asked::USAGE);
            return ExitCode::from(2);
        }
    };
    let soak = Soak::run(&asked);
    println!("{}", soak.summary());
    let lines: String = soak.samples.iter().map(|one| one.json() + "\n").collect();
    let picture = plot::svg(&soak.samples);
    for (path, text) in [(&asked.samples, lines), (&asked.plot, picture)] {
        if let Err(error) = std::fs::write(path, text) {
            println!("{}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    let mut is_clean = soak.book.violations.is_empty();
    for violation in &soak.book.violations {
        println!("VIOLATION {violation}");
    }
    if let Some(kept) = soak.keep() {
        println!("{kept}");
    }
    let judged = flat::judge(&soak.samples);
    is_clean &= flat::is_passed(&judged, asked.length);
    match judged {
        Ok(verdicts) => verdicts.iter().for_each(|one| println!("{}", one.text())),
        Err(why) => println!("{why}"),
    }
    match is_clean {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

impl Soak {
    fn run(asked: &Asked) -> Self {
        let Asked {
            length,
            rate,
            seed,
            leak,
            ..
        } = *asked;
        let directory = scratch::directory();
        let began = Instant::now();
        let mut soak = Self {
            began,
            every: EVERY.min(length / 240),
            store: directory.path().join("store"),
            _directory: directory,
            rate,
            leak,
            chance: Chance::new(seed),
            book: Book::default(),
            samples: Vec::new(),
            next_sample: began,
            life: 0,
            kills: 0,
            stops: 0,
            checks: 0,
            lives: String::new(),
        };
        let half = length / (2 * ACTS);
        for act in 0..ACTS {
            // From now on, not from the beginning: looks at a store that grows take ever longer, and would take the time of those who
            // are left alone.
            let alone_from = Instant::now() + half;
            while Instant::now() < alone_from && soak.book.violations.is_empty() {
                soak.burst();
            }
            let until = Instant::now() + half;
            if soak.book.violations.is_empty() {
                let end = match act % 2 {
                    0 => End::Killed,
                    _ => End::Stopped,
                };
                soak.process(Some(until), Duration::ZERO, end);
                soak.look(false);
            }
        }
        if soak.book.violations.is_empty() {
            soak.look(true);
        }
        soak
    }

    /// Some processes one after the other, each ended at a random moment, and a look at what they leave.
    fn burst(&mut self) {
        for _ in 0..=self.chance.below(BURST) {
            let end = match self.chance.once_in(4) {
                true => End::Stopped,
                false => End::Killed,
            };
            // An early kill finds the opening of the store, and replay.
            match self.chance.once_in(3) && end == End::Killed {
                true => {
                    let moment = Duration::from_millis(self.chance.below(EARLY));
                    self.process(Some(Instant::now() + moment), Duration::ZERO, end);
                }
                false => {
                    let after = Duration::from_millis(self.chance.below(LATE));
                    self.process(None, after, end);
                }
            }
        }
        self.look(false);
    }

    /// One process, until a moment, or for a while after it has opened its store.
    fn process(&mut self, until: Option<Instant>, after: Duration, end: End) {
        self.life += 1;
        let is_undisturbed = until.is_some_and(|until| until > Instant::now() + 2 * self.every);
        let dir = self.store.to_string_lossy().into_owned();
        let first = self.book.next();
        let began = self.began.elapsed();
        let rate = self.rate.to_string();
        let mut command =
            child::command(&["soak", &dir, &first.to_string(), &rate, self.leak.name()]);
        command.stdin(Stdio::piped());
        let mut process = Process::start(command);
        let open = self.book.unfinished();
        let open: String = open
            .iter()
            .map(|(number, run)| format!("{number} {run}\n"))
            .collect();
        process.tell(&format!("{open}begin\n"));
        self.book.is_ready = false;
        self.book.stopped = None;
        let patience = Instant::now() + PATIENCE;
        let mut moment = until;
        loop {
            let deadline = moment.unwrap_or(patience);
            if let Some(line) = process.next_line(deadline.min(self.next_sample)) {
                self.book.hear_text(&line);
            }
            if moment.is_none() && self.book.is_ready {
                moment = Some(Instant::now() + after);
            }
            if Instant::now() >= self.next_sample {
                self.sample(Some(process.id()), is_undisturbed);
            }
            if Instant::now() >= moment.unwrap_or(patience) || self.book.stopped.is_some() {
                break;
            }
        }
        if moment.is_none() {
            let life = self.life;
            self.book
                .wrong(format!("14: process {life} did not open its store"));
        }
        self.end(process, end);
        let (life, ended, heard) = (self.life, self.began.elapsed(), self.book.highest());
        let line = format!(
            "process {life}, {began:.1?} to {ended:.1?}: from order {first}, heard up to {heard}, {end:?}\n"
        );
        self.lives.push_str(&line);
    }

    fn end(&mut self, mut process: Process, end: End) {
        let early = self.book.stopped.take();
        if let Some(why) = &early {
            let life = self.life;
            self.book
                .wrong(format!("1: process {life} stopped by itself: {why}"));
        }
        match end {
            End::Killed => {
                self.kills += 1;
                let said = process.kill();
                self.book.hear_text(&said);
            }
            End::Stopped => {
                self.stops += 1;
                process.tell("stop\n");
                let (said, status) = process.hear_out(PATIENCE);
                self.book.hear_text(&said);
                let is_well = status.is_some_and(|status| status.success());
                let why = self.book.stopped.take();
                if early.is_none() && (!is_well || why.as_deref() != Some("in order")) {
                    let life = self.life;
                    self.book
                        .wrong(format!("16: process {life} stops: {status:?}, {why:?}"));
                }
            }
        }
    }

    /// Opens the store and compares all that is in it. The last time everything goes on to its end.
    fn look(&mut self, to_the_end: bool) {
        self.checks += 1;
        let world = Arc::new(World::here());
        let looked = scratch::runtime().block_on(async {
            // It deletes nothing: a run that goes while it is looked at would seem to be damaged.
            let builder = orders::engine_that_keeps(Retention::forever());
            let builder = builder.resource_arc(world.clone());
            let engine = builder.open(&self.store).await?;
            if to_the_end {
                all_end(&engine).await?;
            }
            let mut found = self.book.witness().check(&engine).await?;
            if to_the_end {
                engine.schedule_handle("beat").delete().await?;
                all_end(&engine).await?;
                found.extend(self.book.witness().check_all_ended(&engine).await?);
            }
            engine.shutdown().await?;
            Ok::<_, EngineError>(found)
        });
        world
            .take()
            .into_iter()
            .for_each(|line| self.book.hear(line));
        let life = self.life;
        match looked {
            Ok(found) => {
                for violation in found {
                    self.book
                        .wrong(format!("after process {life}: {violation}"));
                }
            }
            Err(error) => self.book.wrong(format!("1: after process {life}: {error}")),
        }
        // Behind the last process there is nothing to compare: the time until then is cut into thirds.
        if !to_the_end && Instant::now() >= self.next_sample {
            self.sample(None, false);
        }
    }

    fn sample(&mut self, process: Option<u32>, is_undisturbed: bool) {
        self.samples.push(Sample {
            seconds: self.began.elapsed().as_secs_f64(),
            life: self.life,
            is_undisturbed,
            rss_kib: process.and_then(sample::rss_kib),
            descriptors: process.and_then(sample::descriptors),
            disk_kib: sample::disk_kib(&self.store),
            ended: self.book.ended(),
            swept: self.book.swept,
            steps: self.book.steps,
        });
        self.next_sample = Instant::now() + self.every;
    }

    /// Keeps what the processes left, if something was violated: the store, what became of each process, and what was
    /// violated. Says where.
    fn keep(&self) -> Option<String> {
        if self.book.violations.is_empty() {
            return None;
        }
        let place = std::env::temp_dir().join(format!("violated-soak-{}", std::process::id()));
        let report = self.lives.clone() + &self.book.violations.join("\n") + "\n";
        let kept = std::fs::create_dir_all(&place)
            .and_then(|()| std::fs::write(place.join("report.txt"), report))
            .and_then(|()| std::fs::rename(&self.store, place.join("store")));
        Some(match kept {
            Ok(()) => format!("the store and a report are kept in {}", place.display()),
            Err(error) => format!("{} cannot be kept: {error}", place.display()),
        })
    }

    /// What was done, in words.
    fn summary(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        let (ended, steps) = (self.book.ended(), self.book.steps);
        format!(
            "{seconds:.0} s, {ended} orders, {steps} executions of steps ({:.0} a second), {} kills, {} orderly stops, {} looks at the store, {} runs deleted, {} violations",
            steps as f64 / seconds,
            self.kills,
            self.stops,
            self.checks,
            self.book.swept,
            self.book.violations.len()
        )
    }
}

/// Waits until every run has ended: those that nobody sends the word give up.
async fn all_end(engine: &Engine) -> Result<(), EngineError> {
    let patience = Instant::now() + GIVES_UP + PATIENCE;
    loop {
        let active = engine
            .runs()
            .state(StateKind::Active)
            .limit(1_000)
            .await?
            .runs;
        let parked = engine
            .runs()
            .state(StateKind::Parked)
            .limit(1_000)
            .await?
            .runs;
        for run in parked.iter().filter(|run| is_suspected(run)) {
            engine.resume(run.run).await?;
        }
        let is_over = active
            .iter()
            .all(|run| &*run.workflow == orders::beat::NAME);
        if is_over && parked.is_empty() || Instant::now() > patience {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Killed again and again while it was alone, it is under suspicion; nothing of it is lost.
fn is_suspected(run: &RunHeader) -> bool {
    matches!(&run.state, RunState::Parked(parking) if parking.reason == ParkReason::Poison)
}
