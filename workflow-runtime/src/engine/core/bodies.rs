//! The bodies of a run that have begun and not ended, and the waker that goes from one to the next.
//!
//! Owns their count, and that what a call needs when its body begins or ends is done under one lock: every step does both. What has to be durable
//! before a body starts is in `clearance`. Never polls one.

use std::sync::Arc;
use std::task::Waker;

use super::caller::Caller;
use super::{Asks, BeganBody, Phase, RunCore, State};
use crate::engine::signal::{BodyWaker, CallWaker};
use crate::ids::StepId;
use crate::journal::Draft;

/// Whether an attempt has begun, and a waker for its body if there is one.
pub(crate) type Began = (BeganBody, Option<BodyWaker>);

impl RunCore {
    /// Says whether a new attempt may begin.
    pub(crate) fn may_begin(&self) -> bool {
        self.begins(&self.state())
    }

    fn begins(&self, state: &State) -> bool {
        state.phase == Phase::Live
            && state.trouble.is_none()
            && !self.services.pauses.holds(&self.identity.workflow_name)
    }

    /// Says whether a new attempt may begin, and counts it if so. If it is cleared at once, its body may start: there is
    /// nothing to be announced and nothing to be waited for.
    ///
    /// With it comes a waker for the body, if there is one.
    pub(crate) fn begin_body(&self, id: StepId, asks: Asks, waker: &Waker) -> Began {
        self.begin_in(&mut self.state(), id, asks, waker)
    }

    pub(super) fn begin_in(
        &self,
        state: &mut State,
        id: StepId,
        asks: Asks,
        waker: &Waker,
    ) -> Began {
        if !self.begins(state) {
            return (BeganBody::No, None);
        }
        state.bodies += 1;
        let Some(call) = state.calls.get_mut(&id) else {
            return (BeganBody::ToBeCleared, None);
        };
        call.due = None; // it waits for more than a time now
        let is_cleared =
            !asks.announced && call.intent.is_none() && state.prefix.suffices(asks.synced);
        let began = match is_cleared {
            true => BeganBody::Cleared,
            false => BeganBody::ToBeCleared,
        };
        // It was made to wake the workflow.
        let spare = state.spare_waker.take_if(|_| waker.will_wake(&self.waker));
        (began, spare)
    }

    /// A body waits: whether it is polled once it is woken is to be looked after.
    pub(crate) fn watch_body(&self, id: StepId, waker: &Arc<CallWaker>) {
        if let Some(call) = self.state().calls.get_mut(&id) {
            call.body = Some(waker.clone());
        }
    }

    /// A body that had begun has ended or was dropped.
    pub(crate) fn end_body(&self, id: StepId) {
        let mut state = self.state();
        state.bodies -= 1;
        let body = state.calls.get_mut(&id).and_then(|call| call.body.take());
        drop(state);
        drop(body); // its waker may be the user's
    }

    /// The same, and takes the outcome of its call. The body's waker is kept for the next one, if it can be.
    pub(crate) fn hand_in_and_end(&self, id: StepId, outcome: Draft, waker: BodyWaker) {
        let mut spare = waker.is_as_new().then_some(waker);
        let mut state = self.state();
        state.bodies -= 1;
        let mut body = None;
        if let Some(call) = state.calls.get_mut(&id) {
            call.handed_in = true;
            body = call.body.take();
            // One that was watched may have followed its call to somebody else.
            let wakes_workflow = body.is_none() && matches!(call.caller, Caller::Workflow);
            if wakes_workflow && state.spare_waker.is_none() {
                state.spare_waker = spare.take();
            }
        }
        state.outbox.push(outcome);
        drop(state);
        drop((body, spare)); // these wakers may be the user's
    }

    /// How many bodies have begun and not ended.
    pub(crate) fn bodies(&self) -> usize {
        self.state().bodies
    }
}
