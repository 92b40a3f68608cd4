//! What somebody outside was told, and may therefore rely on.
//!
//! Owns the notes that a test takes while it talks to an engine through crashes and restarts, and those violations that
//! show at once. What the store says to them later is judged in `judging` and `probing`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::judging::{self, State};
use super::probing;
use super::rule::{Invariant, Violation};
use crate::clock::Timestamp;
use crate::engine::{Engine, EngineError, Sent};
use crate::ids::{RunId, StepId};
use crate::store::{RunEnd, Store};

/// Checks everything that is promised, on any store: it is told what was acknowledged, and looks at the engine or the
/// store afterwards.
///
/// Take notes while the test talks to the engine, through as many crashes and restarts as it likes, and ask
/// [`check`](Self::check) after each. What was not told is not judged: a witness that was told nothing checks what
/// [`check_invariants`](super::check_invariants) does, and remembers it.
///
/// ```
/// use workflow_runtime::testing::{TestEngine, Witness};
/// # use workflow_runtime::{Result, workflow};
/// # #[workflow] async fn quick() -> Result<u32> { Ok(1) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let mut witness = Witness::new();
/// let engine = TestEngine::builder().register::<quick>().open().await?;
/// let run = engine.start(quick()).key("one").await?;
/// witness.started_under("one", "default", run.id(), None);
/// run.result().await?;
/// assert_eq!(witness.check(&engine).await?, []);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Witness {
    pub(super) runs: BTreeMap<RunId, Seen>,
    /// The runs that a key gave, in the order of the answers.
    pub(super) keys: BTreeMap<(Box<str>, Box<str>), Answers>,
    pub(super) effects: BTreeMap<StepId, Box<str>>,
    /// Steps whose outcome was on record when it was looked last.
    pub(super) settled: BTreeSet<StepId>,
    pub(super) poison: BTreeSet<RunId>,
    pub(super) parked: BTreeSet<RunId>,
    pub(super) damaged: BTreeSet<RunId>,
    /// Runs that cannot have ended.
    pub(super) waiting: BTreeSet<RunId>,
    pub(super) limits: HashMap<Box<str>, Limits>,
    pub(super) keep: Option<Duration>,
    /// The latest time that a clock showed.
    pub(super) latest: Timestamp,
    /// The disk has failed, and the store was not opened since.
    failed: bool,
    /// Bodies that ran though their outcome had been on record: whether they may have is in the journal.
    pub(super) ran_again: Vec<(RunId, StepId)>,
    found: Vec<Violation>,
}

/// What is known of a run.
#[derive(Debug, Default, Clone)]
pub(super) struct Seen {
    pub(super) namespace: Box<str>,
    /// Somebody was told that it was started.
    pub(super) acknowledged: bool,
    /// Signals that were acknowledged: name and key, in that order.
    pub(super) signals: Vec<(Box<str>, Box<str>)>,
    /// The records that were there, by number.
    pub(super) frames: BTreeMap<u64, blake3::Hash>,
    pub(super) created_at: Option<Timestamp>,
    /// The time of the newest record that was there: it ends no earlier.
    pub(super) newest: Timestamp,
    pub(super) end: Option<RunEnd>,
}

/// What a key answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) runs: Vec<RunId>,
    /// The latest time that a clock had shown at each answer: it may have been turned back since.
    pub(super) at: Vec<Timestamp>,
    /// What was promised for after the end of its run; `None`: for ever.
    pub(super) ttl: Option<Duration>,
}

/// What a step's attempts keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) attempts: u32,
    pub(super) longest_wait: Duration,
}

impl Witness {
    /// Begins with an empty notebook.
    pub fn new() -> Self {
        Self::default()
    }

    fn seen(&mut self, namespace: &str, run: RunId) -> &mut Seen {
        let seen = self.runs.entry(run).or_default();
        if seen.namespace.is_empty() {
            seen.namespace = namespace.into();
        }
        seen
    }

