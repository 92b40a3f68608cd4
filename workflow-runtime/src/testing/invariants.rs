//! What holds of every journal, whatever went wrong: the invariants, checked in one place.
//!
//! Owns the rules that can be judged from journals alone, as a pure function over one journal, and the walk over
//! all journals of an engine. It repairs nothing and drives nothing. The files: `rule` has the list, `judging` looks at
//! an engine, `witness` has what somebody was told, `promises` and `answers` compare the two, `probing` asks a store without an
//! engine.

/// Where the only gap that a journal may have begins: what a run is stays.
const FIRST_FORGOTTEN: usize = 2;

/// Says whether a run begins anew, and may have forgotten passes: what is kept goes on with a checkpoint, or with the record
/// before one.
fn forgets(records: &[Record]) -> bool {
    let near = records.iter().skip(FIRST_FORGOTTEN).take(2);
    near.into_iter()
        .any(|record| matches!(record.event, Event::Checkpoint(_)))
}

mod answers;
mod judging;
mod probing;
mod promises;
mod rule;
#[cfg(test)]
mod tests;
mod witness;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::clock::Timestamp;
use crate::engine::{Engine, EngineError};
use crate::ids::{RunId, StepId};
use crate::journal::{Event, Journal, Record};
use crate::store::RunState;

pub use self::rule::{Invariant, Violation};
pub use self::witness::Witness;

/// Checks what can be told from an engine alone: the journals of all its runs and their chains, that every run that has
/// not ended is looked after, and that no other namespace is seen. A [`Witness`] checks what was promised as well.
///
/// ```
/// use workflow_runtime::testing::{TestEngine, check_invariants};
/// # use workflow_runtime::{Result, workflow};
/// # #[workflow] async fn quick() -> Result<u32> { Ok(1) }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let engine = TestEngine::builder().register::<quick>().open().await?;
/// engine.start(quick()).await?.result().await?;
/// assert_eq!(check_invariants(&engine).await?, []);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the store fails.
pub async fn check_invariants(engine: &Engine) -> Result<Vec<Violation>, EngineError> {
    let state = judging::look(engine).await?;
    let mut violations = judging::chains(&state);
    violations.extend(judging::journals(engine, &state).await?);
    violations.extend(judging::orphans(engine, &state).await?);
    Ok(violations)
}

/// Reads the journals of all runs in the engine's namespace, oldest first; damaged ones are left out.
pub(super) async fn journals(engine: &Engine) -> Result<Vec<Journal>, EngineError> {
    let state = judging::look(engine).await?;
    let own = state.runs.into_iter();
    Ok(own.filter_map(|run| run.journal).collect())
}

/// Checks one journal, as far as it can be judged without the others.
pub fn check_journal(journal: &Journal) -> Vec<Violation> {
    let mut check = Check::new(journal);
    for (place, record) in journal.records().iter().enumerate() {
        check.order(place, record);
        check.end(record);
        check.read(record);
    }
    let ended = matches!(journal.header().state, RunState::Ended(_));
    if ended != check.ended.is_some() {
        let (header, records) = match ended {
            true => ("has ended", "do not"),
            false => ("has not ended", "do"),
        };
        check.found(
            Invariant::EndsOnce,
            format!("its header says that it {header}, and its records {records}"),
        );
    }
    check.violations
}

/// What was seen of a journal so far.
struct Check<'a> {
    run: RunId,
    records: &'a [Record],
    /// The outcomes that are in force, by step.
    outcomes: HashMap<StepId, u64>,
    names: HashMap<StepId, Box<str>>,
    attempts: HashMap<StepId, u32>,
    timers: HashMap<StepId, Timestamp>,
    signals: BTreeMap<(Box<str>, Box<str>), u64>,
    children: HashMap<StepId, RunId>,
    ended: Option<u64>,
    violations: Vec<Violation>,
}

impl<'a> Check<'a> {
    fn new(journal: &'a Journal) -> Self {
        Self {
            run: journal.header().run,
            records: journal.records(),
            outcomes: HashMap::new(),
            names: HashMap::new(),
            attempts: HashMap::new(),
            timers: HashMap::new(),
            signals: BTreeMap::new(),
            children: HashMap::new(),
            ended: None,
            violations: Vec::new(),
        }
    }

    fn found(&mut self, invariant: Invariant, problem: String) {
        self.violations
            .push(Violation::new(self.run, invariant, problem));
    }

    fn order(&mut self, place: usize, record: &Record) {
        let seq = record.seq;
        let expected = match self.records.get(FIRST_FORGOTTEN) {
            Some(kept) if place >= FIRST_FORGOTTEN && forgets(self.records) => {
                kept.seq + (place - FIRST_FORGOTTEN) as u64
            }
            _ => place as u64,
        };
        if seq != expected {
            self.found(
                Invariant::Order,
                format!("record {seq} stands at place {place}"),
            );
        }
        let before = place.checked_sub(1).map(|before| &self.records[before]);
        if let Some(before) = before.filter(|before| before.time > record.time) {
            let (before, after) = (before.time, record.time);
            self.found(
                Invariant::Order,
                format!("record {seq} is dated {after}, the one before it {before}"),
            );
        }
    }

    fn end(&mut self, record: &Record) {
        let seq = record.seq;
        if let (Some(end), false) = (self.ended, matches!(record.event, Event::RunReopened(_))) {
            self.found(
                Invariant::EndsOnce,
                format!("record {seq} follows the end of the run, record {end}"),
            );
        }
        if record.event.is_end() {
            self.ended = Some(seq);
        }
    }

