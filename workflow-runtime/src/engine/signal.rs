//! Who woke the run: the wakers of a run and of the bodies inside it.
//!
//! Owns the difference between a wake-up of the engine's own (an outcome, a timer, a step body that
//! can go on), one that the workflow's code raised while it was polled (`FuturesUnordered` does
//! that) and a foreign one (the workflow waits on something that is not journaled). A foreign
//! one means that replay cannot repeat what happens now, so it is reported by name.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

thread_local! {
    /// Set while the engine itself wakes somebody on this thread.
    static BY_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Wakes a waker in the engine's name.
pub(crate) fn wake_by_engine(waker: &Waker) {
    let before = BY_ENGINE.replace(true);
    waker.wake_by_ref();
    BY_ENGINE.set(before);
}

/// The waker that a workflow is polled with.
#[derive(Default)]
pub(crate) struct RunSignal {
    /// The task that drives the run.
    task: Mutex<Option<Waker>>,
    /// The workflow wants to be polled.
    woken: AtomicBool,
    /// The workflow is being polled.
    polling: AtomicBool,
    /// Something that is not the engine woke it.
    foreign: AtomicBool,
}

impl RunSignal {
    pub(crate) fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *task {
            Some(known) => known.clone_from(waker),
            None => *task = Some(waker.clone()),
        }
    }

    pub(crate) fn take_woken(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn take_foreign(&self) -> bool {
        self.foreign.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_polling(&self, polling: bool) {
        self.polling.store(polling, Ordering::Release);
    }

    /// Has the driver look again, without polling the workflow.
    pub(crate) fn nudge(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = &*task {
            waker.wake_by_ref();
        }
    }
}

impl Wake for RunSignal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let polling = self.polling.load(Ordering::Acquire);
        if !polling && !BY_ENGINE.get() {
            self.foreign.store(true, Ordering::Release);
        }
        let was_woken = self.woken.swap(true, Ordering::AcqRel);
        if !was_woken {
            self.nudge();
        }
    }
}

/// The waker that a step's body, or a timer, is given: it passes the wake-up on to whoever
/// polls the call (a `FuturesUnordered`, say), in the engine's name.
pub(crate) struct CallWaker {
    outer: Mutex<Waker>,
}

impl CallWaker {
    pub(crate) fn new(outer: &Waker) -> Arc<Self> {
        Arc::new(Self {
            outer: Mutex::new(outer.clone()),
        })
    }

    /// Follows the call to whoever polls it now.
    pub(crate) fn follow(&self, outer: &Waker) {
        self.outer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(outer);
    }
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let outer = self
            .outer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        wake_by_engine(&outer);
    }
}
