//! What an engine and its store say to what was told.
//!
//! Owns one look at all runs of a store and the judgements over it. It changes nothing; to let tasks run that are on their
//! way, it yields.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::rule::{Invariant, Violation};
use super::witness::{Seen, Witness};
use super::{check_journal, forgets};
use crate::clock::Timestamp;
use crate::engine::{Engine, EngineError};
use crate::ids::{RunId, StepId};
use crate::journal::{Event, Journal, JournalError, Outcome};
use crate::store::{ParkReason, RunHeader, RunOrder, RunQuery, RunState, StoreError};

/// Runs that are read at a time.
const PAGE: usize = 1_000;

/// How often tasks may run before a run that nobody seems to look after is believed to be an orphan.
const PATIENCE: usize = 256;

/// All that is there.
pub(super) struct State {
    /// The runs of the engine's namespace, oldest first.
    pub(super) runs: Vec<Run>,
    /// Journals that cannot be trusted, of all namespaces.
    pub(super) damaged: Vec<JournalError>,
    pub(super) now: Timestamp,
}

/// One run.
pub(super) struct Run {
    pub(super) header: RunHeader,
    /// `None` if it is damaged.
    pub(super) journal: Option<Journal>,
    /// The records that are kept, by number.
    pub(super) frames: BTreeMap<u64, blake3::Hash>,
}

/// Reads all runs.
pub(super) async fn look(engine: &Engine) -> Result<State, EngineError> {
    let store = engine.store();
    store.check().await?;
    let mut state = State {
        runs: Vec::new(),
        damaged: Vec::new(),
        now: engine.clock_now(),
    };
    let mut query = RunQuery {
        order: RunOrder::OldestFirst,
        limit: PAGE,
        ..RunQuery::default()
    };
    loop {
        let page = store.list(query.clone()).await?;
        let last = page.last().map(RunHeader::position);
        let is_last = page.len() < PAGE;
        for header in page {
            let (kept, read) = engine.evidence(header.clone()).await?;
            let journal = read.map_err(|error| state.damaged.push(error)).ok();
            if *header.namespace != *engine.own_namespace() {
                continue;
            }
            let numbers = (0..2).chain(kept.kept_from.max(2)..);
            let hashes = kept.frames.iter().map(|frame| blake3::hash(frame));
            state.runs.push(Run {
                header,
                journal,
                frames: numbers.zip(hashes).collect(),
            });
        }
        match last {
            Some(last) if !is_last => query.after = Some(last),
            _ => return Ok(state),
        }
    }
}

/// Chains that do not verify.
pub(super) fn chains(state: &State) -> Vec<Violation> {
    let broken =
        |error: &JournalError| Violation::new(error.run(), Invariant::Chain, error.to_string());
    state.damaged.iter().map(broken).collect()
}

/// Journals that break a rule by themselves.
pub(super) async fn journals(
    engine: &Engine,
    state: &State,
) -> Result<Vec<Violation>, EngineError> {
    let mut violations = Vec::new();
    let readable = state.runs.iter().filter_map(|run| run.journal.as_ref());
    for journal in readable {
        if !check_journal(journal).is_empty() {
            // A run that ended between the reading of its header and of its records is not at fault.
            violations.extend(check_journal(&engine.journal(journal.header().run).await?));
        }
    }
    Ok(violations)
}

/// Runs that nobody looks after.
pub(super) async fn orphans(engine: &Engine, state: &State) -> Result<Vec<Violation>, EngineError> {
    let mut violations = Vec::new();
    let open = state.runs.iter().filter(|run| run.header.end().is_none());
    for run in open.filter(|run| run.journal.is_some()) {
        let run = run.header.run;
        let mut why = engine.orphaned(run).await?;
        for _ in 0..PATIENCE {
            if why.is_none() {
                break;
            }
            tokio::task::yield_now().await;
            why = engine.orphaned(run).await?;
        }
        violations.extend(why.map(|why| Violation::new(run, Invariant::NoOrphan, why)));
    }
    Ok(violations)
}