    fn blame(&mut self, run: RunId, invariant: Invariant, problem: String) {
        self.found.push(Violation::new(run, invariant, problem));
    }

    /// Somebody is told that something of a run is done.
    fn told(&mut self, run: RunId, what: &str) {
        if self.failed {
            let problem = format!("{what} was acknowledged after an error of the disk");
            self.blame(run, Invariant::FailStop, problem);
        }
    }

    /// A start was acknowledged, in a namespace (`default` unless the engine was given another).
    pub fn started(&mut self, namespace: &str, run: RunId) {
        self.told(run, "a start");
        self.seen(namespace, run).acknowledged = true;
    }

    /// A start under a key with the input of all its starts was acknowledged. `ttl` is what was promised for after the end of
    /// the run; `None`: the key names it for ever.
    pub fn started_under(&mut self, key: &str, namespace: &str, run: RunId, ttl: Option<Duration>) {
        self.started(namespace, run);
        let answers = self.keys.entry((namespace.into(), key.into())).or_default();
        answers.ttl = ttl;
        if answers.runs.last() != Some(&run) {
            answers.runs.push(run);
            answers.at.push(self.latest);
        }
    }

    /// A start with another input was answered, under the key of a run that has it still and refuses others.
    pub fn asked_with_other_input(&mut self, first: RunId, answer: Result<RunId, &EngineError>) {
        let problem = match answer {
            Err(EngineError::Conflict { run, .. }) if *run == first => return,
            Err(EngineError::Conflict { run, .. }) => {
                format!("another input under its key is refused in the name of {run}")
            }
            Ok(run) => format!("another input under its key gave {run}"),
            Err(_) => return, // no answer at all
        };
        self.blame(first, Invariant::Conflict, problem);
    }

    /// A signal with a key was acknowledged. Senders wait for one answer before they send the next.
    pub fn signalled(&mut self, run: RunId, name: &str, key: &str, sent: Sent) {
        self.told(run, "a signal");
        let signal = (name.into(), key.into());
        let seen = self.runs.entry(run).or_default();
        let known = seen.signals.contains(&signal);
        if !known {
            seen.signals.push(signal);
        } else if sent == Sent::Accepted {
            let problem = format!("the signal `{name}` of one key was accepted twice");
            self.blame(run, Invariant::Signals, problem);
        }
    }

    /// The end of a run was told: to whoever waits for its result, or to a parent.
    pub fn ended(&mut self, run: RunId, end: RunEnd) {
        self.told(run, "an end");
        let seen = self.runs.entry(run).or_default();
        let known = *seen.end.get_or_insert(end);
        if known != end {
            let problem = format!("it {} and, later, {}", known.kind, end.kind);
            self.blame(run, Invariant::EndsOnce, problem);
        }
    }

    /// The body of a step did something outside, under the id of the step. `what` tells what; the same id always does
    /// the same.
    pub fn acted(&mut self, run: RunId, step: StepId, what: &str) {
        if self.settled.contains(&step) {
            self.ran_again.push((run, step));
        }
        let first = self.effects.entry(step).or_insert_with(|| what.into());
        if **first != *what {
            let problem = format!("{step} is the id of {first} and of {what}");
            self.blame(run, Invariant::OneCallPerId, problem);
        }
    }

    /// What the attempts of a step keep to.
    pub fn limit(&mut self, step: &str, attempts: u32, longest_wait: Duration) {
        let limits = Limits {
            attempts,
            longest_wait,
        };
        self.limits.insert(step.into(), limits);
    }

    /// Runs are removed when they have ended for so long; without this none may go.
    pub fn keeps_runs_for(&mut self, keep: Duration) {
        self.keep = Some(keep);
    }

    /// This run cannot end before somebody does what it waits for: if it is gone, it was removed. A run of which this is not said may
    /// have ended since it was looked at last, and been removed when it had been kept for long enough.
    pub fn waits(&mut self, run: RunId) {
        self.waiting.insert(run);
    }

