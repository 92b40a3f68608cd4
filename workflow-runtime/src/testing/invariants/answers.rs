//! What keys and signals were answered, against what is there.
//!
//! Owns the judgements over the order of answers. It changes nothing.

use super::forgets;
use super::judging::{Run, State};
use super::rule::{Invariant, Violation};
use super::witness::Witness;
use crate::engine::{Engine, EngineError};
use crate::ids::RunId;
use crate::journal::{Event, Record};
use crate::store::StoreError;

impl Witness {
    /// Signals that were acknowledged are on record or wait, in their order, unless the run has ended.
    pub(super) async fn judge_signals(
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
            let all: Vec<Record> = line
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
            if !has_ended && seen.signals.iter().any(|signal| !found.contains(signal)) {
                // One may have been moved from the mailbox into the journal meanwhile: read in that order, none is missed.
                let mail = self.in_the_mail(engine, &line).await?;
                found.clear();
                for run in &line {
                    let journal = engine.journal(run.header.run).await?;
                    let records = journal.records().iter().cloned();
                    found.extend(records.filter_map(|record| received(record.event)));
                }
                found.extend(mail);
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
            Some(run) => {
                let end = run.header.end().map(|end| end.at);
                Some((run.header.created_at, end))
            }
            None => {
                let seen = self.runs.get(&run)?;
                Some((seen.created_at?, self.ended_at(run, seen)))
            }
        };
        for ((_, key), answers) in &self.keys {
            let latest = answers.at.iter().skip(1);
            for (pair, latest) in answers.runs.windows(2).zip(latest) {
                let (first, next) = (pair[0], pair[1]);
                let (Some((_, end)), Some((made, _))) = (times(first), times(next)) else {
                    continue; // nobody looked in time
                };
                let (rule, why) = match (end, answers.ttl) {
                    (Some(end), Some(ttl)) if end.after(ttl) > made.max(*latest) => {
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

fn received(event: Event) -> Option<(Box<str>, Box<str>)> {
    match event {
        Event::SignalReceived(signal) => Some((signal.name, signal.key?)),
        _ => None,
    }
}