/// Takes the steps whose outcome is in force into a set, and those out that may run again.
pub(super) fn settle(journal: &Journal, settled: &mut BTreeSet<StepId>) {
    let mut by_number = HashMap::new();
    for record in journal.records() {
        match &record.event {
            Event::StepCompleted(step) => {
                by_number.insert(record.seq, step.step);
                settled.insert(step.step);
            }
            Event::StaleOutcomeDiscarded(stale) => {
                settled.remove(&stale.step);
            }
            Event::RunReopened(reopened) => {
                for step in reopened.voided.iter().filter_map(|seq| by_number.get(seq)) {
                    settled.remove(step);
                }
            }
            _ => {}
        }
    }
}

impl Witness {
    /// What is damaged is named, and nothing else is.
    pub(super) fn judge_damage(&self, state: &State) -> Vec<Violation> {
        let mut violations = chains(state);
        violations.retain(|violation| !self.damaged.contains(&violation.run));
        let named = |run: &RunId| state.damaged.iter().any(|error| error.run() == *run);
        let silent = self.damaged.iter().filter(|run| !named(run));
        violations.extend(silent.map(|run| {
            let problem = "its journal was damaged, and nobody says so".to_owned();
            Violation::new(*run, Invariant::Corruption, problem)
        }));
        violations
    }

    /// Nothing of another namespace is seen.
    pub(super) async fn judge_namespaces(
        &self,
        engine: &Engine,
    ) -> Result<Vec<Violation>, EngineError> {
        let mut violations = Vec::new();
        let own = engine.own_namespace();
        let mut leaks = |run: RunId, of: &str, how: &str| {
            let problem = format!("it is of namespace `{of}`, and `{own}` {how}");
            violations.push(Violation::new(run, Invariant::Namespaces, problem));
        };
        for header in engine.runs().limit(PAGE).await?.runs {
            if *header.namespace != *own {
                leaks(header.run, &header.namespace, "lists it");
            }
        }
        let foreign = |seen: &Seen| !seen.namespace.is_empty() && *seen.namespace != *own;
        for (run, seen) in self.runs.iter().filter(|(_, seen)| foreign(seen)) {
            if engine.journal(*run).await.is_ok() || engine.status(*run).await.is_ok() {
                leaks(*run, &seen.namespace, "reads it");
            }
        }
        Ok(violations)
    }

    /// What was there and is not any more had ended, for as long as it was to be kept.
    pub(super) async fn judge_gone(
        &self,
        engine: &Engine,
        state: &State,
    ) -> Result<Vec<Violation>, EngineError> {
        let mut violations = Vec::new();
        let there: BTreeSet<RunId> = state.runs.iter().map(|run| run.header.run).collect();
        let own = |seen: &Seen| *seen.namespace == *engine.own_namespace();
        let known = self.runs.iter().filter(|(_, seen)| own(seen));
        for (run, seen) in known.filter(|(run, _)| !there.contains(run)) {
            let mut found = |rule, problem: &str| {
                violations.push(Violation::new(*run, rule, problem.to_owned()));
            };
            let over =
                |end: Timestamp| self.keep.is_some_and(|keep| end.after(keep) <= self.latest);
            match seen.end {
                _ if self.keep.is_none() && seen.acknowledged => {
                    found(Invariant::Acknowledged, "it was acknowledged, and is gone");
                }
                None if self.keep.is_some() => {
                    found(Invariant::Retention, "it had not ended, and was removed");
                }
                Some(end) if self.keep.is_some() && !over(end.at) => {
                    found(Invariant::Retention, "it was removed before its time");
                }
                _ => {}
            }
            if self.names(*run, seen) {
                found(
                    Invariant::Retention,
                    "it was removed while its key names it",
                );
            }
            if engine.leaves_notes(*run).await? {
                found(
                    Invariant::Retention,
                    "it was removed, and notes of it are left",
                );
            }
        }
        Ok(violations)
    }

