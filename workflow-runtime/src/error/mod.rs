//! Errors as data: what a step or workflow fails with.
//!
//! Owns [`Error`], the journaled error that any `std::error::Error` becomes with `?`, and the
//! hints it carries for the retry policy. It never holds a backtrace: a journal is kept for
//! years and read by others.
//!
//! What the engine itself refuses (opening, starting) is an `EngineError`, never this.

mod already_done;
mod result_ext;

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

pub(crate) use already_done::AlreadyDone;
pub use result_ext::ResultExt;

/// The result of a step or workflow that fails with the crate's own [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that can be journaled.
///
/// Every `std::error::Error` becomes one with `?`; its messages down to the root cause are
/// kept. It does not implement `std::error::Error` itself, which is what makes that
/// conversion possible.
///
/// ```
/// use workflow_runtime::{Error, Result, ResultExt as _};
///
/// fn parse(text: &str) -> Result<u32> {
///     Ok(text.trim().parse::<u32>().fatal()?) // a retry cannot help
/// }
///
/// let error = parse("twelve").unwrap_err();
/// assert!(error.is_fatal());
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    message: Box<str>,
    /// Messages of the causes, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Retry::is_default")]
    retry: Retry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupted: Option<Interrupted>,
    /// The work had been done already: the step succeeds with this value. Never in a journal.
    #[serde(skip)]
    done: Option<Box<AlreadyDone>>,
}

/// What the error asks of the retry policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Retry {
    /// As the step's policy says.
    #[default]
    Policy,
    /// After exactly this long, while attempts are left.
    After(Duration),
    /// Never.
    Fatal,
}

impl Retry {
    fn is_default(&self) -> bool {
        *self == Self::Policy
    }
}

impl Error {
    /// Makes an error that is retried as the step's policy says.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string().into(),
            causes: Vec::new(),
            retry: Retry::Policy,
            interrupted: None,
            done: None,
        }
    }

    /// Makes an error that is not retried: trying again cannot help.
    pub fn fatal(message: impl fmt::Display) -> Self {
        Self::new(message).into_fatal()
    }

    /// Makes an error that is retried after `delay` instead of the policy's backoff, while
    /// attempts are left.
    pub fn retry_after(message: impl fmt::Display, delay: Duration) -> Self {
        Self {
            retry: Retry::After(delay),
            ..Self::new(message)
        }
    }

    /// Makes an error that means success: the other side says that the work was done already, by an attempt
    /// of which nobody heard the end. The step that returns it succeeds with `value`, which has to be of
    /// the type that the step returns; the journal says how it came about.
    ///
    /// For a step that fails with this type. [`ResultExt::or_already_done`] is for all error types and is
    /// checked by the compiler.
    ///
    /// ```
    /// # use workflow_runtime::{Error, Result, get_step_metadata, step};
    /// # struct Answer { status: u16, receipt: String }
    /// # async fn post(_key: workflow_runtime::StepId, _cents: u64) -> Result<Answer> {
    /// #     Ok(Answer { status: 409, receipt: "r-1".into() })
    /// # }
    /// #[step(effect = "payment")]
    /// async fn charge(cents: u64) -> Result<String> {
    ///     let answer = post(get_step_metadata().step_id, cents).await?;
    ///     match answer.status {
    ///         200 => Ok(answer.receipt),
    ///         409 => Err(Error::already_done(answer.receipt)), // the first attempt had worked
    ///         status => Err(Error::new(format!("status {status}"))),
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() { assert_eq!(charge(5).direct().await.unwrap(), "r-1"); }
    /// ```
    ///
    /// In a workflow it is an error like others: a workflow has no other side.
    pub fn already_done<T: Serialize>(value: T) -> Self {
        Self {
            done: Some(Box::new(AlreadyDone::of(&value))),
            ..Self::fatal("it had been done already")
        }
    }

    /// Turns this into an error that is not retried.
    #[must_use]
    pub fn into_fatal(mut self) -> Self {
        self.retry = Retry::Fatal;
        self
    }

    /// Puts a message in front; this error becomes its cause. What it asks of the retry
    /// policy stays.
    #[must_use]
    pub fn context(self, message: impl fmt::Display) -> Self {
        let mut causes = self.causes;
        causes.insert(0, self.message);
        Self {
            message: message.to_string().into(),
            causes,
            retry: self.retry,
            interrupted: self.interrupted,
            done: self.done,
        }
    }

    /// Returns the messages of the causes, outermost first.
    pub fn causes(&self) -> impl Iterator<Item = &str> {
        self.causes.iter().map(AsRef::as_ref)
    }

    /// Says whether the error is not to be retried.
    pub fn is_fatal(&self) -> bool {
        self.retry == Retry::Fatal
    }

    /// Says that a step that runs at most once began and nobody knows how it ended: when, and in which
    /// attempt. `None` for every other error.
    ///
    /// ```
    /// # use workflow_runtime::{step, workflow, Result};
    /// # #[step] async fn has_gone_out(order: u64) -> Result<bool> { Ok(order > 0) }
    /// #[step(at_most_once)]
    /// async fn ship(order: u64) -> Result<()> {
    ///     // … the carrier takes no idempotency key
    /// #   let _ = order;
    ///     Ok(())
    /// }
    ///
    /// #[workflow]
    /// async fn deliver(order: u64) -> Result<bool> {
    ///     match ship(order).await {
    ///         Err(error) if error.interrupted().is_some() => has_gone_out(order).await,
    ///         other => other.map(|()| true),
    ///     }
    /// }
    /// ```
    pub fn interrupted(&self) -> Option<Interrupted> {
        self.interrupted
    }

    /// Says whether the error is an [interruption](Self::interrupted).
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }

    pub(crate) fn retry(&self) -> Retry {
        self.retry
    }

    pub(crate) fn done(&self) -> Option<&AlreadyDone> {
        self.done.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if f.alternate() {
            for cause in &self.causes {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string().into());
            source = cause.source();
        }
        Self {
            message: error.to_string().into(),
            causes,
            retry: Retry::Policy,
            interrupted: None,
            done: None,
        }
    }
}

