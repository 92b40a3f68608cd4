//! One process of a case: an engine on a runtime of its own, and those who talk to it until it ends.
//!
//! Owns what callers do: start, send, repeat, cancel, turn the clock. Never looks into the engine.

use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, Runtime};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::{ParkReason, Store as _};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Engine, EngineError, Queue, Retention, RunHandle, RunId, RunStatus};

use super::beyond::Left;
use super::check::numbered;
use super::fate::{Fate, Stop};
use super::program::{Ending, Program, heard, signal_value};
use super::workflows::{OUTBOX, brief, deliver, interpret, onward, passes, poison, tick};
use super::{Acknowledged, Case, OWN};
use crate::chance::Chance;

/// When the first process begins, in seconds.
pub(super) const FIRST_MORNING: u64 = 1_900_000_000;

/// Rounds of talking after which a run that has not ended never will: they take virtual months.
const PATIENCE: u64 = 400;

/// How long short runs are kept.
pub(super) const KEEPS: Duration = Duration::from_secs(2 * 60 * 60);

/// The key of the run.
const KEY: &str = "case";

/// The queue of those that wait for their turn.
pub(super) const QUEUE: &str = "turns";

/// How a process went.
pub(super) struct Lived {
    pub(super) stop: Stop,
    /// What its clock showed at the end, in seconds.
    pub(super) ended_at: u64,
    /// How far its clock was turned, in seconds.
    turned: i64,
    pub(super) violations: Vec<String>,
}

pub(super) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    // Its time stands still from the beginning: between a runtime's first moment and a later pause real time passes.
    builder
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made")
}

/// Lives one process. Its tasks die with it, as they do.
pub(super) fn live(
    case: &Case,
    fate: Fate,
    extra: Chance,
    store: &MemoryStore,
    began_at: u64,
    told: &mut Acknowledged,
) -> Lived {
    let mut lived = Lived {
        stop: Stop::Early,
        ended_at: began_at,
        turned: 0,
        violations: Vec::new(),
    };
    let runtime = runtime();
    let passed = runtime.block_on(async {
        let began = tokio::time::Instant::now();
        let living = process(case, (fate, extra), store, began_at, told, &mut lived);
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => {}
        }
        began.elapsed().as_secs()
    });
    // A clock that was turned back may be behind where it began.
    lived.ended_at = (began_at + passed).saturating_add_signed(lived.turned) + 1;
    lived
}

async fn process(
    case: &Case,
    (fate, extra): (Fate, Chance),
    store: &MemoryStore,
    began_at: u64,
    told: &mut Acknowledged,
    lived: &mut Lived,
) {
    let opened = TestEngine::builder()
        .register::<interpret>()
        .register::<poison>()
        .register::<brief>()
        .register::<passes>()
        .register::<onward>()
        .register::<tick>()
        .resource_arc(case.world.clone())
        .configure(|engine| {
            engine
                .queue(Queue::named(QUEUE).concurrency(1))
                .retention_of::<brief>(Retention::of(KEEPS))
                .outbox(OUTBOX, {
                    let world = case.world.clone();
                    move |message| deliver(world.clone(), message)
                })
        })
        .seed(case.seed)
        .starts_at(SystemTime::UNIX_EPOCH + Duration::from_secs(began_at))
        .store(store.clone())
        .open()
        .await;
    let engine = match opened {
        Ok(engine) => engine,
        Err(_) if store.failure().is_some() => return,
        Err(error) => {
            let refused = format!("1: the store does not open: {error}");
            lived.violations.push(refused);
            return;
        }
    };
    let mut talk = Talk {
        case,
        fate,
        extra,
        store,
        engine: &engine,
        told,
        turned: &mut lived.turned,
        violations: &mut lived.violations,
    };
    lived.stop = talk.until_the_end().await;
    if talk.fate.stops_after.is_some() && lived.stop == Stop::Early {
        // What the process leaves behind is the same if this fails.
        let _ = Engine::clone(&engine)
            .shutdown()
            .grace(Duration::ZERO)
            .await;
    }
}

/// Those outside, who talk to one process.
pub(super) struct Talk<'c> {
    pub(super) case: &'c Case,
    fate: Fate,
    /// The decisions of those who do more than talk.
    pub(super) extra: Chance,
    pub(super) store: &'c MemoryStore,
    pub(super) engine: &'c TestEngine,
    pub(super) told: &'c mut Acknowledged,
    turned: &'c mut i64,
    pub(super) violations: &'c mut Vec<String>,
}

