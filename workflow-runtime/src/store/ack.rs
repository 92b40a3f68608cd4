//! Acknowledgements: how whoever appends learns that it is durable, without an allocation for every append.
//!
//! Owns a place for one answer, that is used again for the next, and the promise that there is an answer.
//! Never decides what it is.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{StoreError, StoreResult};

/// There is no answer yet.
const OPEN: u8 = 0;
/// The append is durable.
const DURABLE: u8 = 1;
/// It is not; why is behind the lock.
const FAILED: u8 = 2;

/// Where a store says how an append went: see [`Store::append_into`](super::Store::append_into).
///
/// It is for one append at a time. Once its answer was taken, it is free for the next one.
#[derive(Debug, Default)]
pub struct AckSlot {
    /// Changed to an answer under the lock; taken back by whoever takes the answer.
    answer: AtomicU8,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Boxed: every run has a slot, and two threads fetch it from each other for every step.
    failure: Option<Box<StoreError>>,
    waker: Option<Waker>,
    /// The waker is for the answers after this one too.
    stays: bool,
}

impl AckSlot {
    /// Takes the answer if it is there; if not, the task is woken when it is.
    ///
    /// # Errors
    ///
    /// What kept the append from being made durable.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<StoreResult<()>> {
        self.wait(cx.waker(), false)
    }

    /// Takes the answer if it is there; if not, that waker is told when it is.
    fn wait(&self, waker: &Waker, stays: bool) -> Poll<StoreResult<()>> {
        if let Some(answer) = self.take() {
            return Poll::Ready(answer);
        }
        let mut waiting = self.lock();
        if self.answer.load(Ordering::Acquire) != OPEN {
            drop(waiting);
            return self.take().map_or(Poll::Pending, Poll::Ready);
        }
        match &mut waiting.waker {
            Some(known) => known.clone_from(waker),
            None => waiting.waker = Some(waker.clone()),
        }
        waiting.stays = stays;
        Poll::Pending
    }

    /// Takes the answer if it is there. Nobody else does.
    fn take(&self) -> Option<StoreResult<()>> {
        let answer = self.answer.load(Ordering::Acquire);
        if answer == OPEN {
            return None;
        }
        let failure = match answer {
            DURABLE => None,
            _ => self.lock().failure.take(),
        };
        self.answer.store(OPEN, Ordering::Release);
        Some(failure.map_or(Ok(()), |failure| Err(*failure)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot with the task that waits at it, append after append: neither takes a lock or counts anything as long as that is the
/// same task.
#[derive(Debug, Default)]
pub(crate) struct AckWaiter {
    slot: Arc<AckSlot>,
    /// Whom the slot tells.
    task: Option<Waker>,
}

impl AckWaiter {
    /// The slot, for a store to answer in.
    pub(crate) fn slot(&self) -> &Arc<AckSlot> {
        &self.slot
    }

    /// Takes the answer if it is there; if not, the task is woken when it is. Its waker must not poll this by itself.
    ///
    /// # Errors
    ///
    /// What kept the append from being made durable.
    pub(crate) fn poll(&mut self, cx: &Context<'_>) -> Poll<StoreResult<()>> {
        let task = self.task.as_ref();
        if task.is_some_and(|task| task.will_wake(cx.waker())) {
            return self.slot.take().map_or(Poll::Pending, Poll::Ready);
        }
        let polled = self.slot.wait(cx.waker(), true);
        if polled.is_pending() {
            self.task = Some(cx.waker().clone());
        }
        polled
    }
}

/// The store's end of an [`AckSlot`]: answers once, also if it is dropped.
#[derive(Debug)]
pub struct AckSender(Option<Arc<AckSlot>>);

impl AckSender {
    /// Promises an answer.
    pub fn new(slot: &Arc<AckSlot>) -> Self {
        Self(Some(Arc::clone(slot)))
    }

    /// Promises an answer, with a slot that nobody else needs here.
    pub(crate) fn owning(slot: Arc<AckSlot>) -> Self {
        Self(Some(slot))
    }

    /// Answers.
    pub fn send(mut self, answer: StoreResult<()>) {
        self.answer(answer);
    }

    fn answer(&mut self, answer: StoreResult<()>) {
        let Some(slot) = self.0.take() else {
            return;
        };
        let mut waiting = slot.lock();
        let answered = if answer.is_ok() { DURABLE } else { FAILED };
        waiting.failure = answer.err().map(Box::new);
        slot.answer.store(answered, Ordering::Release);
        if waiting.stays {
            // Whoever is woken finds the answer without the lock.
            waiting.waker.as_ref().inspect(|task| task.wake_by_ref());
            return;
        }
        let waker = waiting.waker.take();
        drop(waiting);
        // Let go before the other is woken: the slot is freed where it was made.
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for AckSender {
    fn drop(&mut self) {
        if self.0.is_some() {
            let reason = "its committer stopped in the middle of a commit".to_owned();
            self.answer(Err(StoreError::Stopped { reason }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_slot_serves_one_append_after_the_other() {
        let (slot, wakes) = (Arc::new(AckSlot::default()), Arc::new(Wakes::default()));
        let waker = Waker::from(wakes.clone());
        let cx = Context::from_waker(&waker);
        for n in 1..4 {
            let sender = AckSender::new(&slot);
            assert!(slot.poll(&cx).is_pending());
            assert!(slot.poll(&cx).is_pending());
            sender.send(Ok(()));
            assert_eq!(wakes.0.load(Ordering::SeqCst), n, "woken once each");
            assert!(matches!(slot.poll(&cx), Poll::Ready(Ok(()))));
        }
        assert!(slot.poll(&cx).is_pending(), "an answer is taken once");
    }

    #[test]
    fn an_answer_that_comes_first_is_kept_and_wakes_nobody() {
        let (slot, wakes) = (Arc::new(AckSlot::default()), Arc::new(Wakes::default()));
        let waker = Waker::from(wakes.clone());
        AckSender::new(&slot).send(Ok(()));
        let answer = slot.poll(&Context::from_waker(&waker));
        assert!(matches!(answer, Poll::Ready(Ok(()))));
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_task_that_waits_append_after_append_is_woken_for_each_and_then_another_one_is() {
        let tasks: [Arc<Wakes>; 2] = Default::default();
        let wakes = || tasks.each_ref().map(|task| task.0.load(Ordering::SeqCst));
        let mut waiter = AckWaiter::default();
        let mut expected = [0, 0];
        for who in [0, 0, 0, 1, 1, 0] {
            let waker = Waker::from(tasks[who].clone());
            let cx = Context::from_waker(&waker);
            let sender = AckSender::new(waiter.slot());
            assert!(waiter.poll(&cx).is_pending());
            assert!(waiter.poll(&cx).is_pending());
            sender.send(Ok(()));
            expected[who] += 1;
            assert_eq!(wakes(), expected, "whoever polled last, once");
            assert!(matches!(waiter.poll(&cx), Poll::Ready(Ok(()))));
            assert!(waiter.poll(&cx).is_pending(), "an answer is taken once");
        }
    }

    #[test]
    fn a_failure_is_heard_once_and_the_next_append_is_not_told_of_it() {
        let (mut waiter, cx) = (AckWaiter::default(), Context::from_waker(Waker::noop()));
        for known in [false, true] {
            if known {
                assert!(waiter.poll(&cx).is_pending());
            }
            drop(AckSender::new(waiter.slot()));
            let failed = waiter.poll(&cx);
            assert!(matches!(
                failed,
                Poll::Ready(Err(StoreError::Stopped { .. }))
            ));
            AckSender::new(waiter.slot()).send(Ok(()));
            assert!(matches!(waiter.poll(&cx), Poll::Ready(Ok(()))));
        }
    }

    #[test]
    fn a_sender_that_is_dropped_answers_that_the_store_stopped() {
        let slot = Arc::new(AckSlot::default());
        drop(AckSender::new(&slot));
        let answer = slot.poll(&Context::from_waker(Waker::noop()));
        assert!(matches!(
            answer,
            Poll::Ready(Err(StoreError::Stopped { .. }))
        ));
    }
}
