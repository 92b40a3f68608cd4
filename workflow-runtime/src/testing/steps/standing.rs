//! What stands in for bodies: the test's closures without their types.
//!
//! Owns the way from a recorded payload to a closure's argument and from what it returns to what the step does.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;

use crate::call::outcome::panic_message;
use crate::engine::tested::{PlannedAttempt, StandIn};
use crate::payload::{PayloadError, Payloads};

/// What a step returns that can fail.
#[diagnostic::on_unimplemented(
    message = "a step that returns `{Self}` cannot be made to fail: it returns no `Result`",
    label = "not a `Result`",
    note = "have it panic with `panic_in`, or take longer than its `timeout` with `delay`"
)]
pub trait Fallible {
    /// What failure gives.
    type Error;

    #[doc(hidden)]
    fn failed(error: Self::Error) -> Self;
}

impl<T, E> Fallible for Result<T, E> {
    type Error = E;

    fn failed(error: E) -> Self {
        Err(error)
    }
}

/// A closure that returns a future, in place of a step's body.
pub trait AsyncAnswer<A, R>: Fn(A) -> Self::Answering + Send + Sync {
    /// The future.
    type Answering: Future<Output = R> + Send;
}

impl<A, R, F, Answering> AsyncAnswer<A, R> for F
where
    F: Fn(A) -> Answering + Send + Sync,
    Answering: Future<Output = R> + Send,
{
    type Answering = Answering;
}

/// What a step returns, boxed.
pub(super) type Returned = Box<dyn Any + Send>;

/// A stub of one step.
#[derive(Clone)]
pub(super) struct Stub {
    pub(super) answer: Arc<Answer>,
    /// The type that the closure takes.
    pub(super) takes: &'static str,
}

type Answer = dyn Fn(&PlannedAttempt, &Payloads) -> Result<Answering, PayloadError> + Send + Sync;

type Answering = std::pin::Pin<Box<dyn Future<Output = Returned> + Send>>;

impl Stub {
    pub(super) fn new<A, R>(answer: impl Fn(A) -> R + Send + Sync + 'static) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Send + 'static,
    {
        let answer = Arc::new(answer);
        Self::of(move |input| {
            let answer = answer.clone();
            // Called when it is polled, where it finds the step's metadata.
            Box::pin(async move { Box::new(answer(input)) as Returned })
        })
    }

    pub(super) fn new_async<A, R>(answer: impl AsyncAnswer<A, R> + 'static) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Send + 'static,
    {
        let answer = Arc::new(answer);
        Self::of(move |input| {
            let answer = answer.clone();
            Box::pin(async move {
                let answering = answer(input);
                Box::new(answering.await) as Returned
            })
        })
    }

    fn of<A: DeserializeOwned>(answer: impl Fn(A) -> Answering + Send + Sync + 'static) -> Self {
        Self {
            answer: Arc::new(move |attempt, payloads| arguments(attempt, payloads).map(&answer)),
            takes: std::any::type_name::<A>(),
        }
    }
}

/// Reads the arguments of an attempt: nothing, the only one, or a tuple of all.
pub(super) fn arguments<A: DeserializeOwned>(
    attempt: &PlannedAttempt,
    payloads: &Payloads,
) -> Result<A, PayloadError> {
    match &attempt.input {
        Some(input) => payloads.decode_arguments(attempt.definition.args, input),
        None => Err(PayloadError::Serialize(
            "they have no payload: see `payload_limit`".into(),
        )),
    }
}

/// Has a stub's panic come out as what is wrong with the stub.
pub(super) fn guarded(mut answering: Answering) -> StandIn {
    Box::pin(std::future::poll_fn(move |cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic_message(panic.as_ref()))),
        }
    }))
}

/// How attempts of a step are made to fail.
pub(super) enum Failing {
    /// So many of them.
    Times(u32, Arc<Make>),
    /// Those that this says.
    As(Arc<Ask>),
}

type Make = dyn Fn() -> Returned + Send + Sync;
type Ask = dyn Fn(u32) -> Option<Returned> + Send + Sync;

/// How one attempt is made to fail.
pub(super) enum Error {
    /// It is not.
    Not,
    Is(Arc<Make>),
    Ask(Arc<Ask>),
}

impl Failing {
    pub(super) fn times<R>(times: u32, error: R::Error) -> Self
    where
        R: Fallible + Send + 'static,
        R::Error: Clone + Send + 'static,
    {
        let error = Mutex::new(error); // errors need not be `Sync`
        Self::Times(
            times,
            Arc::new(move || {
                let error = error.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Box::new(R::failed(error))
            }),
        )
    }

    pub(super) fn ask<R>(ask: impl Fn(u32) -> Option<R::Error> + Send + Sync + 'static) -> Self
    where
        R: Fallible + Send + 'static,
    {
        Self::As(Arc::new(move |attempt| {
            ask(attempt).map(|error| Box::new(R::failed(error)) as Returned)
        }))
    }

    /// What it says of the next attempt.
    pub(super) fn next(&mut self) -> Error {
        match self {
            Self::Times(0, _) => Error::Not,
            Self::Times(left, make) => {
                *left -= 1;
                Error::Is(make.clone())
            }
            Self::As(ask) => Error::Ask(ask.clone()),
        }
    }
}
