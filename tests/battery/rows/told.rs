//! What callers were told and what steps did, compared with what is there: the verdict on a store after a fault.
//!
//! Owns the judgement. It lets what was begun go on to its end, and writes down what does not hold, by the number of the
//! invariant in the book's chapter on reliability.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use workflow_runtime::journal::{Event, Journal, Outcome};
use workflow_runtime::store::ParkReason;
use workflow_runtime::testing::check_invariants;
use workflow_runtime::{Engine, EngineError, RunError, RunId, StepId};

use super::patience::patiently;
use super::workload::{Line, Transferred, World, expected, transfer};

/// What was said, up to some moment. Whatever is in here must be true for ever.
#[derive(Debug, Default, Clone)]
pub(crate) struct Told {
    pub(crate) started: BTreeMap<u64, RunId>,
    pub(crate) sent: BTreeSet<u64>,
    pub(crate) finished: BTreeMap<u64, Transferred>,
    effects: BTreeMap<StepId, Effect>,
    pub(crate) stopped: Option<String>,
    pub(crate) is_ready: bool,
    pub(crate) violations: Vec<String>,
}

/// What was done under one id.
#[derive(Debug, Clone)]
struct Effect {
    number: u64,
    what: String,
    values: BTreeSet<u64>,
}

impl Told {
    /// Hears one line.
    pub(crate) fn hear(&mut self, line: Line) {
        match line {
            Line::Ready => self.is_ready = true,
            Line::Started(number, run) => {
                let first = *self.started.entry(number).or_insert(run);
                if first != run {
                    self.wrong(format!("8: transfer {number} is {first} and {run}"));
                }
            }
            Line::Sent(number, is_new) => {
                if !self.sent.insert(number) && is_new {
                    self.wrong(format!("12: the signal of {number} was forgotten"));
                }
            }
            Line::Finished(number, result) => {
                let first = *self.finished.entry(number).or_insert(result);
                if first != result {
                    self.wrong(format!(
                        "1: transfer {number} gave {first:?} and {result:?}"
                    ));
                }
            }
            Line::Gone(number) => self.wrong(format!("1: transfer {number} is gone")),
            Line::Swept(runs) => self.wrong(format!("20: {runs} runs were deleted")),
            Line::Effect(step, number, what, value) => self.act(step, number, what, value),
            Line::Stopped(reason) => self.stopped = Some(reason),
            Line::Trouble(what) => self.wrong(what),
        }
    }

    /// Hears all whole lines of a text; a line that was cut off was not said.
    pub(crate) fn hear_text(&mut self, text: &str) {
        Line::all_in(text).for_each(|line| self.hear(line));
    }

    fn act(&mut self, step: StepId, number: u64, what: String, value: u64) {
        let effect = self.effects.entry(step).or_insert_with(|| Effect {
            number,
            what: what.clone(),
            values: BTreeSet::new(),
        });
        effect.values.insert(value);
        let is_other = effect.number != number || effect.what != what;
        if is_other || effect.values.len() > 1 && what != "draw" {
            let effect = effect.clone();
            self.wrong(format!("5: {step} did {effect:?}, and {what} {value}"));
        }
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.violations.push(what);
    }

    /// The first transfer whose result nobody was told.
    pub(crate) fn first_unfinished(&self) -> u64 {
        (0..)
            .find(|number| !self.finished.contains_key(number))
            .expect("finitely many finished")
    }

    /// Lets everything that was acknowledged go on to its end, and compares.
    pub(crate) async fn finish(&mut self, engine: &Engine, world: &World, patience: Duration) {
        let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
        for (number, run) in self.started.clone() {
            // A process that was stopped for a while has not waited.
            match patiently(seconds, self.finish_one(engine, number, run)).await {
                Some(Ok(result)) => self.hear(Line::Finished(number, result)),
                Some(Err(error)) => self.wrong(format!("1: transfer {number}, {run}: {error}")),
                None => self.wrong(format!("14: transfer {number}, {run}, does not go on")),
            }
        }
        world.take().into_iter().for_each(|line| self.hear(line));
        match check_invariants(engine).await {
            Ok(broken) => self
                .violations
                .extend(broken.iter().map(|broken| format!("2: {broken}"))),
            Err(error) => self.wrong(format!("2: the journals cannot be read: {error}")),
        }
        for run in self.started.clone().into_values() {
            match engine.journal(run).await {
                Ok(journal) => self.outcomes_have_effects(&journal),
                Err(error) => self.wrong(format!("2: the journal of {run}: {error}")),
            }
        }
        self.effects_are_right();
    }

