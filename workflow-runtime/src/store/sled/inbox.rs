//! The inbox: appends that came while the committer was at work.
//!
//! Owns what waits there, and the rule that nothing is left in it that nobody will see: while the committer
//! sleeps, and once the store takes no more, it takes nothing. Whoever takes the store's lock takes in what is
//! here first, so that everybody sees calls in the order in which they were made. It never judges an append.
//!
//! It is there because the lock is held for as long as a group takes to be published, some tens of
//! microseconds, several thousand times a second, and whoever drives runs has better things to do than to wait for that, or
//! to fetch what the committer knows of the run from its cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::op::Appending;
use crate::store::{AckSlot, Epoch};

/// An append that was not judged yet.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) epoch: Epoch,
    pub(super) append: Appending,
    pub(super) slot: Arc<AckSlot>,
    /// About how many bytes it takes in a block.
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct Held {
    arrivals: Vec<Arrival>,
    /// Whether the committer sleeps, so that nobody would look.
    unattended: bool,
    closed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    held: Mutex<Held>,
    /// Whether there may be something.
    any: AtomicBool,
}

impl Inbox {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an append for whoever takes the store's lock next; gives it back if that may be nobody.
    pub(super) fn put(&self, arrival: Arrival) -> Result<(), Arrival> {
        let mut held = self.held();
        if held.unattended || held.closed {
            return Err(arrival);
        }
        held.arrivals.push(arrival);
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes all there is, in order. `arrivals` comes empty. The caller has the store's lock.
    pub(super) fn take(&self, arrivals: &mut Vec<Arrival>) {
        if self.any.load(Ordering::Acquire) {
            let mut held = self.held();
            self.any.store(false, Ordering::Release);
            std::mem::swap(&mut held.arrivals, arrivals);
        }
    }

    /// The committer is about to sleep. Says whether it may: not if there is something.
    pub(super) fn leave_unattended(&self) -> bool {
        let mut held = self.held();
        held.unattended = held.arrivals.is_empty();
        held.unattended
    }

    /// The committer is awake.
    pub(super) fn attend(&self) {
        self.held().unattended = false;
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        self.held().closed = true;
    }
}
