//! A step's body: its arguments, and one attempt while it runs.
//!
//! Owns the erased body and the polling of an attempt: its context, its waker, its deadline, its
//! panics. What an ended attempt means is judged in `outcome`.

use std::future::Future;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::args::{NamedStepArgs, OrderedStepArgs, StepArgs};
use super::attempt::Attempt;
use super::outcome::{AttemptEnd, panic_message};
use crate::clock::Timestamp;
use crate::context::{StepContext, lend};
use crate::digest::{DigestError, InputDigest, digest};
use crate::engine::outbox::Pushed;
use crate::engine::resources::MissingResource;
use crate::engine::signal::BodyWaker;
use crate::engine::timers::Deadline;
use crate::payload::Payloads;

pub(super) type BodyFuture<'step, R> = Pin<Box<dyn Future<Output = R> + Send + 'step>>;

/// A step's arguments and body, without their types.
pub(super) trait Body<'step, R>: Send {
    fn digest(&self) -> Result<InputDigest, DigestError>;
    fn encode_input(&self, payloads: &Payloads, limit: usize) -> Option<Bytes>;
    /// The same for a moment only: nothing is allocated for it.
    fn show_input(&self, payloads: &Payloads, limit: usize, read: &mut dyn FnMut(Option<&[u8]>));
    fn attempt(&self, attempt: &Attempt) -> Result<BodyFuture<'step, R>, MissingResource>;
}

pub(super) struct TypedBody<A, F, Fut> {
    pub(super) names: &'static [&'static str],
    pub(super) args: A,
    pub(super) body: F,
    pub(super) _future: PhantomData<fn() -> Fut>,
}

impl<'step, R, A, F, Fut> Body<'step, R> for TypedBody<A, F, Fut>
where
    A: StepArgs,
    F: Fn(&Attempt, A) -> Result<Fut, MissingResource> + Send,
    Fut: Future<Output = R> + Send + 'step,
{
    fn digest(&self) -> Result<InputDigest, DigestError> {
        digest(&OrderedStepArgs(&self.args))
    }

    fn encode_input(&self, payloads: &Payloads, limit: usize) -> Option<Bytes> {
        payloads.encode_if_small(&NamedStepArgs(self.names, &self.args), limit)
    }

    fn show_input(&self, payloads: &Payloads, limit: usize, read: &mut dyn FnMut(Option<&[u8]>)) {
        payloads.with_encoded_if_small(&NamedStepArgs(self.names, &self.args), limit, read);
    }

    fn attempt(&self, attempt: &Attempt) -> Result<BodyFuture<'step, R>, MissingResource> {
        let future = (self.body)(attempt, self.args.clone())?;
        Ok(Box::pin(future))
    }
}

/// One attempt while it runs.
pub(super) struct Running<'step, R> {
    pub(super) future: BodyFuture<'step, R>,
    /// What a test has it wait for first.
    #[cfg(feature = "testing")]
    pub(super) delay: crate::testing::Delay,
    pub(super) waker: BodyWaker,
    pub(super) deadline: Option<Deadline>,
    pub(super) timed_out: bool,
    pub(super) began_at: Timestamp,
    pub(super) span: tracing::Span,
    /// Dropped after the body: only then it has ended.
    pub(super) counted: Counted,
}

/// An attempt whose body was counted when it began; the run is told when it ends, however it does.
pub(super) struct Counted {
    pub(super) attempt: Attempt,
    /// The run was told.
    told: bool,
}

impl Counted {
    pub(super) fn new(attempt: Attempt) -> Self {
        Self {
            attempt,
            told: false,
        }
    }

    fn context(&self) -> &Arc<StepContext> {
        self.attempt.context()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let context = self.context();
        if let Some(run) = context.run() {
            run.end_body(context.call);
        }
    }
}

/// A body that is over and gone, which its run is to be told.
pub(super) struct Over {
    counted: Counted,
    waker: BodyWaker,
}

impl Over {
    /// Leaves it to the caller to tell the run, and returns the body's waker.
    pub(super) fn into_waker(mut self) -> BodyWaker {
        self.counted.told = true;
        self.waker
    }
}

impl<R> Running<'_, R> {
    /// Drops the body, which is over.
    pub(super) fn over(self) -> Over {
        let Self {
            future,
            waker,
            counted,
            ..
        } = self;
        drop(future);
        Over { counted, waker }
    }

    /// Takes the messages that the body has pushed.
    pub(super) fn take_pushed(&self) -> Vec<Pushed> {
        self.counted.context().pushed.take()
    }

    /// Polls the body. A body that is ready beats its deadline; a blocking one that is past its
    /// deadline is waited for, because it cannot be stopped.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AttemptEnd<R>> {
        self.waker.call().follow(cx.waker());
        self.begin()
    }

    /// The same for the first time, by whoever made its waker.
    pub(super) fn begin(&mut self) -> Poll<AttemptEnd<R>> {
        let waker = self.waker.waker();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _entered = lend(&mut self.counted.attempt.ambient);
            let _span = self.span.enter();
            #[cfg(feature = "testing")]
            if self.delay.poll(waker).is_pending() {
                return Poll::Pending;
            }
            self.future.as_mut().poll(&mut Context::from_waker(waker))
        }));
        let end = match polled {
            Ok(Poll::Ready(_)) | Err(_) if self.timed_out => AttemptEnd::TimedOut,
            Ok(Poll::Ready(value)) => AttemptEnd::Value {
                value,
                already_done: self.counted.context().already_done.load(Ordering::Acquire),
            },
            Err(panic) => {
                cold_path();
                AttemptEnd::Panicked {
                    message: panic_message(panic.as_ref()),
                    misuse: self.counted.context().misused.load(Ordering::Acquire),
                }
            }
            Ok(Poll::Pending) => {
                let Some(deadline) = &self.deadline else {
                    return Poll::Pending;
                };
                if !deadline.is_over() {
                    deadline.rearm(waker);
                    return Poll::Pending;
                }
                self.timed_out = true;
                if self.counted.context().blocking.load(Ordering::Acquire) > 0 {
                    return Poll::Pending;
                }
                AttemptEnd::TimedOut
            }
        };
        Poll::Ready(end)
    }
}
