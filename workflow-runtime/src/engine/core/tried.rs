//! Steps that ran before and run again: the outcome that they had counts no more, what they were given then does.
//!
//! Owns the comparison of a call that comes to such a step only when the run is live. What it may have done outside, it did
//! under the id that it still has: with another input its body must not start. Calls that wait when the recorded
//! outcomes are used up are compared by the driver, before anything runs.

use bytes::Bytes;

use super::{RunCore, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::warnings::Warning;
use crate::ids::StepId;
use crate::payload::Place;
use crate::replay::{Asked, Delivery, Known, Mismatch, Told, Verdict, judge, tell_apart};
use crate::store::ParkReason;

impl RunCore {
    /// A step ran before, and the code has not come to it again by now.
    pub(crate) fn expect_again(&self, id: StepId, before: Delivery) {
        let mut state = self.state();
        let known = state.known.get_or_insert_default();
        let failed = match known.remove(&id) {
            Some(Known::Failed(failed)) => Some(failed),
            _ => None,
        };
        known.insert(id, Known::Tried(Box::new(before), failed));
    }

    /// Says whether a call may run that ran before: if it is given the same. Otherwise the run has diverged.
    pub(crate) fn fits_before(
        &self,
        id: StepId,
        before: &Delivery,
        input: impl FnOnce() -> Option<Bytes>,
    ) -> bool {
        let Some(call) = self.waiting(id) else {
            return false;
        };
        let mut differences = Vec::new();
        match judge(&before.what, Some(&call), false) {
            Verdict::Deliver => return true,
            Verdict::DeliverReordered => {
                self.warn(Warning::REORDERED_INPUT);
                return true;
            }
            Verdict::OtherInput => {
                let payloads = self.services.payloads.at(Place::step_input(id));
                let value = |input: Option<Bytes>| payloads.value(&input?).ok();
                let (recorded, now) = (value(before.what.kept_input()), value(input()));
                match tell_apart(recorded.as_ref(), now.as_ref()) {
                    Told::Redacted => return true,
                    Told::OtherFields => {
                        self.warn(Warning::OTHER_FIELDS);
                        return true;
                    }
                    Told::Apart(found) => differences = found,
                }
            }
            Verdict::Swallow | Verdict::Diverged => {}
        }
        let mismatch = Mismatch {
            recorded: before,
            asked: Asked {
                calls: vec![call],
                signals: Vec::new(),
                returned: false,
            },
            differences,
        };
        let obstacle = Obstacle::new(ParkReason::Diverged, mismatch.report());
        self.trouble(Trouble::Park(obstacle.detail(mismatch.detail())));
        false
    }
}
