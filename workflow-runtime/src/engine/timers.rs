//! Deadlines: one list of wake-ups for the whole engine.
//!
//! Owns which waker is due when, and the task that wakes them. It keeps time by the wall clock
//! alone and looks again at least once a second, so that a changed clock is noticed. It never
//! writes to a journal: whether a timer has fired is decided by the run that set it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use super::signal::wake_by_engine;
use crate::clock::{Clock, Timestamp};

/// How long the list may go unlooked at: a clock that was set forward is noticed after this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// All pending deadlines of an engine.
pub(crate) struct Timers {
    clock: Clock,
    pending: Mutex<Pending>,
    earlier: Notify,
}

#[derive(Default)]
struct Pending {
    by_deadline: BTreeMap<(Timestamp, u64), Waker>,
    next: u64,
}

/// One pending deadline; dropping it cancels it.
pub(crate) struct Deadline {
    timers: Arc<Timers>,
    key: (Timestamp, u64),
}

impl Timers {
    /// Makes the list and starts the task that serves it. The task ends with the list.
    pub(crate) fn start(clock: Clock) -> Arc<Self> {
        let timers = Arc::new(Self {
            clock,
            pending: Mutex::default(),
            earlier: Notify::new(),
        });
        tokio::spawn(serve(Arc::downgrade(&timers)));
        timers
    }

    /// Wakes `waker` when the wall clock has reached `at`.
    pub(crate) fn wake_at(self: &Arc<Self>, at: Timestamp, waker: Waker) -> Deadline {
        let (key, is_first) = {
            let mut pending = self.pending();
            let key = (at, pending.next);
            pending.next += 1;
            let is_first = pending
                .by_deadline
                .first_key_value()
                .is_none_or(|(first, _)| key < *first);
            pending.by_deadline.insert(key, waker);
            (key, is_first)
        };
        if is_first {
            self.earlier.notify_one();
        }
        Deadline {
            timers: self.clone(),
            key,
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is due, and says when the next one is.
    fn take_due(&self, now: Timestamp) -> (Vec<Waker>, Option<Timestamp>) {
        let mut pending = self.pending();
        let mut due = Vec::new();
        while let Some(entry) = pending.by_deadline.first_entry() {
            if entry.key().0 > now {
                return (due, Some(entry.key().0));
            }
            due.push(entry.remove());
        }
        (due, None)
    }
}

impl Deadline {
    pub(crate) fn at(&self) -> Timestamp {
        self.key.0
    }

    /// Says whether its time has come.
    pub(crate) fn is_over(&self) -> bool {
        self.at() <= self.timers.clock.now()
    }

    /// Puts the deadline back if it was taken as due and the clock was set back since:
    /// every pending timer has a wake-up.
    pub(crate) fn rearm(&self, waker: &Waker) {
        let mut pending = self.timers.pending();
        if let Entry::Vacant(taken) = pending.by_deadline.entry(self.key) {
            taken.insert(waker.clone());
            drop(pending);
            // Whoever took it may be about to nap for as long as it likes: nobody else was waiting.
            self.timers.earlier.notify_one();
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.timers.pending().by_deadline.remove(&self.key);
    }
}

async fn serve(timers: Weak<Timers>) {
    loop {
        let Some(alive) = timers.upgrade() else {
            return;
        };
        let (due, next) = alive.take_due(alive.clock.now());
        due.iter().for_each(wake_by_engine);
        let longest = alive.clock.nap(LONGEST_NAP);
        let nap = next.map_or(longest, |at| at.since(alive.clock.now()).min(longest));
        // Waiting keeps the list alive for one nap at most; then a dropped engine is noticed.
        let _ = tokio::time::timeout(alive.clock.pace(nap), alive.earlier.notified()).await;
    }
}
