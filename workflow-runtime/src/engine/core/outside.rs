//! What a run has to do with others: signals it was sent, children it called, what it publishes.
//!
//! Owns the queues of received signals, the table of children, and the changes that leave with the
//! run's next append. Most runs have none of it, so it is apart and made when first needed. It
//! never decides when a letter is delivered: the driver does.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;

use super::undo::UndoLog;
use super::{Phase, RunCore, State, Trouble};
use crate::clock::{Timestamp, wall_clock};
use crate::digest::Digest;
use crate::engine::obstacle::Obstacle;
use crate::engine::signal::wake_by_engine;
use crate::id_map::IdMap;
use crate::ids::{RunId, StepId};
use crate::journal::{CancelRequested, ChildStarted, Draft, End, Event};
use crate::payload::{PayloadError, Payloads};
use crate::replay::Known;
use crate::store::{Changes, Letter, NewRun, NoteChange, NoteKey, ParkReason};

/// Says whether a payload is of the type that a wait asks for.
pub(crate) type SignalCheck = fn(&Payloads, &[u8]) -> Result<(), PayloadError>;

/// See the module.
#[derive(Default)]
pub(super) struct Outside {
    signals: HashMap<Box<str>, Signals>,
    next_ticket: u64,
    pub(super) children: IdMap<StepId, Child>,
    /// Children that the code called while its history was not used up, and that the history does
    /// not know: they are created when the run goes live.
    held: Vec<(Event, NewRun)>,
    changes: Changes,
    pub(super) undo: Option<Box<UndoLog>>,
}

/// The signals of one name.
#[derive(Default)]
struct Signals {
    received: VecDeque<Bytes>,
    waiters: Vec<Waiter>,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
    check: SignalCheck,
}

/// A child that the code has called.
pub(super) struct Child {
    run: RunId,
    end: Option<End>,
    waker: Option<Waker>,
    detached: bool,
    /// Its end was delivered.
    finished: bool,
    /// Its call was dropped, so it is to be cancelled once the run is live.
    cancel: bool,
}

/// A child to be created.
pub(crate) struct NewChild {
    pub(crate) call: StepId,
    pub(crate) started: ChildStarted,
    pub(crate) digest: Digest,
    pub(crate) new: NewRun,
}

impl Outside {
    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty() || !self.held.is_empty()
    }

    pub(super) fn waits_for_something(&self) -> bool {
        let signal = self.signals.values().any(|one| !one.waiters.is_empty());
        signal || self.children.values().any(|child| child.waker.is_some())
    }
}

impl State {
    fn outside(&mut self) -> &mut Outside {
        self.outside.get_or_insert_default()
    }

    /// The run goes live: what was held back leaves with its next append.
    pub(super) fn release_held(&mut self) {
        let Some(outside) = &mut self.outside else {
            return;
        };
        for (started, new) in std::mem::take(&mut outside.held) {
            self.outbox.push(Draft::of(&started));
            outside.changes.create.push(new);
        }
        let unfinished = outside.children.values().filter(|child| !child.finished);
        let dropped: Vec<RunId> = unfinished
            .filter(|child| child.cancel)
            .map(|child| child.run)
            .collect();
        for child in dropped {
            outside.changes.post.push(cancel_of(child, DROPPED));
        }
    }
}

/// Why a child is cancelled whose call was dropped.
const DROPPED: &str = "the call was dropped";

fn cancel_of(run: RunId, reason: &str) -> Letter {
    let request = Event::CancelRequested(CancelRequested {
        reason: reason.into(),
        sent_at: wall_clock(),
    });
    Letter {
        to: run,
        body: request.to_letter(),
    }
}

impl RunCore {
    // --- signals -----------------------------------------------------------------------

    /// Takes the next signal of a name, or has the waker woken when one comes.
    pub(crate) fn take_signal(
        &self,
        name: &str,
        ticket: &mut Option<u64>,
        waker: &Waker,
        check: SignalCheck,
    ) -> Option<Bytes> {
        let mut state = self.state();
        let outside = state.outside();
        if !outside.signals.contains_key(name) {
            outside.signals.insert(name.into(), Signals::default());
        }
        let signals = outside.signals.get_mut(name)?;
        let known = signals
            .waiters
            .iter()
            .position(|waiter| Some(waiter.ticket) == *ticket);
        if let Some(payload) = signals.received.pop_front() {
            if let Some(at) = known {
                signals.waiters.remove(at);
            }
            *ticket = None;
            return Some(payload);
        }
        match known {
            Some(at) => signals.waiters[at].waker.clone_from(waker),
            None => {
                let number = outside.next_ticket;
                outside.next_ticket += 1;
                *ticket = Some(number);
                signals.waiters.push(Waiter {
                    ticket: number,
                    waker: waker.clone(),
                    check,
                });
            }
        }
        None
    }

    /// Forgets a wait for a signal.
    pub(crate) fn drop_wait(&self, name: &str, ticket: u64) {
        let mut state = self.state();
        if let Some(signals) = state.outside().signals.get_mut(name) {
            signals.waiters.retain(|waiter| waiter.ticket != ticket);
        }
    }

    /// What a signal of a name has to be, as far as somebody waits for one.
    pub(crate) fn signal_check(&self, name: &str) -> Option<SignalCheck> {
        let state = self.state();
        let signals = state.outside.as_ref()?.signals.get(name)?;
        signals.waiters.first().map(|waiter| waiter.check)
    }

