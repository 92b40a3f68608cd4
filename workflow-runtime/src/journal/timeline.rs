//! A journal as a timeline for people.
//!
//! Owns the `Display` of [`Journal`] and [`Record`]. It shows ids, names, attempts and times, and
//! never a payload: a timeline may end up in a log.

use std::fmt;
use std::time::Duration;

use super::{End, Event, Journal, Outcome, Record};
use crate::clock::Timestamp;
use crate::ids::MessageId;
use crate::store::RunState;

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        write!(f, "{}  {}", header.workflow, header.run)?;
        if header.version != 1 {
            write!(f, "  version {}", header.version)?;
        }
        if let Some(key) = &header.key {
            write!(f, "  key {key:?}")?;
        }
        writeln!(f)?;
        let began = self.records().first().map(|record| record.time);
        let mut next = 0;
        for record in self.records() {
            if record.seq > next {
                let last = record.seq - 1;
                writeln!(f, "{:>9}       records {next} to {last} are forgotten", "…")?;
            }
            next = record.seq + 1;
            let offset = record.time.since(began.unwrap_or_default());
            writeln!(
                f,
                "{:>9}  {:>3}  {}",
                Offset(offset),
                record.seq,
                record.event
            )?;
        }
        match &header.state {
            RunState::Active | RunState::Asleep { .. } => {
                writeln!(f, "{:>9}       unfinished", "…")
            }
            RunState::Parked(parking) => {
                writeln!(f, "{:>9}       parked: {}", "…", parking.report)
            }
            RunState::Ended(_) => Ok(()),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.seq, self.time, self.event)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunStarted(_) => write!(f, "▶ started"),
            Self::StepCompleted(step) => {
                let mark = match step.outcome.is_success() {
                    true => '✓',
                    false => '✗',
                };
                write!(f, "{mark} {:<16} {}", step.name, step.step)?;
                match step.attempts {
                    0 => write!(f, "  answered by its key")?,
                    1 => {}
                    attempts => write!(f, "  attempt {attempts}")?,
                }
                if !step.scope.is_empty() {
                    write!(f, "  in {}", step.scope)?;
                }
                match step.outcome {
                    Outcome::Ok(_) => Ok(()),
                    Outcome::AlreadyDone(_) => write!(f, "  had been done already"),
                    Outcome::Err(_) => write!(f, "  returned an error"),
                    Outcome::Broken(_) => write!(f, "  gave no value"),
                    Outcome::Interrupted(interrupted) => {
                        write!(f, "  interrupted, began {}", Clock(interrupted.began()))
                    }
                }
            }
            Self::AttemptFailed(attempt) => write!(
                f,
                "↻ {:<16} {}  attempt {} failed → {}",
                attempt.name,
                attempt.step,
                attempt.attempt,
                Clock(attempt.next_at)
            ),
            Self::StepIntent(intent) => write!(
                f,
                "◌ {:<16} {}  attempt {} is about to begin",
                intent.name, intent.step, intent.attempt
            ),
            Self::TimerSet(timer) => write!(f, "⏲ sleeps until {}", Clock(timer.deadline)),
            Self::TimerFired(_) => write!(f, "⏰ woke up"),
            Self::SignalReceived(signal) => write!(f, "✉ {:<16} received", signal.name),
            Self::ChildStarted(child) => {
                write!(f, "⑂ {:<16} {} started", child.workflow, child.child)
            }
            Self::ChildFinished(child) => {
                let how = match child.end {
                    End::Completed(_) => "completed",
                    End::Failed(_) => "failed",
                    End::Aborted(_) => "aborted",
                    End::Cancelled(_) => "was cancelled",
                    End::Continued(_) => "went on",
                };
                write!(f, "⑃ {:<16} {} {how}", "child", child.child)
            }
            Self::CancelRequested(cancel) => write!(f, "⊘ cancel asked for: {}", cancel.reason),
            Self::RunRecovered(recovered) => {
                write!(
                    f,
                    "⚡ {:<16} {} replayed; in flight:",
                    "process died",
                    Count(recovered.replayed, "outcome")
                )?;
                recovered
                    .in_flight
                    .iter()
                    .try_for_each(|step| write!(f, " {step}"))
            }
            Self::StaleOutcomeDiscarded(stale) => write!(
                f,
                "♻ {:<16} {}  outcome {} was stale: again",
                stale.name, stale.step, stale.discarded
            ),
            Self::Checkpoint(checkpoint) => write!(f, "⟳ checkpoint {}", checkpoint.pass),
            Self::UndoCarried(carried) => {
                let owed = Count(carried.owed, "step");
                write!(f, "⇥ {owed} to undo if it does not complete")
            }
            Self::RunClosing(closing) => {
                write!(f, "⇤ undoing {}", Count(closing.undo.len() as u64, "step"))
            }
            Self::RunReopened(reopened) => {
                write!(f, "↺ {:<16} no longer count:", "tried again")?;
                let mut voided = reopened.voided.iter();
                voided.try_for_each(|seq| write!(f, " {seq}"))
            }
            Self::PatchMarker(patch) => write!(f, "◆ {:<16} {:?}", "took patch", patch.name),
            Self::RunForked(fork) => write!(f, "⑂ {:<16} {}", "forked from", fork.origin),
            Self::RunSucceeds(line) => write!(
                f,
                "↪ {:<16} {}  number {} of the line of {}",
                "continues", line.previous, line.ordinal, line.first
            ),
            Self::MessagePushed(pushed) => {
                let id = MessageId::derive(pushed.call, &pushed.outbox, 0);
                write!(f, "✎ {:<16} {id} pushed", pushed.outbox)
            }
            Self::RunCompleted(_) => write!(f, "■ completed"),
            Self::RunFailed(_) => write!(f, "■ failed"),
            Self::RunAborted(aborted) => write!(f, "■ aborted: {}", aborted.reason),
            Self::RunCancelled(cancelled) if cancelled.terminated => {
                write!(f, "■ terminated: {}", cancelled.reason)
            }
            Self::RunCancelled(cancelled) => write!(f, "■ cancelled: {}", cancelled.reason),
            Self::RunContinued(continued) => write!(f, "■ continued as {}", continued.next),
        }
    }
}

/// Time since the run began, short.
struct Offset(Duration);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let text = match seconds {
            0..600 => format!("+{:.3}s", self.0.as_secs_f64()),
            600..86_400 => format!("+{}h{:02}m", seconds / 3600, seconds / 60 % 60),
            _ => format!("+{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
        };
        f.pad(&text)
    }
}

/// The time of day of a moment.
struct Clock(Timestamp);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.split('T').nth(1).unwrap_or(&text))
    }
}

/// `1 outcome`, `2 outcomes`.
struct Count(u64, &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}