    async fn finish_one(
        &self,
        engine: &Engine,
        number: u64,
        run: RunId,
    ) -> Result<Transferred, String> {
        let run = engine.run::<transfer>(run).await;
        let run = run.map_err(|error| error.to_string())?;
        if !self.sent.contains(&number) {
            match run.signal("go", &number).key("go").await {
                Ok(_) | Err(EngineError::Ended(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        match run.result().await {
            // Killed again and again while it was alone, it is under suspicion; nothing of it is lost.
            Err(RunError::Parked(parking)) if parking.reason == ParkReason::Poison => {
                let resumed = engine.resume(run.id()).await;
                resumed.map_err(|error| error.to_string())?;
                run.result().await.map_err(|error| error.to_string())
            }
            result => result.map_err(|error| error.to_string()),
        }
    }

    fn outcomes_have_effects(&mut self, journal: &Journal) {
        for record in journal.records() {
            let Event::StepCompleted(step) = &record.event else {
                continue;
            };
            if matches!(step.outcome, Outcome::Ok(_)) && !self.effects.contains_key(&step.step) {
                self.wrong(format!("4: {} completed, and nothing was done", step.step));
            }
        }
    }

    /// Each finished transfer did what its nonce asks for, each under one id.
    fn effects_are_right(&mut self) {
        let mut by_number: BTreeMap<u64, Vec<&Effect>> = BTreeMap::new();
        for effect in self.effects.values() {
            by_number.entry(effect.number).or_default().push(effect);
        }
        let mut wrong = Vec::new();
        for (number, result) in &self.finished {
            let (planned, right) = expected(*number, result.nonce);
            if *result != right {
                wrong.push(format!(
                    "1: transfer {number} gave {result:?}, not {right:?}"
                ));
            }
            let effects = by_number.remove(number).unwrap_or_default();
            let (drawn, rest): (Vec<_>, Vec<_>) = effects
                .into_iter()
                .partition(|effect| effect.what == "draw");
            let drew = drawn
                .iter()
                .filter(|one| one.values.contains(&result.nonce));
            let done: BTreeSet<(&str, u64)> = rest
                .iter()
                .flat_map(|effect| effect.values.iter().map(|value| (&*effect.what, *value)))
                .collect();
            if drew.count() != 1 || rest.len() != planned.len() || done != BTreeSet::from(planned) {
                wrong.push(format!("4: transfer {number}: {drawn:?} {rest:?}"));
            }
        }
        self.violations.append(&mut wrong);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One transfer as it should be told.
    fn right() -> Vec<Line> {
        let (effects, result) = expected(3, 77);
        let run = RunId::from_bytes([1; 16]);
        let step = |n: u8| StepId::from_bytes([n; 16]);
        let mut lines = vec![
            Line::Started(3, run),
            Line::Effect(step(0), 3, "draw".into(), 77),
        ];
        for (at, (what, value)) in (1..).zip(effects) {
            lines.push(Line::Effect(step(at), 3, what.into(), value));
        }
        lines.extend([Line::Sent(3, true), Line::Finished(3, result)]);
        lines
    }

    fn judge(lines: impl IntoIterator<Item = Line>) -> Vec<String> {
        let mut told = Told::default();
        lines.into_iter().for_each(|line| told.hear(line));
        told.effects_are_right();
        told.violations
    }

    #[test]
    fn what_is_right_is_not_blamed_also_as_text() {
        assert_eq!(judge(right()), [""; 0]);
        let mut told = Told::default();
        let text: String = right().iter().map(|line| format!("{line}\n")).collect();
        told.hear_text(&format!("{text}noise\n@sent 4 tr"));
        assert_eq!((told.finished.len(), told.sent.len()), (1, 1));
    }

    #[test]
    fn a_second_run_result_signal_or_effect_is_seen() {
        let step = StepId::from_bytes([2; 16]);
        let (_, other) = expected(3, 78);
        for (more, number) in [
            (Line::Started(3, RunId::from_bytes([2; 16])), "8:"),
            (Line::Finished(3, other), "1:"),
            (Line::Sent(3, true), "12:"),
            (Line::Effect(step, 3, "credit".into(), 5), "5:"),
            (Line::Effect(step, 4, "credit".into(), 5), "5:"),
        ] {
            let wrong = judge(right().into_iter().chain([more.clone()]));
            assert!(wrong[0].starts_with(number), "{more}: {wrong:?}");
        }
        let again = Line::Effect(StepId::from_bytes([9; 16]), 3, "debit".into(), 1);
        assert!(judge(right().into_iter().chain([again]))[0].starts_with("4:"));
        assert!(judge(right().into_iter().skip(2))[0].starts_with("4:"));
    }
}