    /// Says whether the key of a run names it still.
    fn names(&self, run: RunId, seen: &Seen) -> bool {
        let answers = self.keys.values().find(|key| key.runs.last() == Some(&run));
        answers.is_some_and(|key| match (key.ttl, seen.end) {
            (Some(ttl), Some(end)) => end.at.after(ttl) > self.latest,
            _ => true,
        })
    }

    /// What was told of each run is there.
    pub(super) async fn judge_told(
        &self,
        engine: &Engine,
        state: &State,
    ) -> Result<Vec<Violation>, EngineError> {
        let mut violations = Vec::new();
        let nothing = Seen::default();
        for run in &state.runs {
            let id = run.header.run;
            let seen = self.runs.get(&id).unwrap_or(&nothing);
            let mut found = |rule, problem| violations.push(Violation::new(id, rule, problem));
            if let Some((seq, why)) = changed(seen, run) {
                let rule = match why {
                    "is gone" => Invariant::Acknowledged,
                    _ => Invariant::AppendOnly,
                };
                found(rule, format!("record {seq} was there, and {why}"));
            }
            if let RunState::Parked(parking) = &run.header.state
                && !self.parked.contains(&id)
                && parking.reason == ParkReason::Diverged
            {
                let report = &parking.report;
                found(Invariant::SameReplay, format!("it diverged: {report}"));
            }
            let Some(journal) = &run.journal else {
                continue;
            };
            if let Some(end) = seen.end.filter(|end| run.header.end() != Some(*end))
                && !journal.records().iter().any(is_reopening)
            {
                found(
                    Invariant::EndsOnce,
                    format!("it {}, and does not any more", end.kind),
                );
            }
            violations.extend(self.judge_attempts(journal));
            violations.extend(self.judge_effects(journal));
        }
        violations.extend(self.judge_signals(engine, state).await?);
        Ok(violations)
    }

    fn judge_attempts(&self, journal: &Journal) -> Vec<Violation> {
        let mut violations = Vec::new();
        let run = journal.header().run;
        let mut found =
            |problem| violations.push(Violation::new(run, Invariant::Attempts, problem));
        for record in journal.records() {
            let (name, attempts) = match &record.event {
                Event::StepCompleted(step) => (&step.name, step.attempts),
                Event::AttemptFailed(attempt) => (&attempt.name, attempt.attempt),
                _ => continue,
            };
            let Some(limits) = self.limits.get(name) else {
                continue;
            };
            let (seq, most) = (record.seq, limits.attempts);
            if attempts > most {
                found(format!(
                    "record {seq} is attempt {attempts} at `{name}`, {most} are the most"
                ));
            }
            if let Event::AttemptFailed(attempt) = &record.event
                && attempt.next_at.since(record.time) > limits.longest_wait
            {
                found(format!("record {seq} has `{name}` wait longer than it may"));
            }
        }
        violations
    }

    fn judge_effects(&self, journal: &Journal) -> Vec<Violation> {
        if self.effects.is_empty() {
            return Vec::new();
        }
        let run = journal.header().run;
        let completed = journal
            .records()
            .iter()
            .filter_map(|record| match &record.event {
                Event::StepCompleted(step) if matches!(step.outcome, Outcome::Ok(_)) => {
                    Some(step.step)
                }
                _ => None,
            });
        let idle = completed.filter(|step| !self.effects.contains_key(step));
        idle.map(|step| {
            let problem = format!("{step} completed, and nothing was done");
            Violation::new(run, Invariant::OneEffect, problem)
        })
        .collect()
    }

