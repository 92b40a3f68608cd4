//! The delivery that nearly every replayed step is: to the call that waits for it, and with nothing beside it.
//!
//! Owns when an outcome on record is as plain as that, and its delivery under one lock. All else (other input, a key, an
//! `undo`, an outcome that may be too old, a call that is gone) is left to the driver, which finds nothing changed. It
//! never says why something does not fit.

use super::caller::Woken;
use super::{Delivered, Phase, RunCore};
use crate::replay::{Delivery, Recorded, Verdict, judge};

impl RunCore {
    /// Delivers an outcome on record if it is what the code waits for, and nothing else is to be done with it. `None`: nothing
    /// was done.
    pub(crate) fn deliver_expected(&self, delivery: &Delivery, is_last: bool) -> Option<Woken> {
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
        let woken = call.caller.woken();
        self.set_now(self.now().max(delivery.time));
        state.repeating &= !is_last;
        if let Some(past) = &mut state.past {
            past.pass(delivery.seq);
        }
        Some(woken)
    }
}
