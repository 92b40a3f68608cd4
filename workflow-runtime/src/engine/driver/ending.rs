//! The last things: a workflow that has returned, an engine that stops, a run that is paused.
//!
//! Owns the order before a terminal record: nothing recorded left over, what was held back gone out, bodies
//! that cannot be stopped awaited, what was done undone (`closing`). Never polls the workflow.

use std::collections::VecDeque;

use super::{Driver, Exit, Next, Stage};
use crate::engine::pause;
use crate::journal::Closing;
use crate::replay::Recorded;

impl Driver {
    /// The workflow has returned: nothing recorded may be left over, then the end is written.
    pub(super) fn finish(&mut self) -> Next {
        if self.stage == Stage::Ending {
            if !self.commits.is_empty() {
                return Next::Wait;
            }
            let end = self.end.take().expect("the stage says that it ended");
            return Next::Exit(Exit::Ended(end));
        }
        if self.undone() {
            return Next::Again;
        }
        let mut left_over = VecDeque::new();
        while let Some(left) = self.recorded.pop_front() {
            if let Recorded::Closing(closing) = &left.what {
                return self.resume_undo(Closing::clone(closing), &left);
            }
            // What was sent to the run as a whole may come too late for it.
            let Some(id) = left.id() else {
                continue;
            };
            if let Recorded::Step(step) = &left.what {
                self.core.complete_recorded_undo(step);
            }
            let called = matches!(left.what, Recorded::Child(_)) && self.core.has_child(id);
            if called || self.core.take_dropped(id) {
                continue;
            }
            if !self.is_tolerant() {
                return Next::Exit(self.diverged(&left, true, Vec::new()));
            }
            left_over.push_back(left);
        }
        if self.is_tolerant() {
            self.recorded = left_over;
            self.report_left(true);
        }
        if let Err(exit) = self.check_intents(true) {
            return Next::Exit(exit);
        }
        if self.stage == Stage::Replaying {
            if self.core.is_leaving() {
                return Next::Exit(self.leave());
            }
            if let Some(exit) = self.uncalled_child(true) {
                return Next::Exit(exit);
            }
            #[cfg(feature = "testing")]
            if let Some(exit) = self.verified() {
                return Next::Exit(exit);
            }
            self.record_discarded();
        }
        let is_live = !matches!(self.stage, Stage::Replaying | Stage::Recovering);
        if !is_live && self.ending.is_none() {
            self.go_live(); // what was held back leaves before the end
            return Next::Again;
        }
        if self.must_wait() {
            return Next::Wait;
        }
        if self.must_undo() {
            return self.begin_undo();
        }
        self.stage = Stage::Ending;
        let end = self.end.take();
        self.write_outbox(end.as_ref());
        self.end = end;
        Next::Again
    }

    /// The engine is stopping, or the run is paused: leave once what began has been journaled.
    pub(super) fn close(&mut self) -> Next {
        // With recorded outcomes left, the order of delivery is for the next process to keep.
        if self.recorded.is_empty() && self.deliver_durable() {
            return Next::Again;
        }
        if self.core.bodies() == 0 && self.commits.is_empty() {
            Next::Exit(self.leave())
        } else {
            Next::Wait
        }
    }

    pub(super) fn leave(&self) -> Exit {
        if self.core.is_closing() {
            Exit::Left
        } else {
            self.park(pause::obstacle())
        }
    }
}
