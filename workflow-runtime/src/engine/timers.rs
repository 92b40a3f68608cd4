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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Bell {
        fn rung(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn timers() -> (Clock, Arc<Timers>) {
        let clock = Clock::virtual_from(Timestamp::from_micros(1_000_000));
        (clock.clone(), Timers::start(clock))
    }

    fn bells() -> [(Arc<Bell>, Waker); 3] {
        std::array::from_fn(|_| {
            let bell = Arc::new(Bell::default());
            (bell.clone(), bell.into())
        })
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_several_deadlines_at_one_moment_is_woken_then_and_a_dropped_one_is_not() {
        let (clock, timers) = timers();
        let at = clock.now().after(MINUTE);
        let bells = bells();
        let mut deadlines = bells.each_ref().map(|(_, waker)| {
            let deadline = timers.wake_at(at, waker.clone());
            assert_eq!(deadline.at(), at);
            Some(deadline)
        });
        deadlines[1] = None;
        let rung = || bells.each_ref().map(|(bell, _)| bell.rung());
        clock.pass(MINUTE - Duration::from_millis(5)).await;
        assert_eq!(rung(), [0, 0, 0]);
        assert!(deadlines.iter().flatten().all(|one| !one.is_over()));
        clock.pass(Duration::from_millis(6)).await;
        assert_eq!(rung(), [1, 0, 1]);
        assert!(deadlines.iter().flatten().all(Deadline::is_over));
        clock.pass(MINUTE).await;
        assert_eq!(rung(), [1, 0, 1], "each once");
        drop(deadlines);
        assert!(timers.pending().by_deadline.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_before_all_others_is_woken_in_time() {
        let (clock, timers) = timers();
        let [(late, late_waker), (early, early_waker), _] = bells();
        let _late = timers.wake_at(clock.now().after(MINUTE), late_waker);
        clock.pass(MINUTE / 4).await; // it naps until the late one is due
        let _early = timers.wake_at(clock.now().after(MINUTE / 4), early_waker);
        clock.pass(MINUTE / 4 + Duration::from_millis(1)).await;
        assert_eq!((early.rung(), late.rung()), (1, 0));
        clock.pass(MINUTE / 2).await;
        assert_eq!((early.rung(), late.rung()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_due_at_its_moment_and_what_is_left_says_when() {
        let clock = Clock::virtual_from(Timestamp::from_micros(1_000_000));
        let timers = Arc::new(Timers {
            clock: clock.clone(),
            pending: Mutex::default(),
            earlier: Notify::new(),
        });
        let [(_, waker), ..] = bells();
        let moment = |micros: u64| Timestamp::from_micros(1_000_000 + micros);
        let deadlines = [7, 3, 5].map(|micros| timers.wake_at(moment(micros), waker.clone()));
        let due = |micros| {
            let (due, next) = timers.take_due(moment(micros));
            (due.len(), next)
        };
        assert_eq!(due(2), (0, Some(moment(3))));
        assert_eq!(due(3), (1, Some(moment(5))));
        assert_eq!(due(9), (2, None));
        assert_eq!(due(9), (0, None));
        assert!(!deadlines[1].is_over());
        clock.turn(3);
        assert_eq!(
            deadlines.each_ref().map(Deadline::is_over),
            [false, true, false]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_that_was_taken_before_the_clock_was_set_back_is_woken_again() {
        let (clock, timers) = timers();
        let [(bell, waker), ..] = bells();
        let deadline = timers.wake_at(clock.now().after(MINUTE), waker.clone());
        deadline.rearm(&waker);
        assert_eq!(timers.pending().by_deadline.len(), 1, "it was in line");
        clock.pass(MINUTE + Duration::from_millis(1)).await;
        assert_eq!(bell.rung(), 1);
        clock.turn(-60_000_000);
        assert!(!deadline.is_over());
        deadline.rearm(&waker);
        clock.pass(MINUTE / 2).await;
        assert_eq!(bell.rung(), 1, "not before its time");
        clock.pass(MINUTE / 2 + Duration::from_millis(1)).await;
        assert_eq!(bell.rung(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_ends_with_the_list() {
        let (clock, timers) = timers();
        let [(bell, waker), ..] = bells();
        let deadline = timers.wake_at(clock.now().after(MINUTE), waker);
        let list = Arc::downgrade(&timers);
        drop((timers, deadline));
        clock.pass(2 * MINUTE).await;
        assert_eq!((list.strong_count(), bell.rung()), (0, 0));
    }
}