/// What a step that runs at most once gives when it was begun and nobody knows how it ended: the process
/// died, or it took longer than its timeout. It is not run again.
///
/// The crate's [`Error`] carries it ([`Error::interrupted`]); an error type of your own does if it is
/// `From<Interrupted>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interrupted {
    attempt: u32,
    started_at: Timestamp,
}

impl Interrupted {
    /// Makes one, for tests of code that handles it.
    pub fn new(attempt: u32, started_at: SystemTime) -> Self {
        Self::since(attempt, started_at.into())
    }

    pub(crate) fn since(attempt: u32, started_at: Timestamp) -> Self {
        Self {
            attempt,
            started_at,
        }
    }

    /// Returns which attempt it was, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns when that attempt was about to begin.
    pub fn started_at(&self) -> SystemTime {
        self.started_at.into()
    }

    pub(crate) fn began(&self) -> Timestamp {
        self.started_at
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "interrupted: attempt {} began {} and nobody knows how it ended; it is not run again",
            self.attempt, self.started_at
        )
    }
}

// `Interrupted` is no `std::error::Error`: as one it would become an `Error` by the impl above, and what
// it says would be lost.
impl From<Interrupted> for Error {
    fn from(interrupted: Interrupted) -> Self {
        Self {
            interrupted: Some(interrupted),
            ..Self::fatal(interrupted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn a_std_error_keeps_its_causes() {
        let cause = "x".parse::<u8>().unwrap_err();
        let error: Error = Outer(cause.clone()).into();
        assert_eq!(error.to_string(), "outer");
        assert_eq!(error.causes().collect::<Vec<_>>(), [cause.to_string()]);
        assert_eq!(format!("{error:#}"), format!("outer: {cause}"));
    }

    #[test]
    fn an_error_survives_the_journal_with_its_hints() {
        let payloads = crate::payload::Payloads::default();
        for error in [
            Error::new("plain"),
            Error::fatal("no"),
            Error::retry_after("later", Duration::from_secs(3)).context("while paying"),
            Error::from(Interrupted::since(2, Timestamp::from_micros(7))).context("while paying"),
        ] {
            let bytes = payloads.encode(&error).expect("encodes");
            assert_eq!(payloads.decode::<Error>(&bytes), Ok(error));
        }
    }
}