    /// Somebody does what a run waits for: it may end.
    pub fn may_end(&mut self, run: RunId) {
        self.waiting.remove(&run);
    }

    /// This run cannot go on, and must not stop the others. It may be parked.
    pub fn poisoned(&mut self, run: RunId) {
        self.poison.insert(run);
        self.parked.insert(run);
    }

    /// This run may be parked: somebody paused it, or the test means it to be.
    pub fn may_be_parked(&mut self, run: RunId) {
        self.parked.insert(run);
    }

    /// The journal of this run was damaged: it has to be named from now on.
    pub fn damaged(&mut self, run: RunId) {
        self.damaged.insert(run);
    }

    /// The engine's clock shows this time. To be told before it is turned back: what was due by then may have been
    /// removed.
    pub fn time_is(&mut self, time: SystemTime) {
        self.latest = self.latest.max(time.into());
    }

    /// The disk has failed: nothing may be acknowledged from now on.
    pub fn disk_failed(&mut self) {
        self.failed = true;
    }

    /// The store was opened again.
    pub fn reopened(&mut self) {
        self.failed = false;
    }

    /// Takes what showed by itself, without a look at an engine: two answers that do not go together.
    pub fn take_found(&mut self) -> Vec<Violation> {
        let again = std::mem::take(&mut self.ran_again).into_iter();
        self.found
            .extend(again.map(|(run, step)| super::promises::ran_again(run, step)));
        std::mem::take(&mut self.found)
    }

    /// Checks all runs of an engine against what was told, and remembers what is there: a later check says if it is
    /// not any more.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn check(&mut self, engine: &Engine) -> Result<Vec<Violation>, EngineError> {
        let state = judging::look(engine).await?;
        self.forgive_voided(&state);
        let mut violations = self.take_found();
        self.latest = self.latest.max(state.now);
        violations.extend(self.judge_damage(&state));
        violations.extend(judging::journals(engine, &state).await?);
        violations.extend(judging::orphans(engine, &state).await?);
        violations.extend(self.judge_namespaces(engine).await?);
        violations.extend(self.judge_gone(engine, &state).await?);
        violations.extend(self.judge_told(engine, &state).await?);
        violations.extend(self.judge_keys(&state));
        self.remember(&state);
        Ok(violations)
    }

    /// Checks that all runs that were told of have ended, but for those that cannot: to be asked when nothing goes on any
    /// more.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn check_all_ended(&self, engine: &Engine) -> Result<Vec<Violation>, EngineError> {
        let state = judging::look(engine).await?;
        let open = state
            .runs
            .iter()
            .filter(|run| run.header.end().is_none() && !self.parked.contains(&run.header.run));
        let (rule, why) = match self.poison.first() {
            Some(poison) => (Invariant::Poison, format!(", while {poison} cannot go on")),
            None => (Invariant::NoOrphan, String::new()),
        };
        let stuck = |run: RunId| Violation::new(run, rule, format!("it never ends{why}"));
        Ok(open.map(|run| stuck(run.header.run)).collect())
    }

    /// Checks a store that no engine has open: that a stale epoch writes nothing and an end is final. It claims every run.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn check_store(&self, store: &Arc<dyn Store>) -> Result<Vec<Violation>, EngineError> {
        probing::probe(&**store).await
    }

    /// Keeps what is there.
    fn remember(&mut self, state: &State) {
        for run in &state.runs {
            let seen = self.seen(&run.header.namespace, run.header.run);
            seen.created_at = Some(run.header.created_at);
            seen.end = run.header.end();
            seen.frames = run.frames.clone();
            if let Some(journal) = &run.journal {
                let newest = journal.records().last();
                seen.newest = newest.map_or(run.header.created_at, |record| record.time);
                judging::settle(journal, &mut self.settled);
            }
        }
    }
}
