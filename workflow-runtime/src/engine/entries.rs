//! The runs that an engine has in memory: how each is reached, and how it leaves.
//!
//! Owns the entry of a run (its progress, its core, its task) and the table of them. It never drives a run and never
//! reads the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

use super::core::{Phase, RunCore};
use super::progress::{Progress, Tracker};
use super::{EngineError, Shared, waking};
use crate::clock::Timestamp;
use crate::id_map::IdMap;
use crate::ids::RunId;

/// A run that this engine has in memory.
pub(crate) struct RunEntry {
    pub(super) progress: Tracker,
    /// A letter has come that its driver has not been told of.
    pub(super) mail: AtomicBool,
    /// Somebody else has taken the run over: what becomes of this task says nothing about it.
    pub(super) superseded: AtomicBool,
    /// The run is to be parked as soon as nothing of it is in flight.
    pub(super) pausing: AtomicBool,
    pub(super) core: Mutex<Option<Arc<RunCore>>>,
    pub(super) task: Mutex<Option<AbortHandle>>,
}

impl RunEntry {
    pub(super) fn new(progress: Progress) -> Arc<Self> {
        Arc::new(Self {
            progress: Tracker::new(progress),
            mail: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            pausing: AtomicBool::new(false),
            core: Mutex::new(None),
            task: Mutex::new(None),
        })
    }

    pub(super) fn set_core(&self, core: Arc<RunCore>) {
        let mut slot = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mail.swap(false, Ordering::AcqRel) {
            core.signal.mail_arrived(); // it may have come after the mailbox was read
        }
        if self.pausing.load(Ordering::Acquire) {
            core.set_phase(Phase::Pausing);
        }
        *slot = Some(core);
    }

    pub(super) fn core(&self) -> Option<Arc<RunCore>> {
        self.core
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Has the driver look into the mailbox, now or when there is one.
    pub(super) fn mail_arrived(&self) {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        match &*core {
            Some(core) => core.signal.mail_arrived(),
            None => self.mail.store(true, Ordering::Release),
        }
    }

    pub(super) fn set_task(&self, task: AbortHandle) {
        let mut slot = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have come to stop it before it was here; a start is let finish.
        let creating = |p: &Progress| matches!(p, Progress::Creating);
        if self.superseded.load(Ordering::Acquire) && !self.progress.is(creating) {
            task.abort();
        }
        *slot = Some(task);
    }

    /// Has the run parked once what it began has finished. `false`: none of its code runs yet, and
    /// none will.
    pub(super) fn begin_pausing(&self) -> bool {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.pausing.store(true, Ordering::Release);
        if let Some(core) = &*core {
            core.set_phase(Phase::Pausing);
            core.signal.nudge();
        }
        core.is_some()
    }

    pub(super) fn is_pausing(&self) -> bool {
        self.pausing.load(Ordering::Acquire)
    }

    /// Has the run finish what it began and begin nothing more.
    pub(super) fn begin_closing(&self) {
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(core) = &*core {
            core.set_phase(Phase::Closing);
            core.signal.nudge();
        }
    }

    pub(super) fn abort(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = &*task {
            task.abort();
        }
    }
}

impl Shared {
    pub(super) fn runs(&self) -> MutexGuard<'_, IdMap<RunId, Arc<RunEntry>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn entry(&self, run: RunId) -> Option<Arc<RunEntry>> {
        self.runs().get(&run).cloned()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Takes a run out of memory and tells whoever waits for it.
    pub(super) fn leave(&self, run: RunId, entry: &Arc<RunEntry>, mut progress: Progress) {
        if let Progress::Stopped(why) = &mut progress
            && matches!(**why, EngineError::Stopped(_))
            && self.store_failure().is_some()
        {
            **why = self.refusal("its task was stopped"); // whoever waits hears of the cause
        }
        {
            let mut runs = self.runs();
            if runs
                .get(&run)
                .is_some_and(|known| Arc::ptr_eq(known, entry))
            {
                runs.remove(&run);
            }
        }
        *entry.core.lock().unwrap_or_else(PoisonError::into_inner) = None;
        entry
            .progress
            .set(match entry.superseded.load(Ordering::Acquire) {
                true => Progress::NotCreated,
                false => progress,
            });
        self.left.notify_waiters();
        self.plan.run_left();
    }

    /// Takes a run out of memory that sleeps from now on. Whoever waits for it goes on waiting.
    pub(super) fn leave_asleep(
        self: &Arc<Self>,
        run: RunId,
        entry: &Arc<RunEntry>,
        wake_at: Option<Timestamp>,
    ) {
        let core = entry
            .core
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mail = core.is_some_and(|core| core.signal.take_mail());
        let mut runs = self.runs();
        // Under the lock: whoever takes the run over says so there.
        if entry.superseded.load(Ordering::Acquire) || self.is_closing() {
            drop(runs);
            self.leave(
                run,
                entry,
                Progress::Stopped(Box::new(self.refusal("the engine was shut down"))),
            );
            return;
        }
        *entry.task.lock().unwrap_or_else(PoisonError::into_inner) = None;
        entry.pausing.store(false, Ordering::Release); // whoever pauses it looks again
        if runs
            .get(&run)
            .is_some_and(|known| Arc::ptr_eq(known, entry))
        {
            runs.remove(&run);
        }
        self.sleepers.keep(run, entry);
        let missed_mail = entry.mail.swap(false, Ordering::AcqRel) || mail;
        drop(runs);
        if let Some(at) = wake_at {
            self.sleepers.add(at, run);
        }
        self.left.notify_waiters();
        if missed_mail {
            waking::mail_arrived(self, run);
        }
    }

    /// Stops every task at once.
    pub(super) fn stop_all(&self, why: &EngineError) {
        self.closing.store(true, Ordering::Release);
        self.plan.stop();
        self.relays.stop();
        let mut entries: Vec<_> = self.runs().drain().map(|(_, entry)| entry).collect();
        entries.extend(self.sleepers.take_awaited());
        for entry in entries {
            entry.abort();
            entry.progress.set(Progress::Stopped(Box::new(why.clone())));
        }
        self.left.notify_waiters();
    }
}
