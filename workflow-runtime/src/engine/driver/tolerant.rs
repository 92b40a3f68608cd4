//! Tolerant replay: the journal's outcomes go to the calls that wait for them, calls that it does not
//! know run, and what nobody asks for is reported.
//!
//! The rule, live and in every replay: *the earliest outcome of the journal that was not delivered yet
//! and whose call waits.* A process that is live has a shorter journal before it than the next one that
//! replays, but what it lacks is newer than all it has; so both choose the same outcome, one
//! after the other. That is why an inserted step, whose outcome stands at the journal's end, is
//! delivered again where it was delivered first.

use super::{Driver, Next};
use crate::call::CodeChanges;
use crate::engine::warnings::Warning;
use crate::replay::Recorded;

impl Driver {
    /// Delivers the earliest recorded outcome whose call waits. `None` if no call waits for one; in
    /// strict replay, where none is left when the run is live, that is so at once.
    pub(super) fn deliver_waiting(&mut self) -> Option<Next> {
        let mut at = 0;
        loop {
            let left = self.recorded.get(at)?;
            let waits = match (&left.what, left.id()) {
                (Recorded::Closing(_), _) => return None, // nothing behind it is for the workflow
                (Recorded::Child(child), _) => self.core.has_child(child.call),
                (_, Some(id)) => self.core.waiting(id).is_some(),
                (_, None) => true, // sent to the run as a whole
            };
            let id = left.id();
            if waits {
                let delivery = self.recorded.remove(at)?;
                return Some(self.replay(delivery));
            }
            if id.is_some_and(|id| self.core.take_dropped(id)) {
                if let Some(swallowed) = self.recorded.remove(at) {
                    self.core.keyed_recorded(&swallowed);
                }
            } else {
                at += 1;
            }
        }
    }

    pub(super) fn is_tolerant(&self) -> bool {
        self.changes == CodeChanges::Tolerant
    }

    /// Says that recorded outcomes are left for which no call waits.
    pub(super) fn report_left(&self, ended: bool) {
        let mut steps = self.recorded.iter().map(|left| match &left.what {
            Recorded::Step(step) => {
                format!("step `{}` (record {})", step.whole().name, left.seq)
            }
            Recorded::Timer(_) => format!("a timer (record {})", left.seq),
            _ => format!("record {}", left.seq),
        });
        if let Some(first) = steps.next() {
            self.warn(Warning::left_over(1 + steps.count(), &first, ended));
        }
    }
}
