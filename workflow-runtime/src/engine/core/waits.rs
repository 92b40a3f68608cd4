//! What a run in memory waits for, as a list (feature `testing`).

use std::panic::Location;

use super::{Phase, RunCore};
use crate::clock::Timestamp;
use crate::ids::{CallKind, RunId, StepId};

/// Something that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) what: Awaited,
    /// Where the code waits; none for what is no code's.
    pub(crate) site: Option<&'static Location<'static>>,
}

/// See [`Wait`]. In the order in which they are shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Awaited {
    /// A signal, or a hook's under the name that it has.
    Signal(Box<str>),
    /// A timer, and when it is due.
    Timer(Option<Timestamp>),
    /// A child's end.
    Child(&'static str, RunId),
    /// The next attempt of a step.
    Retry(&'static str, Timestamp),
    /// The body of a step.
    Body(&'static str, StepId),
    /// A write, a message, or a key that another call holds.
    Engine(&'static str),
    /// Its turn in a queue, or the time of its start.
    Start(Option<Timestamp>),
    /// What it did is being undone.
    Undoing,
}

impl RunCore {
    /// What the run waits for, once its recorded outcomes are used up; `None` before.
    pub(crate) fn waits(&self) -> Option<Vec<Wait>> {
        let state = self.state();
        let mut waits = Vec::new();
        match state.phase {
            Phase::Replaying => return None,
            Phase::Winding => waits.push(Wait {
                what: Awaited::Undoing,
                site: None,
            }),
            Phase::Live | Phase::Pausing | Phase::Closing => {}
        }
        for call in state.calls.values() {
            let name = call.view.name;
            let what = match (call.view.kind, call.due) {
                (CallKind::Timer, due) => Awaited::Timer(due),
                (CallKind::Step, Some(due)) if !call.handed_in => Awaited::Retry(name, due),
                (CallKind::Step, _) if call.body.is_some() => Awaited::Body(name, call.view.id),
                _ => Awaited::Engine(name),
            };
            waits.push(Wait {
                what,
                site: Some(call.view.site),
            });
        }
        if let Some(outside) = &state.outside {
            waits.extend(outside.awaited_children());
            waits.extend(outside.awaited_signals());
        }
        drop(state);
        waits.sort_by(|a, b| (&a.what, a.site).cmp(&(&b.what, b.site)));
        Some(waits)
    }
}