    /// Delivers a signal.
    pub(crate) fn receive_signal(&self, time: Timestamp, name: &str, payload: Bytes) {
        let wakers: Vec<Waker> = {
            let mut state = self.state();
            state.now = time;
            let signals = state.outside().signals.entry(name.into()).or_default();
            signals.received.push_back(payload);
            signals.waiters.iter().map(|w| w.waker.clone()).collect()
        };
        wakers.iter().for_each(wake_by_engine);
    }

    // --- children ----------------------------------------------------------------------

    /// Makes a child's call known, and has the child created unless the journal says it was.
    pub(crate) fn start_child(&self, child: NewChild) {
        let mut state = self.state();
        let NewChild {
            call,
            started,
            digest,
            new,
        } = child;
        let slot = Child {
            run: started.child,
            end: None,
            waker: None,
            detached: started.detached,
            finished: false,
            cancel: false,
        };
        let place = format!("`{}` at {}", started.workflow, started.source);
        match state.known.remove(&call) {
            Some(Known::Child {
                digest: recorded, ..
            }) if recorded == digest => {}
            Some(Known::Child { child, .. }) => {
                let report = format!(
                    "the code calls the child {place} with other input than {child} was started \
                     with: bring the old call back, or branch with `patched`"
                );
                let obstacle = Obstacle::new(ParkReason::Diverged, report);
                state.trouble.get_or_insert(Trouble::Park(obstacle));
            }
            Some(_) | None => {
                let started = Event::ChildStarted(started);
                match state.phase {
                    Phase::Live => {
                        state.outbox.push(Draft::of(&started));
                        state.outside().changes.create.push(new);
                    }
                    Phase::Replaying => state.outside().held.push((started, new)),
                    // Too late, or left for when the run is taken up again.
                    Phase::Winding | Phase::Pausing | Phase::Closing => {}
                }
            }
        }
        state.outside().children.insert(call, slot);
    }

    /// Takes a child's end, or has the waker woken when it comes.
    pub(crate) fn take_child(&self, call: StepId, waker: &Waker) -> Option<End> {
        let mut state = self.state();
        let child = state.outside().children.get_mut(&call)?;
        match child.end.take() {
            Some(end) => {
                child.waker = None;
                Some(end)
            }
            None => {
                child.waker = Some(waker.clone());
                None
            }
        }
    }

    /// The call of a child was dropped before it gave its value. If `cancels`, the child goes with it.
    pub(crate) fn drop_child(&self, call: StepId, cancels: bool) {
        let mut state = self.state();
        let live = state.phase == Phase::Live;
        let Some(child) = state.outside().children.get_mut(&call) else {
            return;
        };
        child.waker = None;
        if cancels && !child.detached && !child.finished {
            child.cancel = true;
            let run = child.run;
            if live {
                let letter = cancel_of(run, DROPPED);
                state.outside().changes.post.push(letter);
            }
        }
    }

    /// Delivers a child's end. `false` if the code has not called it.
    pub(crate) fn finish_child(&self, time: Timestamp, call: StepId, end: End) -> bool {
        let waker = {
            let mut state = self.state();
            let Some(child) = state.outside().children.get_mut(&call) else {
                return false;
            };
            child.end = Some(end);
            child.finished = true;
            let waker = child.waker.take();
            state.now = time;
            waker
        };
        if let Some(waker) = waker {
            wake_by_engine(&waker);
        }
        true
    }

    /// Says whether the code has called a child.
    pub(crate) fn has_child(&self, call: StepId) -> bool {
        let state = self.state();
        let outside = state.outside.as_ref();
        outside.is_some_and(|outside| outside.children.contains_key(&call))
    }

    /// A child that the journal knows and the code has not called, now that it is used up.
    pub(crate) fn uncalled_child(&self) -> Option<RunId> {
        let state = self.state();
        state.known.values().find_map(|known| match known {
            Known::Child { child, .. } => Some(*child),
            _ => None,
        })
    }

    /// Has all unfinished children cancelled that are not detached.
    pub(crate) fn cancel_children(&self, reason: &str) {
        let mut state = self.state();
        let Some(outside) = &mut state.outside else {
            return;
        };
        let unfinished: Vec<RunId> = outside
            .children
            .values()
            .filter(|child| !child.finished && !child.detached)
            .map(|child| child.run)
            .collect();
        for run in unfinished {
            outside.changes.post.push(cancel_of(run, reason));
        }
    }

    // --- what leaves the run ------------------------------------------------------------

    /// Publishes a value, unless an earlier process did: what came after it is recorded already.
    pub(crate) fn publish(&self, name: &str, payload: Bytes) {
        let mut state = self.state();
        if state.repeating {
            return;
        }
        let key = NoteKey::of_run(self.run(), &[PUBLISHED, name.as_bytes()]);
        let notes = &mut state.outside().changes.notes;
        notes.retain(|change| change.key != key); // only the latest counts
        notes.push(NoteChange {
            key,
            value: Some(payload),
        });
    }

    /// Has a letter posted with the run's next append.
    pub(crate) fn post(&self, letter: Letter) {
        self.state().outside().changes.post.push(letter);
    }

    /// Takes what is to leave with the run's next append.
    pub(crate) fn take_changes(&self) -> Option<Box<Changes>> {
        let mut state = self.state();
        let outside = state.outside.as_mut()?;
        if outside.changes.is_empty() {
            return None;
        }
        Some(Box::new(std::mem::take(&mut outside.changes)))
    }
}

/// The part of a note's key that says that it is a published value.
pub(crate) const PUBLISHED: &[u8] = b"published";
