//! Acknowledgements: how whoever appends learns that it is durable, without an allocation for every append.
//!
//! Owns a place for one answer, that is used again for the next, and the promise that there is an answer.
//! Never decides what it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{StoreError, StoreResult};

/// Where a store says how an append went: see [`Store::append_into`](super::Store::append_into).
///
/// It is for one append at a time. Once its answer was taken, it is free for the next one.
#[derive(Debug, Default)]
pub struct AckSlot(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    answer: Option<StoreResult<()>>,
    waker: Option<Waker>,
}

impl AckSlot {
    /// Takes the answer if it is there; if not, the task is woken when it is.
    ///
    /// # Errors
    ///
    /// What kept the append from being made durable.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<StoreResult<()>> {
        let mut waiting = self.lock();
        if let Some(answer) = waiting.answer.take() {
            return Poll::Ready(answer);
        }
        match &mut waiting.waker {
            Some(known) => known.clone_from(cx.waker()),
            None => waiting.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let waker = {
            let mut waiting = slot.lock();
            waiting.answer = Some(answer);
            waiting.waker.take()
        };
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
