//! Who woke the run: the wakers of a run and of the bodies inside it.
//!
//! Owns the difference between a wake-up of the engine's own (an outcome, a timer, a step body that
//! can go on), one that the workflow's code raised while it was polled (`FuturesUnordered` does
//! that) and a foreign one (the workflow waits on something that is not journaled). A foreign
//! one means that replay cannot repeat what happens now, so it is reported by name.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use crate::clock::{Timestamp, wall_clock};

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
    /// The driver is at work and will look at `woken` before it rests: to wake its task as well
    /// would have it polled once more for nothing.
    driving: AtomicBool,
    /// Something that is not the engine woke it.
    foreign: AtomicBool,
    /// A letter has come.
    mail: AtomicBool,
    /// Bodies that were woken and not polled since.
    unpolled: AtomicUsize,
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
        self.woken.load(Ordering::SeqCst) && self.woken.swap(false, Ordering::SeqCst)
    }

    /// Says whether the workflow wants to be polled. By its driver.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// The driver begins to work. Whoever sees that too late wakes the task for nothing, so it needs no fence.
    pub(crate) fn begin_driving(&self) {
        self.driving.store(true, Ordering::Release);
    }

    /// The driver is about to rest. `false`: somebody woke the workflow meanwhile, so it may not.
    pub(crate) fn may_rest(&self) -> bool {
        self.driving.store(false, Ordering::SeqCst);
        // Whoever sets `woken` after this sees that nobody drives; whoever did before is seen.
        if !self.woken.load(Ordering::SeqCst) {
            return true;
        }
        self.driving.store(true, Ordering::SeqCst);
        false
    }

    pub(crate) fn take_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire) && self.foreign.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_polling(&self, polling: bool) {
        self.polling.store(polling, Ordering::Release);
    }

    /// Says whether a body was woken and not polled since: the workflow may be holding its call
    /// without polling it.
    pub(crate) fn has_unpolled(&self) -> bool {
        self.unpolled.load(Ordering::Acquire) > 0
    }

    /// A letter has come: the driver looks for it.
    pub(crate) fn mail_arrived(&self) {
        self.mail.store(true, Ordering::Release);
        self.nudge();
    }

    /// Says whether a letter has come since this was last asked.
    pub(crate) fn take_mail(&self) -> bool {
        self.mail.load(Ordering::Relaxed) && self.mail.swap(false, Ordering::AcqRel)
    }

    /// Says whether a letter has come that the driver has not looked for.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Acquire)
    }

    /// Says whether the workflow is being polled now.
    pub(crate) fn is_polling(&self) -> bool {
        self.polling.load(Ordering::Acquire)
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
        let was_woken = self.woken.swap(true, Ordering::SeqCst);
        if !was_woken && !self.driving.load(Ordering::SeqCst) {
            self.nudge();
        }
    }
}

/// The waker that a step's body, or a timer, is given: it passes the wake-up on to whoever
/// polls the call (a `FuturesUnordered`, say), in the engine's name.
pub(crate) struct CallWaker {
    outer: Mutex<Waker>,
    /// The run that is told of bodies that stay unpolled.
    run: Option<Arc<RunSignal>>,
    /// When it was woken and not polled since, in microseconds; 0 if it was polled.
    woken_at: AtomicU64,
}

impl CallWaker {
    /// Makes the waker of a timer.
    pub(crate) fn new(outer: &Waker) -> Arc<Self> {
        Arc::new(Self {
            outer: Mutex::new(outer.clone()),
            run: None,
            woken_at: AtomicU64::new(0),
        })
    }

    /// Makes the waker of a body.
    fn of_body(outer: &Waker, run: &Arc<RunSignal>) -> Arc<Self> {
        Arc::new(Self {
            outer: Mutex::new(outer.clone()),
            run: Some(run.clone()),
            woken_at: AtomicU64::new(0),
        })
    }

    /// The call is polled: follows it to whoever polls it now.
    pub(crate) fn follow(&self, outer: &Waker) {
        self.polled();
        self.outer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(outer);
    }

    /// Since when it was woken and not polled, if it was.
    pub(crate) fn unpolled_since(&self) -> Option<Timestamp> {
        match self.woken_at.load(Ordering::Acquire) {
            0 => None,
            micros => Some(Timestamp::from_micros(micros)),
        }
    }

    fn woken(&self) {
        if let Some(run) = &self.run {
            let now = wall_clock().as_micros().max(1);
            let before =
                self.woken_at
                    .compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
            if before.is_ok() {
                run.unpolled.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    fn polled(&self) {
        if let Some(run) = &self.run
            && self.woken_at.load(Ordering::Acquire) != 0
            && self.woken_at.swap(0, Ordering::AcqRel) != 0
        {
            run.unpolled.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The waker that a body is given, and what it is to the engine.
///
/// A body that is over with its first poll has hardly ever kept a copy: the run gives its waker to the next one.
pub(crate) struct BodyWaker {
    call: Arc<CallWaker>,
    waker: Waker,
}

impl BodyWaker {
    pub(crate) fn new(outer: &Waker, run: &Arc<RunSignal>) -> Self {
        let call = CallWaker::of_body(outer, run);
        Self {
            waker: Waker::from(call.clone()),
            call,
        }
    }

    pub(crate) fn call(&self) -> &Arc<CallWaker> {
        &self.call
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Says whether it is as it was made: nobody has a copy of it, and nobody used one.
    pub(crate) fn is_as_new(&self) -> bool {
        // Copies are made of copies: if there are none but these two, there will be none.
        let is_alone = Arc::strong_count(&self.call) == 2;
        // What the last of them did before it was dropped is seen.
        fence(Ordering::Acquire);
        is_alone && self.call.unpolled_since().is_none()
    }
}

impl Drop for CallWaker {
    fn drop(&mut self) {
        self.polled();
    }
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken();
        let outer = self
            .outer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        wake_by_engine(&outer);
    }
}