    fn read(&mut self, record: &Record) {
        let seq = record.seq;
        match &record.event {
            Event::StepCompleted(step) => {
                self.name(seq, step.step, &step.name);
                self.outcome(seq, step.step, &step.name);
                self.last_attempt(seq, step.step, &step.name, step.attempts);
            }
            Event::AttemptFailed(attempt) => {
                self.name(seq, attempt.step, &attempt.name);
                self.failed_attempt(seq, attempt.step, &attempt.name, attempt.attempt);
            }
            Event::StepIntent(intent) => self.name(seq, intent.step, &intent.name),
            Event::StaleOutcomeDiscarded(stale) => {
                self.outcomes.remove(&stale.step);
                self.attempts.remove(&stale.step);
            }
            Event::TimerSet(timer) => {
                self.timers.insert(timer.timer, timer.deadline);
            }
            Event::TimerFired(timer) => self.fired(record, timer.timer),
            Event::SignalReceived(signal) => {
                self.received(seq, &signal.name, signal.key.as_deref())
            }
            Event::ChildStarted(child) => {
                self.children.insert(child.call, child.child);
            }
            Event::ChildFinished(child) => self.child_ended(seq, child.call, child.child),
            Event::Checkpoint(checkpoint) => {
                let carried = checkpoint.children.iter();
                self.children
                    .extend(carried.map(|child| (child.call, child.child)));
            }
            Event::RunSucceeds(line) => {
                let carried = line.children.iter();
                self.children
                    .extend(carried.map(|child| (child.call, child.child)));
            }
            Event::RunReopened(reopened) => self.reopened(&reopened.voided),
            // A key names a signal to one run: what was sent to the origin was not sent to the fork.
            Event::RunForked(_) => self.signals.clear(),
            _ => {}
        }
    }

    fn name(&mut self, seq: u64, step: StepId, name: &str) {
        let known = self.names.entry(step).or_insert_with(|| name.into());
        if **known != *name {
            let problem = format!("{step} is `{known}` and, in record {seq}, `{name}`");
            self.found(Invariant::OneCallPerId, problem);
        }
    }

    fn outcome(&mut self, seq: u64, step: StepId, name: &str) {
        if let Some(first) = self.outcomes.insert(step, seq) {
            let problem = format!("`{name}` ({step}) has two outcomes, records {first} and {seq}");
            self.found(Invariant::OneOutcome, problem);
        }
    }

    fn failed_attempt(&mut self, seq: u64, step: StepId, name: &str, attempt: u32) {
        if let Some(outcome) = self.outcomes.get(&step) {
            let problem = format!(
                "record {seq} is an attempt at `{name}` after its outcome, record {outcome}"
            );
            self.found(Invariant::Attempts, problem);
        }
        let before = self.attempts.insert(step, attempt);
        if before.is_some_and(|before| before >= attempt) {
            let problem = format!("record {seq} is attempt {attempt} at `{name}` once more");
            self.found(Invariant::Attempts, problem);
        }
    }

    /// The outcome says how many attempts there were; those that failed on record are among them.
    fn last_attempt(&mut self, seq: u64, step: StepId, name: &str, attempts: u32) {
        let failed = self.attempts.get(&step).copied().unwrap_or(0);
        if attempts != 0 && attempts < failed {
            let problem = format!(
                "record {seq} ends `{name}` in attempt {attempts}, after attempt {failed} failed"
            );
            self.found(Invariant::Attempts, problem);
        }
    }

    fn received(&mut self, seq: u64, name: &str, key: Option<&str>) {
        let Some(key) = key else { return };
        if let Some(first) = self.signals.insert((name.into(), key.into()), seq) {
            let problem =
                format!("signal `{name}` was received under one key by records {first} and {seq}");
            self.found(Invariant::Signals, problem);
        }
    }

    /// By its call: a child that went on as a new run ends as the last one of its line.
    fn child_ended(&mut self, seq: u64, call: StepId, child: RunId) {
        if self.children.remove(&call).is_none() {
            let problem = format!("record {seq} ends child {child}, which is not running");
            self.found(Invariant::Children, problem);
        }
    }

    fn fired(&mut self, record: &Record, timer: StepId) {
        let (seq, time) = (record.seq, record.time);
        match self.timers.remove(&timer) {
            None => self.found(
                Invariant::Timers,
                format!("record {seq} fires {timer}, which is not set or has fired"),
            ),
            Some(deadline) if deadline > time => self.found(
                Invariant::Timers,
                format!("record {seq} fires {timer} at {time}, before its deadline {deadline}"),
            ),
            Some(_) => {}
        }
    }

    fn reopened(&mut self, voided: &[u64]) {
        self.ended = None;
        let voided: HashSet<_> = voided.iter().copied().collect();
        let attempts = &mut self.attempts;
        self.outcomes.retain(|step, seq| {
            let in_force = !voided.contains(seq);
            if !in_force {
                attempts.remove(step);
            }
            in_force
        });
        // A child that failed is taken up again under its call.
        for record in self.records.iter().filter(|it| voided.contains(&it.seq)) {
            if let Event::ChildFinished(child) = &record.event {
                self.children.insert(child.call, child.child);
            }
        }
    }
}
