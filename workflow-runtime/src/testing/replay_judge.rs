//! The end of a replay: is it the end that the journal has?
//!
//! Owns more than a resumed run would notice: a run that has ended is never resumed, but its result says whether the code
//! does what it did. It never replays anything.

use super::replay_report::Stopped;
use crate::engine::Engine;
use crate::engine::verify::{Compared, Replay, failure_payload};
use crate::journal::{End, Outcome};
use crate::replay::show_differences;

/// What does not fit about an end.
pub(super) struct Unfit {
    /// Without any value.
    pub(super) report: String,
    /// The values.
    pub(super) detail: Option<String>,
}

impl From<String> for Unfit {
    fn from(report: String) -> Self {
        let detail = None;
        Self { report, detail }
    }
}

/// Compares what a replay came to with how the journal ends: where it stopped, and what is suspicious.
pub(super) fn judge(engine: &Engine, replay: Replay) -> Result<(Stopped, Vec<String>), Unfit> {
    let Replay {
        verified,
        end,
        mut warnings,
        ..
    } = replay;
    if verified.left_over > 0 {
        let count = verified.left_over;
        warnings.push(format!(
            "{count} recorded outcomes are left that no call waits for, as far as the code comes without running a step"
        ));
    }
    let stopped = match (end, verified.end) {
        (None, now) => Stopped::Frontier {
            waiting: verified.waiting,
            ends: now.is_some() || verified.continues,
        },
        // It was ended from outside, wherever it was.
        (Some(End::Cancelled(cancelled)), _) if cancelled.terminated => Stopped::Ended,
        (Some(End::Continued(_)), None) if verified.continues => Stopped::Ended,
        // It would make the call that the journal does not know, and then go on with what it holds.
        (Some(_), None) if verified.tolerant => Stopped::Frontier {
            waiting: verified.waiting,
            ends: false,
        },
        (Some(end), None) => return Err(goes_on(&end, &verified.waiting).into()),
        (Some(recorded), Some(_)) if verified.must_undo => {
            return Err(Unfit::from(format!(
                "all recorded outcomes fit, and the run does not end yet\n  the journal holds: {}, with nothing undone\n  \
                 the code: has steps to undo first",
                described(&recorded)
            )));
        }
        (Some(recorded), Some(now)) => {
            warnings.extend(compare(engine, &recorded, &now)?.map(str::to_owned));
            Stopped::Ended
        }
    };
    Ok((stopped, warnings))
}

/// The journal has an end where the code goes on.
fn goes_on(end: &End, waiting: &[String]) -> String {
    let mut report = format!(
        "the code no longer fits the journal\n  the journal holds: the end of the run, {}",
        described(end)
    );
    for call in waiting {
        report.push_str("\n  the code asked for: ");
        report.push_str(call);
    }
    if waiting.is_empty() {
        report.push_str("\n  the code: goes on");
    }
    report
}

/// Compares two ends. `Some` if something about them is suspicious.
fn compare(engine: &Engine, recorded: &End, now: &End) -> Result<Option<&'static str>, Unfit> {
    let (shown, shown_now) = (described(recorded), described(now));
    if shown != shown_now {
        return Err(Unfit::from(format!(
            "all recorded outcomes fit, and the run ends otherwise\n  the journal holds: {shown}\n  the code: {shown_now}"
        )));
    }
    match compare_values(engine, recorded, now) {
        Compared::Same => Ok(None),
        Compared::OtherFields => Ok(Some(
            "the run's result has other fields than the journal's: fields were added or removed",
        )),
        Compared::Reordered => Ok(Some(
            "the run's result differs from the journal's in the order of a sequence only",
        )),
        Compared::Other(differences) => Err(Unfit {
            report: format!(
                "all recorded outcomes fit, and the run's result is another\n  the journal holds: {shown}\n  the code: \
                 the same, with another value"
            ),
            detail: show_differences(&differences),
        }),
    }
}

/// Compares what two ends of the same kind carry. A reason that a person gave is not compared, nor a failure that the engine
/// made: it names lines of the source.
fn compare_values(engine: &Engine, recorded: &End, now: &End) -> Compared {
    match (recorded, now) {
        (End::Completed(recorded), End::Completed(now)) => engine.compare_payloads(recorded, now),
        (End::Failed(Outcome::Broken(_)), End::Failed(Outcome::Broken(_))) => Compared::Same,
        (End::Failed(recorded), End::Failed(now)) => {
            engine.compare_payloads(failure_payload(recorded), failure_payload(now))
        }
        _ => Compared::Same,
    }
}

fn described(end: &End) -> &'static str {
    match end {
        End::Completed(_) => "it completed",
        End::Failed(_) => "it failed",
        End::Aborted(_) => "it aborted",
        End::Cancelled(_) => "it was cancelled",
        End::Continued(_) => "it went on as a new run",
    }
}