impl Talk<'_> {
    /// Talks until all runs have ended, or the process is of no use any more.
    async fn until_the_end(&mut self) -> Stop {
        let Some(run) = self.start().await else {
            return Stop::Early;
        };
        if self.declare().await.is_none() {
            return Stop::Early;
        }
        if self.fate.chance.once_in(3) {
            self.guard().await;
        }
        let mut had_coda = false;
        for round in 0..PATIENCE {
            if self.store.failure().is_some() {
                self.nothing_is_acknowledged(&run).await;
                return Stop::Early;
            }
            if self.fate.stops_after == Some(round) {
                return Stop::Early;
            }
            if self.fate.cancels_in == Some(round) {
                self.told.cancel_asked = true;
                if run.cancel().await.is_ok() {
                    self.told.cancel_heard = true;
                }
            }
            if self.meddle().await.is_none() {
                continue; // the disk has failed
            }
            let open = self.unfinished().await;
            let posts = self.engine.outbox(OUTBOX).pending().await;
            let (Some(open), Ok(posts)) = (open, posts) else {
                continue; // the disk has failed
            };
            if open.is_empty() && posts == 0 {
                if self.left().await != Some(Left::Nothing) {
                    continue; // more to come, or the disk has failed
                }
                if had_coda || !self.fate.chance.once_in(3) {
                    return Stop::Over;
                }
                had_coda = self.coda().await;
                continue; // it took hours, in which a schedule may have begun runs; or the disk has failed
            }
            for (run, workflow) in open {
                match &*workflow {
                    brief::NAME => {
                        self.told.witness.may_end(run);
                        // Whether it was heard shows in the end of the run.
                        drop(self.engine.signal(run, "go", &1_u64).key("go").await);
                    }
                    tick::NAME => {}
                    _ => self.signal(run).await,
                }
            }
            self.let_time_pass(round).await;
        }
        let stuck = self.told.witness.check_all_ended(self.engine).await;
        self.violations.extend(numbered(stuck));
        if self.case.extras.beat.is_some() && !self.told.beat.is_over {
            let problem = format!("14: ticks are never settled: {:?}", self.case.extras);
            self.violations.push(problem);
        }
        Stop::Hung
    }

    /// Starts the run, sometimes twice, and sometimes under its key with another input.
    async fn start(&mut self) -> Option<RunHandle<interpret>> {
        if self.case.poisoned {
            let run = self.engine.start(poison()).key("poison").await.ok()?.id();
            self.told.poison = Some(run);
            self.told.witness.poisoned(run);
            self.told.witness.started_under("poison", OWN, run, None);
        }
        let mut started = None;
        for _ in 0..=self.fate.chance.below(2) {
            let (program, ending) = (self.case.program.clone(), self.case.ending);
            let start = self.engine.start(interpret(program, 1, ending)).key(KEY);
            let start = match self.case.queued {
                true => start.queue(QUEUE),
                false => start,
            };
            match start.await {
                Ok(run) => {
                    self.told.run.get_or_insert(run.id());
                    self.told.witness.started_under(KEY, OWN, run.id(), None);
                    started = Some(run);
                }
                Err(_) if self.store.failure().is_some() => return None,
                Err(error) => {
                    self.violations
                        .push(format!("8: the start is refused: {error}"));
                    return None;
                }
            }
        }
        if self.fate.chance.once_in(4) {
            let other = interpret(Program::Nap { ms: 3 }, 2, self.case.ending);
            let answer = self.engine.start(other).key(KEY).await;
            let answer = answer.map(|run| run.id());
            if let Some(first) = self.told.run {
                let witness = &mut self.told.witness;
                witness.asked_with_other_input(first, answer.as_ref().copied());
            }
        }
        started
    }

    /// The runs that have not ended, with the names of their workflows.
    async fn unfinished(&mut self) -> Option<Vec<(RunId, Box<str>)>> {
        let mut open = Vec::new();
        for header in self.engine.runs().await.ok()?.runs {
            match self.engine.status(header.run).await.ok()? {
                RunStatus::Active => open.push((header.run, header.workflow)),
                RunStatus::Parked(_) if self.told.poison == Some(header.run) => {}
                RunStatus::Parked(parking) if parking.reason == ParkReason::Diverged => self
                    .violations
                    .push(format!("7: {} has diverged: {parking:?}", header.run)),
                RunStatus::Parked(parking) => self
                    .violations
                    .push(format!("14: {} is parked: {parking:?}", header.run)),
                _ => {}
            }
        }
        open.sort();
        Some(open)
    }

    /// Sends a run the signals that it has not been told to have got, in order, and some of the others again.
    async fn signal(&mut self, run: RunId) {
        let mut names = Vec::new();
        heard(&self.case.program, &mut names);
        for (name, count) in names {
            for n in 0..count {
                if self.told.shared_signals.contains(&(run, name, n)) {
                    continue; // the fork has heard it, from its origin
                }
                let is_known = self.told.signals.contains(&(run, name, n));
                if is_known && !self.fate.chance.once_in(4) {
                    continue;
                }
                let value = signal_value(name, n);
                let sent = self.engine.signal(run, &name.to_string(), &value);
                match sent.key(n.to_string()).await {
                    Ok(sent) => {
                        self.told.signals.insert((run, name, n));
                        let (name, key) = (name.to_string(), n.to_string());
                        self.told.witness.signalled(run, &name, &key, sent);
                    }
                    Err(EngineError::Ended(_)) => return,
                    Err(_) if self.store.failure().is_some() => return,
                    Err(error) => {
                        let refused = format!("12: a signal is refused: {error}");
                        self.violations.push(refused);
                        return;
                    }
                }
            }
        }
    }

    /// Lets more and more time pass, and turns the clock now and then.
    async fn let_time_pass(&mut self, round: u64) {
        let most = Duration::from_millis(1 << round.min(26));
        let time = most.mul_f64(self.fate.chance.below(1000) as f64 / 1000.0);
        tokio::time::sleep(time).await;
        let by = self.fate.chance.below(2 * 86_400).cast_signed();
        let turn = Duration::from_secs(by.unsigned_abs());
        match self.fate.chance.below(16) {
            0 => {
                self.engine.turn_forward(turn);
                *self.turned += by;
            }
            1 => {
                self.told.witness.time_is(self.engine.now());
                self.engine.turn_back(turn);
                *self.turned -= by;
                self.told.turned_back = true;
            }
            _ => {}
        }
    }

    /// After an error of the disk nobody is told that anything is done.
    async fn nothing_is_acknowledged(&mut self, run: &RunHandle<interpret>) {
        self.told.witness.disk_failed();
        if let Ok(sent) = run.signal("late", &1_u64).key("late").await {
            self.told.witness.signalled(run.id(), "late", "late", sent);
        }
        let nap = interpret(Program::Nap { ms: 0 }, 1, Ending::Value);
        if let Ok(run) = self.engine.start(nap).await {
            self.told.witness.started(OWN, run.id());
        }
    }
}
