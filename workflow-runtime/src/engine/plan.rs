//! The tasks beside the runs: schedules, queues, the sweep.
//!
//! Owns how they are rung and how they end with their engine. It knows nothing of what they do.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;

use crate::clock::Timestamp;
use crate::id_map::IdMap;
use crate::ids::RunId;

/// What the tasks beside the runs share with the engine.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) schedules: Arc<Bell>,
    pub(super) queues: Arc<Bell>,
    pub(super) successors: Arc<Bell>,
    /// Told when a run comes into memory.
    pub(super) arrivals: Arc<Arrivals>,
    /// The time of the newest arrival in a queue, in microseconds. The engine's, not the process's: another engine has
    /// another clock, and one that is ahead would move the arrivals of all others.
    newest: AtomicU64,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// Wakes one of the tasks. A ring while it works is not lost.
#[derive(Default)]
pub(super) struct Bell {
    notify: Notify,
    changed: AtomicBool,
    /// The task wants to know when runs leave the engine.
    awaits_runs: AtomicBool,
}

impl Bell {
    /// Tells the task that something was changed.
    pub(super) fn ring(&self) {
        self.changed.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Has the task look again at what it knows.
    pub(super) fn nudge(&self) {
        self.notify.notify_one();
    }

    /// Says whether something was changed since this was asked last.
    pub(super) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    /// Says whether the task is rung when a run leaves the engine.
    pub(super) fn await_runs(&self, awaits: bool) {
        self.awaits_runs.store(awaits, Ordering::Release);
    }

    /// Waits until there is a reason to look again, but not for longer than `nap`.
    pub(super) async fn wait(&self, nap: Duration) {
        let _ = tokio::time::timeout(nap, self.notify.notified()).await;
    }

    fn run_left(&self) {
        if self.awaits_runs.load(Ordering::Acquire) {
            self.nudge();
        }
    }
}

/// Who waits for which run to come into memory. Each is told of its own run only: there may be as many
/// as there are queued runs.
#[derive(Default)]
pub(super) struct Arrivals(Mutex<IdMap<RunId, Arc<Notify>>>);

/// Waits for a run to come into memory.
pub(super) struct Arrival {
    arrivals: Arc<Arrivals>,
    run: RunId,
    notify: Arc<Notify>,
}

impl Arrivals {
    fn waiting(&self) -> MutexGuard<'_, IdMap<RunId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enlists for a run; one that comes from now on is not missed.
    pub(super) fn of(self: &Arc<Self>, run: RunId) -> Arrival {
        let notify = self.waiting().entry(run).or_default().clone();
        Arrival {
            arrivals: self.clone(),
            run,
            notify,
        }
    }

    /// A run has come into memory.
    pub(super) fn tell(&self, run: RunId) {
        if let Some(notify) = self.waiting().get(&run) {
            notify.notify_waiters();
        }
    }

    fn tell_all(&self) {
        self.waiting().values().for_each(|n| n.notify_waiters());
    }
}

impl Arrival {
    /// The future of being told; to be enabled before looking.
    pub(super) fn told(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut waiting = self.arrivals.waiting();
        // The list's own and this one: nobody else waits.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.run);
        }
    }
}

impl Plan {
    /// Starts a task that ends with the engine.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(handle);
    }

    /// Gives an arrival in a queue its time: no two have the same, so that their order is kept.
    pub(super) fn arrived(&self, now: Timestamp) -> Timestamp {
        let now = now.as_micros();
        let newer = |newest: u64| Some(now.max(newest + 1));
        let before = self
            .newest
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, newer);
        Timestamp::from_micros(now.max(before.unwrap_or_default() + 1))
    }

    /// A run has left the engine.
    pub(super) fn run_left(&self) {
        self.schedules.run_left();
        self.queues.run_left();
        self.successors.run_left();
    }

    /// Ends all tasks. What they were writing is there or is not: the next engine goes on from that.
    pub(super) fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(AbortHandle::abort);
        self.arrivals.tell_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_in_one_engine_are_told_apart_and_those_of_another_do_not_move_them() {
        let at = Timestamp::from_micros;
        let (plan, ahead) = (Plan::default(), Plan::default());
        assert_eq!(ahead.arrived(at(9_000)), at(9_000));
        assert_eq!(plan.arrived(at(5)), at(5));
        assert_eq!(plan.arrived(at(5)), at(6), "the same moment");
        assert_eq!(plan.arrived(at(2)), at(7), "the clock was turned back");
        assert_eq!(plan.arrived(at(50)), at(50));
    }
}
