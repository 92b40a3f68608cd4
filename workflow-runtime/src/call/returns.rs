//! How a return value crosses the journal: as a success, an error, or neither.
//!
//! Owns the decision whether a function can fail, made on its *resolved* return type: the inherent
//! method of [`Probe`] exists for `Result` alone, under whatever name the source knows it, and
//! the trait's method is found for everything else. Reading it off the syntax instead would
//! record the `Err` of an aliased `Result` as a success.

use std::any::Any;
use std::marker::PhantomData;

use super::args::Journaled;
use crate::error::{AlreadyDone, Error, Interrupted, Retry};
use crate::journal::Outcome;
use crate::payload::{PayloadError, Payloads};

/// Decides whether a failed value is worth another attempt.
type RetryIf<R> = Box<dyn Fn(&R) -> bool + Send + Sync>;

/// How values of type `R` cross the journal.
pub struct Returns<R> {
    encode: fn(&Payloads, &R) -> Result<Outcome, PayloadError>,
    decode: fn(&Payloads, &Outcome) -> Result<Decoded<R>, PayloadError>,
    failure: fn(&R) -> Option<Retry>,
    done: fn(&R) -> Option<&AlreadyDone>,
    broken: fn(Error) -> Result<R, Error>,
    retry_if: Option<RetryIf<R>>,
    interrupted: Option<fn(Interrupted) -> R>,
    #[cfg(feature = "testing")]
    pub(super) making: super::stand_in::Making<R>,
}

/// What an outcome is for the workflow.
pub(crate) enum Decoded<R> {
    /// A value of the type that the call returns.
    Value(R),
    /// A failure that the type has no place for.
    NoValue(Error),
}

impl<R> Returns<R> {
    pub(crate) fn encode(&self, payloads: &Payloads, value: &R) -> Result<Outcome, PayloadError> {
        (self.encode)(payloads, value)
    }

    pub(crate) fn decode(
        &self,
        payloads: &Payloads,
        outcome: &Outcome,
    ) -> Result<Decoded<R>, PayloadError> {
        match outcome {
            Outcome::Interrupted(interrupted) => self.give_interrupted(*interrupted),
            Outcome::AlreadyDone(payload) => (self.decode)(payloads, &Outcome::Ok(payload.clone())),
            outcome => (self.decode)(payloads, outcome),
        }
    }

    fn give_interrupted(&self, interrupted: Interrupted) -> Result<Decoded<R>, PayloadError> {
        if let Some(give) = self.interrupted {
            return Ok(Decoded::Value(give(interrupted)));
        }
        // The step is no longer `at_most_once`, but the journal says what it was.
        (self.broken)(interrupted.into())
            .map(Decoded::Value)
            .map_err(|error| PayloadError::Deserialize {
                type_name: std::any::type_name::<R>(),
                message: format!(
                    "the journal holds an interrupted step ({error}), but the function has no place \
                     for that now: bring `at_most_once` back"
                ),
            })
    }

    /// What a returned value asks of the retry policy; `None` for a success.
    pub(crate) fn failure(&self, value: &R) -> Option<Retry> {
        let asked = (self.failure)(value)?;
        match &self.retry_if {
            Some(retry_if) if !retry_if(value) => Some(Retry::Fatal),
            _ => Some(asked),
        }
    }

    /// The outcome of an error that says that the work had been done already; `None` for any other value.
    pub(crate) fn already_done(
        &self,
        payloads: &Payloads,
        value: &R,
    ) -> Option<Result<Outcome, PayloadError>> {
        let done = (self.done)(value)?;
        Some(done.encode(payloads).map(Outcome::AlreadyDone))
    }

    /// What the workflow would be given for a value, as far as `already_done` makes another one of it.
    pub(crate) fn as_delivered(&self, value: R) -> R {
        let payloads = Payloads::default();
        let done = self.already_done(&payloads, &value);
        let decoded = done.map(|it| it.and_then(|outcome| self.decode(&payloads, &outcome)));
        match decoded {
            Some(Ok(Decoded::Value(done))) => done,
            _ => value,
        }
    }

    /// Returns what tells failed values from others.
    pub(crate) fn failing(&self) -> fn(&R) -> Option<Retry> {
        self.failure
    }

    /// Turns a failure of the engine's own (panic, timeout) into a value, if the type has a
    /// place for it.
    pub(crate) fn broken(&self, error: Error) -> Decoded<R> {
        match (self.broken)(error) {
            Ok(value) => Decoded::Value(value),
            Err(error) => Decoded::NoValue(error),
        }
    }
}

impl<R: 'static> Returns<R> {
    /// Has an error retried only if `decide` says so.
    #[must_use]
    pub fn retry_if(mut self, decide: fn(&R::Error) -> bool) -> Self
    where
        R: ResultParts,
    {
        self.retry_if = Some(Box::new(move |value| value.error().is_some_and(decide)));
        self
    }
}

impl<R> Returns<R> {
    /// Has an interrupted attempt given as an error.
    #[must_use]
    pub fn at_most_once(mut self) -> Self
    where
        R: CarriesInterrupted,
    {
        self.interrupted = Some(R::from_interrupted);
        self
    }
}

