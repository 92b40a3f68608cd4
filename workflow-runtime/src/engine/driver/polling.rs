//! The workflow's own code: polled, met with trouble, dropped.
//!
//! Owns the one place where a workflow's future is polled and the one where it is dropped, both with its
//! context set and its panics caught. It never decides what is delivered.

use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use super::passes::NextPass;
use super::{Driver, Exit};
use crate::call::outcome::panic_message;
use crate::context::lend;
use crate::engine::core::Trouble;
use crate::engine::obstacle::Obstacle;
use crate::engine::warnings::Warning;
use crate::journal::{End, Outcome};

impl Driver {
    /// Polls the workflow's code once. `Some` if that ends the drive.
    pub(super) fn poll_workflow(&mut self) -> Option<Exit> {
        if self.core.signal.take_foreign() && !self.warned_foreign {
            cold_path();
            self.warned_foreign = true;
            self.warn(Warning::FOREIGN_WAKE);
        }
        let Some(workflow) = self.workflow.as_mut() else {
            return self.meet_trouble();
        };
        let signal = &self.core.signal;
        signal.set_polling(true);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _entered = lend(&mut self.ambient);
            let mut cx = Context::from_waker(self.core.waker());
            workflow.as_mut().poll(&mut cx)
        }));
        signal.set_polling(false);
        match polled {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(end)) => {
                self.workflow = None;
                self.end = Some(end);
            }
            Err(panic) => {
                cold_path();
                self.drop_workflow();
                self.write_outbox(None);
                return Some(self.park(Obstacle::panicked(panic_message(panic.as_ref()))));
            }
        }
        self.meet_trouble()
    }

    /// Acts on what keeps the run from going on. `Some` if that ends the drive.
    pub(super) fn meet_trouble(&mut self) -> Option<Exit> {
        let trouble = self.core.take_trouble()?;
        cold_path();
        self.meet(trouble)
    }

    /// Acts on one trouble.
    #[inline(never)]
    fn meet(&mut self, trouble: Trouble) -> Option<Exit> {
        match trouble {
            Trouble::Store(error) => {
                self.drop_workflow();
                Some(Exit::StoreFailed(error))
            }
            Trouble::Checkpoint(input) => {
                self.drop_workflow();
                self.next_pass = Some(Box::new(NextPass::Again(input)));
                None
            }
            Trouble::Continue(call) => {
                self.drop_workflow();
                self.next_pass = Some(Box::new(NextPass::NewRun(call)));
                None
            }
            Trouble::Abort(aborted) => {
                self.give_up(End::Aborted(aborted));
                None
            }
            Trouble::Fail(error) => {
                let payload = self.core.end_payloads().encode(&error);
                let payload = payload.unwrap_or_default();
                self.give_up(End::Failed(Outcome::Broken(payload)));
                None
            }
            Trouble::Park(obstacle) => {
                self.drop_workflow();
                self.write_outbox(None);
                Some(self.park(obstacle))
            }
        }
    }

    /// Drops the workflow's future with its context set, as if it were polled.
    pub(super) fn drop_workflow(&mut self) {
        let _entered = lend(&mut self.ambient);
        if catch_unwind(AssertUnwindSafe(|| self.workflow = None)).is_err() {
            self.workflow = None;
        }
    }
}
