//! Who polls a call, and is woken for it: the workflow itself, or something inside it that has wakers of its own.
//!
//! Owns the difference. Nearly every call is polled with the workflow's own waker, which the run has: to keep a copy of it for every
//! step would count it up and down for nothing. Never decides when anybody is woken.

use std::task::Waker;

use crate::engine::signal::wake_by_engine;

/// Who polled a call last.
#[derive(Debug)]
pub(super) enum Caller {
    /// The workflow itself.
    Workflow,
    /// Something inside it (a `FuturesUnordered`, say).
    Inner(Waker),
}

impl Caller {
    /// Whom a waker is for. The workflow's own one is given, to be known among others.
    pub(super) fn of(waker: &Waker, workflow: &Waker) -> Self {
        match waker.will_wake(workflow) {
            true => Self::Workflow,
            false => Self::Inner(waker.clone()),
        }
    }

    /// The call is polled again, perhaps by somebody else.
    pub(super) fn follow(&mut self, waker: &Waker, workflow: &Waker) {
        match self {
            Self::Inner(known) if known.will_wake(waker) => {}
            _ => *self = Self::of(waker, workflow),
        }
    }

    /// Whom to wake, once no lock is held any more.
    pub(super) fn woken(&self) -> Woken {
        match self {
            Self::Workflow => Woken::Workflow,
            Self::Inner(waker) => Woken::Inner(waker.clone()),
        }
    }

    /// Its waker, for whoever does not drive the run.
    pub(super) fn waker(&self, workflow: &Waker) -> Waker {
        match self {
            Self::Workflow => workflow.clone(),
            Self::Inner(waker) => waker.clone(),
        }
    }
}

/// Who is to be woken for a delivery.
#[must_use]
pub(crate) enum Woken {
    /// The workflow itself.
    Workflow,
    /// Something inside it that has wakers of its own.
    Inner(Waker),
}

impl Woken {
    /// Wakes what is inside the workflow, in the engine's name, and says whether the workflow itself is to be polled.
    pub(crate) fn wake(self) -> bool {
        match self {
            Self::Workflow => true,
            Self::Inner(waker) => {
                wake_by_engine(&waker);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
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
    fn a_call_wakes_whoever_polled_it_last() {
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let [workflow, first, second] = wakes.each_ref().map(|one| Waker::from(one.clone()));
        let woken = |caller: &Caller| {
            caller.waker(&workflow).wake();
            wakes.each_ref().map(|one| one.0.swap(0, Ordering::SeqCst))
        };
        let mut caller = Caller::of(&workflow, &workflow);
        assert!(matches!(caller, Caller::Workflow), "no copy of it is kept");
        assert_eq!(woken(&caller), [1, 0, 0]);
        for (waker, expected) in [
            (&first, [0, 1, 0]),
            (&first, [0, 1, 0]),
            (&second, [0, 0, 1]),
            (&workflow, [1, 0, 0]),
            (&second, [0, 0, 1]),
        ] {
            caller.follow(waker, &workflow);
            assert_eq!(woken(&caller), expected);
        }
    }
}
