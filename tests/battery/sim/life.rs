//! One process of a case: an engine on a runtime of its own, and those who talk to it until it ends.
//!
//! Owns what callers do: start, send, repeat, cancel, turn the clock. Never looks into the engine.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, Runtime};
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::Store as _;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Engine, EngineError, Queue, RunHandle, RunId, RunStatus, Sent, StepId};

use super::fate::{Fate, Stop};
use super::program::{Ending, Program, heard, signal_value};
use super::workflows::interpret;
use super::{Acknowledged, Case};

/// When the first process begins, in seconds.
pub(super) const FIRST_MORNING: u64 = 1_900_000_000;

/// Rounds of talking after which a run that has not ended never will: they take virtual months.
const PATIENCE: u64 = 400;

/// The key of the run.
const KEY: &str = "case";

/// The queue of those that wait for their turn.
const QUEUE: &str = "turns";

/// How a process went.
pub(super) struct Lived {
    pub(super) stop: Stop,
    /// What its clock showed at the end, in seconds.
    pub(super) ended_at: u64,
    pub(super) violations: Vec<String>,
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder
        .enable_time()
        .build()
        .expect("a runtime can be made")
}

/// Lives one process. Its tasks die with it, as they do.
pub(super) fn live(
    case: &Case,
    fate: Fate,
    store: &MemoryStore,
    began_at: u64,
    told: &mut Acknowledged,
) -> Lived {
    let mut lived = Lived {
        stop: Stop::Early,
        ended_at: began_at,
        violations: Vec::new(),
    };
    let runtime = runtime();
    runtime.block_on(async {
        let living = process(case, fate, store, began_at, told, &mut lived);
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => {}
        }
    });
    // The clock's last reading is lost with a process that died; time is not.
    lived.ended_at = lived.ended_at.max(began_at) + 1;
    lived
}

async fn process(
    case: &Case,
    fate: Fate,
    store: &MemoryStore,
    began_at: u64,
    told: &mut Acknowledged,
    lived: &mut Lived,
) {
    let opened = TestEngine::builder()
        .register::<interpret>()
        .resource_arc(case.world.clone())
        .configure(|engine| engine.queue(Queue::named(QUEUE).concurrency(1)))
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
        store,
        engine: &engine,
        told,
        violations: Vec::new(),
    };
    lived.stop = talk.until_the_end().await;
    lived.violations.append(&mut talk.violations);
    lived.ended_at = seconds(engine.now());
    if talk.fate.stops_after.is_some() && lived.stop == Stop::Early {
        // What the process leaves behind is the same if this fails.
        let _ = Engine::clone(&engine)
            .shutdown()
            .grace(Duration::ZERO)
            .await;
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Those outside, who talk to one process.
struct Talk<'c> {
    case: &'c Case,
    fate: Fate,
    store: &'c MemoryStore,
    engine: &'c TestEngine,
    told: &'c mut Acknowledged,
    violations: Vec<String>,
}

impl Talk<'_> {
    /// Talks until all runs have ended, or the process is of no use any more.
    async fn until_the_end(&mut self) -> Stop {
        let Some(run) = self.start().await else {
            return Stop::Early;
        };
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
            let Some(open) = self.unfinished().await else {
                continue; // the disk has failed
            };
            if open.is_empty() {
                return Stop::Over;
            }
            for run in open {
                self.signal(run).await;
            }
            self.let_time_pass(round).await;
        }
        let open = self.unfinished().await;
        self.violations.push(format!(
            "14: nothing goes on, and these have not ended: {open:?}"
        ));
        Stop::Hung
    }

    /// Starts the run, sometimes twice, and sometimes under its key with another input.
    async fn start(&mut self) -> Option<RunHandle<interpret>> {
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
                    let first = *self.told.run.get_or_insert(run.id());
                    if first != run.id() {
                        let other = format!("8: one key is {first} and {}", run.id());
                        self.violations.push(other);
                    }
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
            match self.engine.start(other).key(KEY).await {
                Err(EngineError::Conflict { .. }) => {}
                Err(_) if self.store.failure().is_some() => {}
                answer => {
                    let answer = answer.map(|run| run.id());
                    let wrong = format!("9: another input under the same key: {answer:?}");
                    self.violations.push(wrong);
                }
            }
        }
        started
    }

    async fn unfinished(&mut self) -> Option<Vec<RunId>> {
        let mut open = Vec::new();
        for header in self.engine.runs().await.ok()?.runs {
            match self.engine.status(header.run).await.ok()? {
                RunStatus::Active => open.push(header.run),
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
                let is_known = self.told.signals.contains(&(run, name, n));
                if is_known && !self.fate.chance.once_in(4) {
                    continue;
                }
                let value = signal_value(name, n);
                let sent = self.engine.signal(run, &name.to_string(), &value);
                match sent.key(n).await {
                    Ok(Sent::Accepted) if is_known => self.violations.push(format!(
                        "12: {run} accepts signal {name}/{n} for the second time"
                    )),
                    Ok(_) => {
                        self.told.signals.insert((run, name, n));
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
        let turn = Duration::from_secs(self.fate.chance.below(2 * 86_400));
        match self.fate.chance.below(16) {
            0 => self.engine.turn_forward(turn),
            1 => self.engine.turn_back(turn),
            _ => {}
        }
    }

    /// After an error of the disk nobody is told that anything is done.
    async fn nothing_is_acknowledged(&mut self, run: &RunHandle<interpret>) {
        let signal = run.signal("late", &1_u64).await;
        let start = self
            .engine
            .start(interpret(Program::Nap { ms: 0 }, 1, Ending::Value));
        let start = start.await.map(|run| run.id());
        if signal.is_ok() || start.is_ok() {
            let wrong = format!("19: after an error of the disk: {signal:?}, {start:?}");
            self.violations.push(wrong);
        }
    }
}

/// A process that looks and does nothing: its engine knows no workflow.
pub(super) struct Reader {
    runtime: Runtime,
    engine: Engine,
    store: MemoryStore,
}

impl Reader {
    pub(super) fn open(store: MemoryStore) -> Self {
        let runtime = runtime();
        let opened = runtime.block_on(Engine::builder().open_with(store.clone()).into_future());
        Self {
            engine: opened.expect("a store in memory opens"),
            runtime,
            store,
        }
    }

    /// All runs with their journals, by id.
    pub(super) fn journals(&self) -> Vec<(RunId, Result<Journal, EngineError>)> {
        self.runtime.block_on(async {
            let page = self.engine.runs().limit(10_000).await.expect("lists");
            let mut runs: Vec<RunId> = page.runs.iter().map(|header| header.run).collect();
            runs.sort();
            let mut journals = Vec::new();
            for run in runs {
                journals.push((run, self.engine.journal(run).await));
            }
            journals
        })
    }

    /// The bytes of a run.
    pub(super) fn frames(&self, run: RunId) -> Vec<bytes::Bytes> {
        let frames = self.store.frames(run, 0, usize::MAX);
        self.runtime.block_on(frames).expect("reads")
    }

    /// The steps whose outcome is on record.
    pub(super) fn settled(&self) -> HashSet<StepId> {
        let journals = self
            .journals()
            .into_iter()
            .filter_map(|(_, journal)| journal.ok());
        journals
            .flat_map(|journal| journal.records().to_vec())
            .filter_map(|record| match record.event {
                Event::StepCompleted(step) => Some(step.step),
                _ => None,
            })
            .collect()
    }
}