    /// Signals that were acknowledged are on record or wait, in their order, unless the run has ended.
    async fn judge_signals(
        &self,
        engine: &Engine,
        state: &State,
    ) -> Result<Vec<Violation>, EngineError> {
        let mut violations = Vec::new();
        for (run, seen) in self
            .runs
            .iter()
            .filter(|(_, seen)| !seen.signals.is_empty())
        {
            let line: Vec<&Run> = state
                .runs
                .iter()
                .filter(|other| other.header.first_of_line() == *run)
                .collect();
            let records = |run: &Run| {
                run.journal
                    .iter()
                    .flat_map(|it| it.records().to_vec())
                    .collect()
            };
            let all: Vec<crate::journal::Record> = line
                .iter()
                .flat_map(|run| -> Vec<_> { records(run) })
                .collect();
            let is_forgotten = line
                .iter()
                .flat_map(|run| &run.journal)
                .any(|it| forgets(it.records()));
            if line.is_empty() || is_forgotten {
                continue;
            }
            let mut found: Vec<(Box<str>, Box<str>)> = all
                .into_iter()
                .filter_map(|record| received(record.event))
                .collect();
            let has_ended = line
                .iter()
                .any(|run| run.header.end().is_some() && !run.header.went_on());
            if !has_ended {
                found.extend(self.in_the_mail(engine, &line).await?);
            }
            let mut last = None;
            for signal in &seen.signals {
                let (name, place) = (&signal.0, found.iter().position(|it| it == signal));
                let mut wrong =
                    |rule, problem| violations.push(Violation::new(*run, rule, problem));
                match place {
                    None if has_ended => {}
                    None => wrong(
                        Invariant::Signals,
                        format!("the signal `{name}` was acknowledged, and is gone"),
                    ),
                    Some(place) if last.is_some_and(|last| last > place) => wrong(
                        Invariant::Signals,
                        format!("the signal `{name}` has overtaken another one"),
                    ),
                    Some(place) => last = Some(place),
                }
            }
        }
        Ok(violations)
    }

    async fn in_the_mail(
        &self,
        engine: &Engine,
        line: &[&Run],
    ) -> Result<Vec<(Box<str>, Box<str>)>, StoreError> {
        let mut found = Vec::new();
        for run in line {
            for mail in engine.store().mail(run.header.run, 0).await? {
                found.extend(Event::from_letter(&mail.body).ok().and_then(received));
            }
        }
        Ok(found)
    }

    /// A key gave one run until the time of that was over.
    pub(super) fn judge_keys(&self, state: &State) -> Vec<Violation> {
        let mut violations = Vec::new();
        // When a run was made and has ended; what was known of one that is gone.
        let times = |run: RunId| match state.runs.iter().find(|it| it.header.run == run) {
            Some(run) => Some((run.header.created_at, run.header.end())),
            None => {
                let seen = self.runs.get(&run)?;
                Some((seen.created_at?, seen.end))
            }
        };
        for ((_, key), answers) in &self.keys {
            for pair in answers.runs.windows(2) {
                let (first, next) = (pair[0], pair[1]);
                let (Some((_, end)), Some((made, _))) = (times(first), times(next)) else {
                    continue; // nobody looked in time
                };
                let (rule, why) = match (end, answers.ttl) {
                    (Some(end), Some(ttl)) if end.at.after(ttl) > made => {
                        (Invariant::KeyLifetime, "before its time was over")
                    }
                    (Some(_), Some(_)) => continue,
                    _ => (Invariant::OneRunPerKey, "though it names this one"),
                };
                let problem = format!("its key `{key}` gave {next} {why}");
                violations.push(Violation::new(first, rule, problem));
            }
        }
        violations
    }
}

/// The first record that was there and is not, or is another one.
fn changed(seen: &Seen, run: &Run) -> Option<(u64, &'static str)> {
    // What was forgotten on purpose lies between the second record and the first that is kept.
    let kept_from = run.frames.keys().nth(2).copied().unwrap_or_default();
    let forgotten = |seq: u64| seq >= 2 && seq < kept_from;
    seen.frames
        .iter()
        .find_map(|(seq, hash)| match run.frames.get(seq) {
            None if forgotten(*seq) => None,
            None => Some((*seq, "is gone")),
            Some(now) if now != hash => Some((*seq, "is another one now")),
            Some(_) => None,
        })
}

fn is_reopening(record: &crate::journal::Record) -> bool {
    matches!(record.event, Event::RunReopened(_))
}

fn received(event: Event) -> Option<(Box<str>, Box<str>)> {
    match event {
        Event::SignalReceived(signal) => Some((signal.name, signal.key?)),
        _ => None,
    }
}
