//! The children that a run has called: created, dropped, ended.
//!
//! Owns the table of children and what is held back of them until the run goes live: creations that
//! the journal does not know, and requests to cancel those whose calls were dropped. It never
//! decides when an end is delivered: the driver does.

use std::panic::Location;
use std::task::Waker;

use super::outside::Outside;
#[cfg(feature = "testing")]
use super::waits::{Awaited, Wait};
use super::{RunCore, State, Trouble};
use crate::clock::Timestamp;
use crate::engine::obstacle::Obstacle;
use crate::engine::signal::wake_by_engine;
use crate::engine::warnings::Warning;
use crate::id_map::IdSet;
use crate::ids::{CallKind, RunId, StepId};
use crate::journal::{CancelRequested, CarriedChild, ChildStarted, Draft, End, Event};
use crate::payload::Place;
use crate::replay::{
    Asked, ChildMismatch, Known, Told, Verdict, WaitingCall, judge_child, tell_apart,
};
use crate::store::{Letter, NewRun, ParkReason};

/// Why a child is cancelled whose call was dropped.
const DROPPED: &str = "the call was dropped";

/// A child that the code has called.
pub(super) struct Child {
    run: RunId,
    name: &'static str,
    site: &'static Location<'static>,
    end: Option<End>,
    waker: Option<Waker>,
    detached: bool,
    /// Its end was delivered.
    finished: bool,
    /// Its call is gone: nobody wants its end.
    dropped: bool,
    cancel: CancelWanted,
}

/// Whether a child is to be cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelWanted {
    No,
    /// Once the run is live.
    Yes,
    /// The letter is on its way.
    Asked,
}

/// A child to be created.
pub(crate) struct NewChild {
    pub(crate) started: ChildStarted,
    pub(crate) name: &'static str,
    pub(crate) site: &'static Location<'static>,
    pub(crate) new: NewRun,
}

fn cancel_of(run: RunId, reason: &str, sent_at: Timestamp) -> Letter {
    let request = Event::CancelRequested(CancelRequested {
        reason: reason.into(),
        sent_at,
    });
    Letter {
        to: run,
        body: request.to_letter(),
    }
}

impl Child {
    fn may_be_cancelled(&self) -> bool {
        !self.finished && !self.detached && self.cancel != CancelWanted::Asked
    }
}

impl Outside {
    /// Has children cancelled that `which` picks and that are neither detached, ended, nor asked
    /// already.
    fn cancel(&mut self, now: Timestamp, reason: &str, which: impl Fn(&Child) -> bool) {
        let mut asked: Vec<_> = self
            .children
            .values_mut()
            .filter(|child| child.may_be_cancelled() && which(child))
            .collect();
        asked.sort_by_key(|child| child.run); // a table has no order of its own
        for child in asked {
            child.cancel = CancelWanted::Asked;
            self.changes.post.push(cancel_of(child.run, reason, now));
        }
    }

    /// Leaves the children of a pass behind: their ends are delivered to nobody. Gives those that have not
    /// ended.
    pub(super) fn leave_children(&mut self) -> Vec<CarriedChild> {
        self.children.retain(|_, child| !child.finished);
        let mut left: Vec<_> = self
            .children
            .iter_mut()
            .map(|(call, child)| {
                child.dropped = true;
                CarriedChild {
                    call: *call,
                    child: child.run,
                    detached: child.detached,
                }
            })
            .collect();
        left.sort_by_key(|child| child.call);
        left
    }

    /// Takes a child up that was started before a checkpoint.
    pub(super) fn carry_child(&mut self, carried: &CarriedChild) {
        let child = Child {
            run: carried.child,
            name: "a child of an earlier pass",
            site: Location::caller(),
            end: None,
            waker: None,
            detached: carried.detached,
            finished: false,
            dropped: true,
            cancel: CancelWanted::No,
        };
        self.children.insert(carried.call, child);
    }

    pub(super) fn awaits_a_child(&self) -> bool {
        self.children.values().any(|child| child.waker.is_some())
    }

    /// The children that the code waits for, with their runs.
    #[cfg(feature = "testing")]
    pub(super) fn awaited_children(&self) -> impl Iterator<Item = Wait> {
        let waiting = self.children.values().filter(|one| one.waker.is_some());
        waiting.map(|child| Wait {
            what: Awaited::Child(child.name, child.run),
            site: Some(child.site),
        })
    }

    /// The children that the code waits for.
    pub(super) fn waiting_children(&self) -> impl Iterator<Item = WaitingCall> {
        let waiting = self.children.iter().filter(|(_, one)| one.waker.is_some());
        waiting.map(|(id, child)| WaitingCall {
            id: *id,
            kind: CallKind::Child,
            name: child.name,
            site: child.site,
            digest: None,
            fresh_for: None,
        })
    }
}

impl State {
    /// The run goes live: creations that were held back leave with its next append, and requests to
    /// cancel children whose calls the code has dropped.
    pub(super) fn release_children(&mut self, now: Timestamp) {
        let Some(outside) = &mut self.outside else {
            return;
        };
        for (started, new) in std::mem::take(&mut outside.held_children) {
            self.outbox.push(Draft::of(&started));
            outside.changes.create.push(new);
        }
        outside.cancel(now, DROPPED, |child| child.cancel == CancelWanted::Yes);
    }
}

