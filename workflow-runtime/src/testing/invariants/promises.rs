//! What was told of runs, against what is there.
//!
//! Owns the judgements over one look at all runs, but for those about signals and keys. It changes nothing.

use std::collections::BTreeSet;

use super::judging::{PAGE, Run, State, chains};
use super::rule::{Invariant, Violation};
use super::witness::{Seen, Witness};
use crate::clock::Timestamp;
use crate::engine::{Engine, EngineError};
use crate::ids::{RunId, StepId};
use crate::journal::{Event, Journal, Outcome, Record};
use crate::store::{ParkReason, RunState};

impl Witness {
    /// Forgives bodies that ran again because their run was tried again since it was looked last: a record says that their
    /// outcome counts no more.
    pub(super) fn forgive_voided(&mut self, state: &State) {
        let seen = &self.runs;
        self.ran_again.retain(|(run, step)| {
            let journal = state.runs.iter().find(|it| it.header.run == *run);
            let journal = journal.and_then(|run| run.journal.as_ref());
            let is_new = |seq: u64| {
                let known = seen.get(run).map(|seen| &seen.frames);
                known.is_none_or(|frames| !frames.contains_key(&seq))
            };
            !journal.is_some_and(|journal| is_voided(journal, *step, is_new))
        });
    }

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
        let own = engine.namespace();
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
        let own = |seen: &Seen| *seen.namespace == *engine.namespace();
        let known = self.runs.iter().filter(|(_, seen)| own(seen));
        for (run, seen) in known.filter(|(run, _)| !there.contains(run)) {
            let mut found = |rule, problem: &str| {
                violations.push(Violation::new(*run, rule, problem.to_owned()));
            };
            let over =
                |end: Timestamp| self.keep.is_some_and(|keep| end.after(keep) <= self.latest);
            let (ended, known) = (self.ended_at(*run, seen), seen.end.is_some());
            if self.keep.is_none() && seen.acknowledged {
                found(Invariant::Acknowledged, "it was acknowledged, and is gone");
            } else if self.keep.is_some() && !ended.is_some_and(over) {
                let problem = match known {
                    true => "it was removed before its time",
                    false => "it had not ended, and was removed",
                };
                found(Invariant::Retention, problem);
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
        answers.is_some_and(|key| match (key.ttl, self.ended_at(run, seen)) {
            (Some(ttl), Some(end)) => end.after(ttl) > self.latest,
            _ => true,
        })
    }

    /// When a run that is gone ended, or the earliest time at which it can have: nobody may have looked since. `None`: it cannot have
    /// ended.
    pub(super) fn ended_at(&self, run: RunId, seen: &Seen) -> Option<Timestamp> {
        match seen.end {
            Some(end) => Some(end.at),
            None if self.waiting.contains(&run) => None,
            None => Some(seen.newest), // it ends no earlier
        }
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

fn is_reopening(record: &Record) -> bool {
    matches!(record.event, Event::RunReopened(_))
}

/// Says whether an outcome of a step was taken out of force, by a record with a number of this kind.
fn is_voided(journal: &Journal, step: StepId, is_new: impl Fn(u64) -> bool) -> bool {
    let is_of_it = |seq: u64| {
        let record = journal.records().iter().find(|record| record.seq == seq);
        record.is_some_and(
            |record| matches!(&record.event, Event::StepCompleted(it) if it.step == step),
        )
    };
    let mut new = journal.records().iter().filter(|record| is_new(record.seq));
    new.any(|record| match &record.event {
        Event::RunReopened(reopened) => reopened.voided.iter().any(|seq| is_of_it(*seq)),
        _ => false,
    })
}

/// A step that ran though its outcome was on record.
pub(super) fn ran_again(run: RunId, step: StepId) -> Violation {
    let problem = format!("{step} ran again, and its outcome was on record");
    Violation::new(run, Invariant::NotRunAgain, problem)
}