/// What a step that runs at most once returns.
#[diagnostic::on_unimplemented(
    message = "an `at_most_once` step returns `{Self}`, which cannot say that it was interrupted",
    label = "no place for `Interrupted`",
    note = "found again after a crash, such a step is not run but returns `Interrupted`: return `workflow_runtime::Result<T>`, or a `Result<T, E>` with `impl From<workflow_runtime::Interrupted> for E`"
)]
pub trait CarriesInterrupted {
    /// Makes the error.
    fn from_interrupted(interrupted: Interrupted) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Interrupted>> CarriesInterrupted for Result<T, E> {
    fn from_interrupted(interrupted: Interrupted) -> Self {
        Err(interrupted.into())
    }
}

/// Asks a return type whether it can fail.
pub struct Probe<R>(PhantomData<fn() -> R>);

impl<R> Probe<R> {
    /// Makes a probe.
    #[expect(clippy::new_without_default, reason = "named by expanded code only")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T, E> Probe<Result<T, E>> {
    /// The answer for a `Result`.
    pub fn returns(&self) -> Returns<Result<T, E>>
    where
        T: Journaled,
        E: Journaled,
    {
        Returns {
            encode: |payloads, value| match value {
                Ok(value) => payloads.encode(value).map(Outcome::Ok),
                Err(error) => payloads.encode(error).map(Outcome::Err),
            },
            decode: |payloads, outcome| match outcome {
                Outcome::Ok(payload) => Ok(Decoded::Value(Ok(payloads.decode(payload)?))),
                Outcome::Err(payload) => Ok(Decoded::Value(Err(payloads.decode(payload)?))),
                Outcome::Broken(payload) => {
                    let error = payloads.decode::<Error>(payload)?;
                    Ok(match place_for::<E>(error) {
                        Ok(error) => Decoded::Value(Err(error)),
                        Err(error) => Decoded::NoValue(error),
                    })
                }
                Outcome::Interrupted(_) | Outcome::AlreadyDone(_) => {
                    unreachable!("`Returns::decode` takes it")
                }
            },
            failure: |value| {
                let error = value.as_ref().err()?;
                let own = (error as &dyn Any).downcast_ref::<Error>();
                Some(own.map_or(Retry::Policy, Error::retry))
            },
            done: |value| {
                let error = value.as_ref().err()? as &dyn Any;
                error.downcast_ref::<Error>()?.done()
            },
            broken: |error| place_for::<E>(error).map(Err),
            retry_if: None,
            interrupted: None,
            #[cfg(feature = "testing")]
            making: super::stand_in::Making::new(),
        }
    }
}

/// Passes the crate's own error on where that is the function's error type.
fn place_for<E: 'static>(error: Error) -> Result<E, Error> {
    let mut slot = Some(error);
    let place = (&mut slot as &mut dyn Any).downcast_mut::<Option<E>>();
    match place.and_then(Option::take) {
        Some(error) => Ok(error),
        None => Err(slot.expect("it was not taken")),
    }
}

/// The answer for everything that is not a `Result`.
pub trait PlainReturn {
    /// The return type.
    type R;

    /// The answer. The bound is on the method: on the impl, a type that does not meet it would
    /// be told that there is no such method.
    fn returns(&self) -> Returns<Self::R>
    where
        Self::R: Journaled;
}

impl<R> PlainReturn for Probe<R> {
    type R = R;

    fn returns(&self) -> Returns<R>
    where
        R: Journaled,
    {
        Returns {
            encode: |payloads, value| payloads.encode(value).map(Outcome::Ok),
            decode: |payloads, outcome| match outcome {
                Outcome::Ok(payload) => Ok(Decoded::Value(payloads.decode(payload)?)),
                Outcome::Err(payload) => Err(PayloadError::Deserialize {
                    type_name: std::any::type_name::<R>(),
                    message: format!(
                        "the journal holds an error of {} bytes, but the function cannot fail now",
                        payload.len()
                    ),
                }),
                Outcome::Broken(payload) => Ok(Decoded::NoValue(payloads.decode(payload)?)),
                Outcome::Interrupted(_) | Outcome::AlreadyDone(_) => {
                    unreachable!("`Returns::decode` takes it")
                }
            },
            failure: |_| None,
            done: |_| None,
            broken: Err,
            retry_if: None,
            interrupted: None,
            #[cfg(feature = "testing")]
            making: super::stand_in::Making::new(),
        }
    }
}

/// The two sides of a function's `Result`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `Result`",
    label = "not a `Result`",
    note = "`retry_if` chooses among the errors of a step that returns a `Result`, and what a workflow returns under the name `Result` must be one"
)]
pub trait ResultParts {
    /// What success gives.
    type Ok;
    /// What failure gives.
    type Error;

    /// Takes it apart.
    ///
    /// # Errors
    ///
    /// The failure, as it is.
    fn split(self) -> Result<Self::Ok, Self::Error>;

    /// Looks at the failure, if it is one.
    fn error(&self) -> Option<&Self::Error>;
}

impl<T, E> ResultParts for Result<T, E> {
    type Ok = T;
    type Error = E;

    fn split(self) -> Self {
        self
    }

    fn error(&self) -> Option<&E> {
        self.as_ref().err()
    }
}