impl RunCore {
    /// Makes a child's call known, and has the child created unless the journal says it was.
    pub(crate) fn start_child(&self, child: NewChild) {
        let NewChild {
            started,
            name,
            site,
            new,
        } = child;
        let call = started.call;
        let slot = Child {
            run: started.child,
            name,
            site,
            end: None,
            waker: None,
            detached: started.detached,
            finished: false,
            dropped: false,
            cancel: CancelWanted::No,
        };
        let known = {
            let mut state = self.state();
            if let Some(past) = &mut state.past {
                past.make(call, Some(&started.input_digest));
            }
            state.outside().children.insert(call, slot);
            state.known.as_mut().and_then(|known| known.remove(&call))
        };
        if let Some(Known::Child(recorded)) = known {
            return self.fit_child(&recorded, &started, name, site);
        }
        let started = Event::ChildStarted(started);
        let mut state = self.state();
        if state.went_live {
            state.outbox.push(Draft::of(&started));
            state.outside().changes.create.push(new);
        } else {
            state.outside().held_children.push((started, new));
        }
    }

    /// Compares the child that the journal knows with the one that the code calls.
    fn fit_child(
        &self,
        recorded: &ChildStarted,
        now: &ChildStarted,
        name: &'static str,
        site: &'static Location<'static>,
    ) {
        let verdict = judge_child(recorded, now);
        let mut differences = Vec::new();
        match verdict {
            Verdict::Deliver => return,
            Verdict::DeliverReordered => return self.warn(Warning::REORDERED_INPUT),
            Verdict::OtherInput => {
                let value = |started: &ChildStarted| {
                    let input = started.input.as_ref()?;
                    let place = Place::call_input(&started.input_digest.strict);
                    self.services.payloads.at(place).value(input).ok()
                };
                match tell_apart(value(recorded).as_ref(), value(now).as_ref()) {
                    Told::Redacted => return,
                    Told::OtherFields => return self.warn(Warning::OTHER_FIELDS),
                    Told::Apart(found) => differences = found,
                }
            }
            Verdict::Swallow | Verdict::Diverged => {}
        }
        let asked = WaitingCall {
            id: now.call,
            kind: CallKind::Child,
            name,
            site,
            digest: None,
            fresh_for: None,
        };
        let mismatch = ChildMismatch {
            recorded,
            asked: Asked {
                calls: vec![asked],
                signals: Vec::new(),
                returned: false,
            },
            differences: &differences,
        };
        let obstacle = Obstacle::new(ParkReason::Diverged, mismatch.report());
        self.trouble(Trouble::Park(obstacle.detail(mismatch.detail())));
    }

    pub(super) fn warn(&self, message: &'static str) {
        self.services.warnings.push(Warning {
            run: Some(self.run()),
            workflow: self.identity().workflow_name.clone(),
            message: message.into(),
        });
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

    /// The call of a child was dropped before it gave its value. If `cancels`, the child goes with
    /// it: at once, or in replay once the run is live.
    pub(crate) fn drop_child(&self, call: StepId, cancels: bool) {
        let now = self.services.clock.now();
        let mut state = self.state();
        let live = state.went_live;
        let outside = state.outside();
        let Some(child) = outside.children.get_mut(&call) else {
            return;
        };
        child.dropped = true;
        child.end = None;
        child.waker = None;
        if cancels {
            child.cancel = CancelWanted::Yes;
        }
        if live {
            outside.cancel(now, DROPPED, |child| child.cancel == CancelWanted::Yes);
        }
    }

    /// Delivers a child's end. `false` if the code has not called it.
    pub(crate) fn finish_child(&self, time: Timestamp, call: StepId, end: End) -> bool {
        let waker = {
            let mut state = self.state();
            self.set_now(time);
            state.letter_delivered();
            let Some(child) = state.outside().children.get_mut(&call) else {
                return false;
            };
            child.finished = true;
            child.end = (!child.dropped).then_some(end);
            child.waker.take()
        };
        if let Some(waker) = waker {
            wake_by_engine(&waker);
        }
        true
    }

    /// Children that have ended and whose end the code did not want.
    pub(crate) fn unwanted_ends(&self) -> IdSet<StepId> {
        let state = self.state();
        let children = state.outside.iter().flat_map(|outside| &outside.children);
        let unwanted = children.filter(|(_, child)| child.dropped && child.finished);
        unwanted.map(|(call, _)| *call).collect()
    }

    /// Children whose calls the code has dropped, so that they are cancelled.
    pub(crate) fn cancelled_children(&self) -> IdSet<StepId> {
        let state = self.state();
        let children = state.outside.iter().flat_map(|outside| &outside.children);
        let cancelled = children.filter(|(_, child)| {
            child.dropped && !child.detached && child.cancel != CancelWanted::No
        });
        cancelled.map(|(call, _)| *call).collect()
    }

    /// Says whether the code has called a child.
    pub(crate) fn has_child(&self, call: StepId) -> bool {
        let state = self.state();
        let outside = state.outside.as_ref();
        outside.is_some_and(|outside| outside.children.contains_key(&call))
    }

    /// What the journal says of a child that the code has not called.
    pub(crate) fn known_child(&self, call: StepId) -> Option<Box<ChildStarted>> {
        let state = self.state();
        match state.known.as_ref().and_then(|known| known.get(&call)) {
            Some(Known::Child(started)) => Some(started.clone()),
            _ => None,
        }
    }

    /// A child that the journal knows and the code has not called, now that it is used up: the one
    /// with the smallest id, so that every replay reports the same.
    pub(crate) fn uncalled_child(&self) -> Option<Box<ChildStarted>> {
        let state = self.state();
        let known = state.known.iter().flat_map(|known| known.values());
        let children = known.filter_map(|known| match known {
            Known::Child(started) => Some(started),
            _ => None,
        });
        children.min_by_key(|started| started.call).cloned()
    }

    /// Has all unfinished children cancelled that are not detached, and creates none any more.
    pub(crate) fn cancel_children(&self, reason: &str) {
        let now = self.services.clock.now();
        if let Some(outside) = &mut self.state().outside {
            outside.held_children.clear();
            outside.cancel(now, reason, |_| true);
        }
    }
}
