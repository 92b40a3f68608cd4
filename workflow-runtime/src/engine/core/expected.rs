//! The delivery that nearly every replayed step is: to the call that waits for it, and with nothing beside it.
//!
//! Owns when an outcome on record is as plain as that, and its delivery under one lock. All else (other input, a key, an
//! `undo`, an outcome that may be too old, a call that is gone) is left to the driver, which finds nothing changed. It
//! never says why something does not fit.

use std::task::Waker;

use super::{Delivered, Phase, RunCore};
use crate::engine::signal::{RunSignal, wake_by_engine};
use crate::replay::{Delivery, Recorded, Verdict, judge};

/// Who is to be woken for a delivery.
#[must_use]
pub(crate) enum Woken {
    /// The workflow itself.
    Workflow,
    /// Something inside it that has wakers of its own.
    Inner(Waker),
}

impl Woken {
    /// Whom a call's waker is for. The workflow's own waker is given, to be known among those that calls have.
    pub(super) fn of(call: &Waker, workflow: &Waker) -> Self {
        match call.will_wake(workflow) {
            true => Self::Workflow,
            false => Self::Inner(call.clone()),
        }
    }

    /// Wakes it in the engine's name.
    pub(crate) fn wake(self, run: &RunSignal) {
        match self {
            Self::Workflow => run.wake_while_driving(),
            Self::Inner(waker) => wake_by_engine(&waker),
        }
    }
}

impl RunCore {
    /// Delivers an outcome on record if it is what the code waits for, and nothing else is to be done with it. `None`: nothing
    /// was done. The workflow's own waker is given, to be known among those that calls have.
    pub(crate) fn deliver_expected(
        &self,
        delivery: &Delivery,
        is_last: bool,
        workflow: &Waker,
    ) -> Option<Woken> {
        let Recorded::Step(step) = &delivery.what else {
            return None;
        };
        let mut state = self.state();
        let state = &mut *state;
        let undoes = state
            .outside
            .as_ref()
            .is_some_and(|outside| outside.undo.is_some());
        if undoes || state.keyed.is_some() || state.phase != Phase::Replaying {
            return None;
        }
        let call = state.calls.get_mut(&step.id())?;
        let verdict = judge(&delivery.what, Some(&call.view), false);
        if verdict != Verdict::Deliver || call.view.fresh_for.is_some() {
            return None;
        }
        call.delivered = Some(Delivered::Recorded(step.outcome()));
        let woken = Woken::of(&call.waker, workflow);
        state.now = state.now.max(delivery.time);
        state.repeating &= !is_last;
        if let Some(past) = &mut state.past {
            past.pass(delivery.seq);
        }
        Some(woken)
    }
}
