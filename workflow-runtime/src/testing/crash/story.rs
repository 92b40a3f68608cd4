//! What is said of a case that came out differently: the crash, what happened twice, the journal, how to see it again.

use std::fmt::{self, Write as _};

use super::Crash;
use crate::ids::RunId;
use crate::journal::{Event, peek};
use crate::store::memory::Written;
use crate::testing::Ledger;
use crate::testing::invariants::Violation;
use crate::testing::ledger::{Difference, tell_conflicts};

/// A case that came out differently from the undisturbed run. Printing it tells the story.
#[derive(Debug, Clone)]
pub struct CrashFailure {
    pub(super) workflow: &'static str,
    pub(super) crashes: Vec<Crash>,
    pub(super) struck: Vec<Written>,
    pub(super) run: Option<RunId>,
    pub(super) troubles: Vec<Trouble>,
    pub(super) timelines: String,
}

/// One thing that is wrong with a case.
#[derive(Debug, Clone)]
pub(in super::super) enum Trouble {
    /// The ledger has other entries; told already.
    Ledger(String),
    /// The run came to something else.
    Result {
        expected: Option<String>,
        found: String,
    },
    /// A journal breaks a rule.
    Violation(Violation),
    /// The user's own driving failed.
    Driving(String),
}

impl Trouble {
    /// The ledger has other entries than it should.
    pub(in super::super) fn ledger(ledger: &Ledger, difference: &Difference) -> Self {
        let mut text =
            format!("The ledger has other entries than it has undisturbed:\n{difference}");
        let duplicates = ledger.duplicates();
        for entry in difference.too_many() {
            let Some(duplicate) = duplicates.iter().find(|it| it.entry == entry) else {
                continue;
            };
            let advice = duplicate.advice(ledger.honours_keys());
            let _ = writeln!(text, "\n  {duplicate}\n    {advice}");
        }
        Self::Ledger(text)
    }

    /// Keys that were used for two things.
    pub(in super::super) fn conflicts(ledger: &Ledger) -> Option<Self> {
        let told = tell_conflicts(ledger, &ledger.conflicts());
        (!told.is_empty()).then_some(Self::Ledger(told))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(told) => f.write_str(told.trim_end()),
            Self::Result {
                expected: Some(expected),
                found,
            } => write!(
                f,
                "The result is another one:\n  expected: {expected}\n     found: {found}"
            ),
            Self::Result {
                expected: None,
                found,
            } => write!(f, "The run gives no result: {found}"),
            Self::Violation(violation) => {
                write!(f, "A journal is not as it must be:\n  {violation}")
            }
            Self::Driving(error) => write!(f, "What `drive` did failed: {error}"),
        }
    }
}

impl CrashFailure {
    /// Returns the crashes of the case, to be given to [`only`](super::CrashEverywhere::only).
    pub fn crashes(&self) -> &[Crash] {
        &self.crashes
    }
}

impl fmt::Display for CrashFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflow = self.workflow;
        match &*self.crashes {
            [] => write!(
                f,
                "`{workflow}` cannot be checked: it goes wrong without any crash"
            )?,
            [crash] => write!(f, "`{workflow}` does not survive a crash {crash}")?,
            crashes => write!(f, "`{workflow}` does not survive {} crashes", crashes.len())?,
        }
        f.write_str("\n\n")?;
        for (life, crash) in self.crashes.iter().enumerate() {
            let when = if life == 0 {
                "The process died"
            } else {
                "Then it died again,"
            };
            match self.struck.get(life) {
                Some(write) => {
                    let what = tell_write(write, self.run);
                    writeln!(f, "{when} {crash}: {what}.")?;
                }
                None => writeln!(f, "The run ended before it could die {crash}.")?,
            }
        }
        if !self.crashes.is_empty() {
            f.write_str("\n")?;
        }
        for trouble in &self.troubles {
            writeln!(f, "{trouble}\n")?;
        }
        writeln!(f, "The journal in the end:\n")?;
        for line in self.timelines.lines() {
            writeln!(f, "  {line}")?;
        }
        if !self.crashes.is_empty() {
            let crashes: Vec<_> = self
                .crashes
                .iter()
                .map(|crash| Code(*crash).to_string())
                .collect();
            let only = crashes.join(", ");
            write!(f, "\nThis case alone: `.only([{only}])` before `.run()`.")?;
        }
        Ok(())
    }
}

impl std::error::Error for CrashFailure {}

/// A crash as one writes it.
struct Code(Crash);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crash { write, after } = self.0;
        let when = if after { "after" } else { "before" };
        write!(f, "Crash::{when}({write})")
    }
}

/// Tells what a write holds.
pub(super) fn tell_write(write: &Written, run: Option<RunId>) -> String {
    let records = write.frames.iter().map(|(of, frame)| {
        let told = peek(frame).map_or_else(|| "a record".to_owned(), |event| tell_event(&event));
        match Some(*of) == run {
            true => told,
            false => format!("{told} in {of}"),
        }
    });
    let records: Vec<_> = records.collect();
    match records.is_empty() {
        true => write.what.to_owned(),
        false => records.join(", and "),
    }
}

fn tell_event(event: &Event) -> String {
    match event {
        Event::RunStarted(started) => format!("the start of `{}`", started.workflow),
        Event::StepCompleted(step) => format!("the outcome of `{}` ({})", step.name, step.step),
        Event::AttemptFailed(it) => format!(
            "failed attempt {} at `{}` ({})",
            it.attempt, it.name, it.step
        ),
        Event::StepIntent(it) => format!("the intent to run `{}` ({})", it.name, it.step),
        Event::TimerSet(_) => "a timer that is set".into(),
        Event::TimerFired(_) => "a timer that fires".into(),
        Event::SignalReceived(signal) => format!("the signal `{}`", signal.name),
        Event::ChildStarted(child) => format!("the start of child `{}`", child.workflow),
        Event::ChildFinished(child) => format!("the end of child {}", child.child),
        Event::CancelRequested(_) => "the request to cancel".into(),
        Event::RunRecovered(_) => "the note that the process had died".into(),
        Event::RunCompleted(_) => "the end of the run: completed".into(),
        Event::RunFailed(_) => "the end of the run: failed".into(),
        Event::RunAborted(_) => "the end of the run: aborted".into(),
        Event::RunCancelled(_) => "the end of the run: cancelled".into(),
        other => other.to_string(),
    }
}
