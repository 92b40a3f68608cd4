//! Leaving memory: a run that only waits goes to sleep after a moment.
//!
//! Owns the decision that nothing is lost by it: no body runs, nothing is on its way to the store, and
//! all that the run waits for is a time in its journal or comes by letter. When it is woken, it is
//! rebuilt by replay.

use std::task::{Context, Poll};

use super::{Driver, Exit};
use crate::clock::Timestamp;
use crate::engine::crowd::{For, Waiting};
use crate::engine::timers::Deadline;
use crate::store::{BoxFuture, Released, StoreError, StoreResult};

/// How far a run is on its way out of memory.
pub(super) enum Resting {
    /// It is not.
    No,
    /// It waits; if it still does then, it goes.
    Until {
        deadline: Deadline,
        /// It counts as one that only waits.
        _waiting: Waiting,
    },
    /// The store is told.
    Leaving(Option<Timestamp>, BoxFuture<'static, StoreResult<Released>>),
}

impl Driver {
    /// Lets the run leave memory if it has only waited for a moment.
    pub(super) fn fall_asleep(&mut self, cx: &mut Context<'_>) -> Result<Option<Exit>, StoreError> {
        loop {
            let Some(moment) = self.core.services.config.evict_after else {
                return Ok(None);
            };
            match &mut self.resting {
                Resting::No => {
                    let Some(wake_at) = self.core.may_sleep() else {
                        return Ok(None);
                    };
                    // To come back at once would cost more than to stay.
                    let services = &self.core.services;
                    let now = services.clock.now();
                    let is_soon = |wake_at: Timestamp| wake_at <= now.after(moment);
                    if !self.can_rest() || wake_at.is_some_and(is_soon) {
                        return Ok(None);
                    }
                    let waits = match self.core.waits_for_letters() {
                        true => For::Letters,
                        false => For::Times,
                    };
                    let (waiting, moment) = services.crowd.join(moment, waits);
                    let at = now.after(moment);
                    let deadline = services.timers.wake_at(at, cx.waker().clone());
                    self.resting = Resting::Until {
                        deadline,
                        _waiting: waiting,
                    };
                    if !moment.is_zero() {
                        return Ok(None);
                    }
                }
                Resting::Until { deadline, .. } => {
                    if !deadline.is_over() {
                        deadline.rearm(cx.waker());
                        return Ok(None);
                    }
                    let Some(wake_at) = self.core.may_sleep().filter(|_| self.can_rest()) else {
                        self.resting = Resting::No;
                        return Ok(None);
                    };
                    let (store, run) = (self.writer.store.clone(), self.writer.run);
                    let epoch = self.writer.epoch;
                    let leaving =
                        Box::pin(async move { store.put_to_sleep(run, epoch, wake_at).await });
                    self.resting = Resting::Leaving(wake_at, leaving);
                }
                Resting::Leaving(wake_at, leaving) => match leaving.as_mut().poll(cx) {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(Ok(Released::Asleep)) => {
                        return Ok(Some(Exit::Asleep(*wake_at)));
                    }
                    Poll::Ready(Ok(Released::HasMail)) => {
                        self.resting = Resting::No;
                        self.core.signal.mail_arrived();
                        return Ok(None);
                    }
                    Poll::Ready(Err(error)) => return Err(error),
                },
            }
        }
    }

    /// Whether the driver itself has nothing left to do.
    fn can_rest(&self) -> bool {
        self.durable.is_empty()
            && self.mailbox.is_empty()
            && self.ending.is_none()
            && self.winding_down.is_none()
            && self.end.is_none()
    }

    /// Whether the store was asked to let the run go: until it answers, nothing may be written.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.resting, Resting::Leaving(..))
    }
}
