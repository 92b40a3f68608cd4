//! What a test is told that waited for a run in vain.
//!
//! Owns the text: what was expected, what the run waits for instead, and the way out.

use std::fmt::Write as _;
use std::panic::Location;
use std::time::Duration;

use super::steps::{in_words, show_payload};
use crate::clock::Timestamp;
use crate::engine::core::waits::{Awaited, Wait};
use crate::engine::{EngineError, tokens};
use crate::error::Error;
use crate::ids::RunId;
use crate::journal::{End, Outcome};
use crate::payload::Payloads;
use crate::store::Parking;

/// What a test waits for a run to do.
pub(super) enum Expected {
    Signal(Box<str>),
    Hook,
    Timer,
    Child(&'static str),
}

/// A wait that was in vain.
pub(super) struct InVain<'a> {
    pub(super) run: RunId,
    pub(super) workflow: &'static str,
    pub(super) expected: &'a Expected,
    pub(super) patience: Duration,
    pub(super) now: Timestamp,
    pub(super) asked_at: &'static Location<'static>,
}

/// Why it was in vain.
pub(super) enum Why {
    /// With how what it ended with is read.
    Ended(End, Payloads),
    /// With how the report's detail is read.
    Parked(Box<Parking>, Payloads),
    /// It waits for this; these children of the expected kind have ended.
    Waits(Vec<Deep>, Vec<RunId>),
    Engine(EngineError),
}

/// What a run waits for, and if that is a child, what that waits for.
pub(super) struct Deep {
    pub(super) wait: Wait,
    pub(super) of_child: Vec<Wait>,
}

impl Expected {
    /// What the run does not do.
    fn in_words(&self) -> String {
        match self {
            Self::Signal(name) => format!("wait for the signal `{name}`"),
            Self::Hook => "wait for what is sent to a hook".into(),
            Self::Timer => "sleep".into(),
            Self::Child(name) => format!("have a child of `{name}` that has not ended"),
        }
    }
}

impl InVain<'_> {
    pub(super) fn text(&self, why: &Why) -> String {
        let expected = self.expected.in_words();
        let mut text = match why {
            Why::Ended(..) => format!("the run has ended, and did not {expected}"),
            Why::Parked(..) => format!("the run is parked, and does not {expected}"),
            Why::Engine(_) => format!("it cannot be said whether the run does {expected}"),
            Why::Waits(..) => {
                let waited = in_words(self.patience);
                format!("the run does not {expected}, and {waited} of virtual time has passed")
            }
        };
        let _ = write!(text, "\n  the run: `{}`, {}\n", self.workflow, self.run);
        match why {
            Why::Ended(end, payloads) => push_end(&mut text, end, payloads),
            Why::Parked(parking, payloads) => push_parking(&mut text, parking, payloads),
            Why::Engine(error) => {
                let _ = writeln!(text, "  the reason: {error}");
            }
            Why::Waits(waits, ended) => self.push_waits(&mut text, waits, ended),
        }
        let _ = write!(text, "  asked at {}", self.asked_at);
        text
    }

    fn push_waits(&self, text: &mut String, waits: &[Deep], ended: &[RunId]) {
        if waits.is_empty() {
            text.push_str("  it waits for nothing that the engine knows of\n");
        } else {
            text.push_str("  it waits for:\n");
        }
        for deep in waits {
            self.push_wait(text, "    - ", &deep.wait);
            for wait in &deep.of_child {
                self.push_wait(text, "        which waits for ", wait);
            }
        }
        if let (Expected::Child(name), [_, ..]) = (self.expected, ended) {
            let ended: Vec<_> = ended.iter().map(RunId::to_string).collect();
            let _ = writeln!(
                text,
                "  children of `{name}` that have ended: {} (`engine.children::<{name}>(&run)`)",
                ended.join(", ")
            );
        }
        let comes = waits.iter().any(Deep::comes_by_itself);
        text.push_str(match comes {
            true => {
                "  if more time is to pass: `engine.advance(..)` before, or `.patience(..)` on the builder\n"
            }
            false => "  nothing of that comes with time: send what it waits for first\n",
        });
    }

    fn push_wait(&self, text: &mut String, mark: &str, wait: &Wait) {
        let place = wait.site.map(|site| format!(", at {site}"));
        let place = place.unwrap_or_default();
        let _ = writeln!(text, "{mark}{}{place}", self.awaited(&wait.what));
    }

    fn awaited(&self, what: &Awaited) -> String {
        match what {
            Awaited::Signal(name) => match tokens::token_of(name) {
                Some(token) => format!("what is sent to the hook `{token}`"),
                None => format!("the signal `{name}`"),
            },
            Awaited::Timer(Some(due)) => format!("a timer, due {}", self.due(*due)),
            Awaited::Timer(None) => "a timer".into(),
            Awaited::Child(name, run) => format!("the child `{name}`, {run}"),
            Awaited::Retry(name, due) => {
                format!("the next attempt of step `{name}`, due {}", self.due(*due))
            }
            Awaited::Body(name, id) => format!("the body of step `{name}`, {id}"),
            Awaited::Engine(name) => format!("the engine, for `{name}`"),
            Awaited::Start(Some(due)) => format!("its start, due {}", self.due(*due)),
            Awaited::Start(None) => "its turn in a queue, or the end of its delay there".into(),
            Awaited::Undoing => "what it did to be undone".into(),
        }
    }

    fn due(&self, due: Timestamp) -> String {
        match due.since(self.now) {
            Duration::ZERO => format!("at {due}"),
            left => format!("in {} ({due})", in_words(left)),
        }
    }
}

impl Deep {
    /// Whether it can come to an end without anything being sent.
    fn comes_by_itself(&self) -> bool {
        let by_itself = |wait: &Wait| !matches!(wait.what, Awaited::Signal(_));
        match &*self.of_child {
            [] => by_itself(&self.wait),
            waits => waits.iter().any(by_itself),
        }
    }
}

fn push_end(text: &mut String, end: &End, payloads: &Payloads) {
    let _ = match end {
        End::Completed(output) => {
            writeln!(
                text,
                "  it completed with: {}",
                show_payload(payloads, output)
            )
        }
        End::Failed(failure) => {
            writeln!(
                text,
                "  it failed with: {}",
                show_failure(failure, payloads)
            )
        }
        End::Aborted(aborted) => writeln!(text, "  it was aborted: {}", aborted.reason),
        End::Cancelled(cancelled) => writeln!(text, "  it was cancelled: {}", cancelled.reason),
        End::Continued(continued) => writeln!(text, "  it went on as {}", continued.next),
    };
}

fn show_failure(failure: &Outcome, payloads: &Payloads) -> String {
    match failure {
        Outcome::Ok(payload) | Outcome::Err(payload) | Outcome::Broken(payload) => {
            let own = payloads.decode::<Error>(payload);
            own.map_or_else(
                |_| show_payload(payloads, payload),
                |error| format!("{error:#}"),
            )
        }
        Outcome::AlreadyDone(payload) => show_payload(payloads, payload),
        Outcome::Interrupted(interrupted) => interrupted.to_string(),
    }
}

fn push_parking(text: &mut String, parking: &Parking, payloads: &Payloads) {
    let _ = writeln!(text, "  the report: {}", parking.report);
    let detail = parking.detail.as_ref();
    let detail = detail.and_then(|detail| payloads.decode::<String>(detail).ok());
    if let Some(detail) = detail {
        let _ = writeln!(text, "  more: {}", detail.trim());
    }
}
