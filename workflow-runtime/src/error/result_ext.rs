//! What is said of a failed result on the spot: how it is retried, and whether it is one at all.

use std::fmt;
use std::time::Duration;

use super::{Error, Result, Retry};
use crate::context::note_already_done;

/// Says on the spot how a failed result is to be retried, or that it is none.
pub trait ResultExt<T>: Sized {
    /// What the result fails with.
    type Error;

    /// Makes the error fatal: it is not retried.
    ///
    /// # Errors
    ///
    /// The same failure, as a fatal [`Error`].
    fn fatal(self) -> Result<T>
    where
        Self::Error: Into<Error>;

    /// Has the step tried again after `delay`, while attempts are left.
    ///
    /// # Errors
    ///
    /// The same failure, as an [`Error`] with that delay.
    fn retry_after(self, delay: Duration) -> Result<T>
    where
        Self::Error: Into<Error>;

    /// Puts a message in front of the error.
    ///
    /// # Errors
    ///
    /// The same failure, as the cause of an [`Error`] with that message.
    fn context(self, message: impl fmt::Display) -> Result<T>
    where
        Self::Error: Into<Error>;

    /// Takes a conflict for success: the other side refuses because it knows the key, so the first attempt
    /// had worked, though nobody heard of it. `value` looks at the error and gives what that attempt would have
    /// returned; `None` for any other error.
    ///
    /// If the step succeeds, its record says that the work had been done already.
    ///
    /// ```
    /// use workflow_runtime::{ResultExt as _, get_step_metadata, step};
    /// # use serde::{Deserialize, Serialize};
    /// # async fn post(_key: workflow_runtime::StepId, _cents: u64) -> Result<String, Refused> {
    /// #     Err(Refused::Duplicate { first: "r-1".into() })
    /// # }
    ///
    /// #[derive(Serialize, Deserialize)]
    /// enum Refused {
    ///     Duplicate { first: String },
    ///     NoMoney,
    /// }
    ///
    /// #[step(effect = "payment")]
    /// async fn charge(cents: u64) -> Result<String, Refused> {
    ///     let answer = post(get_step_metadata().step_id, cents).await;
    ///     answer.or_already_done(|refused| match refused {
    ///         Refused::Duplicate { first } => Some(first.clone()),
    ///         Refused::NoMoney => None,
    ///     })
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() { assert_eq!(charge(5).direct().await.ok(), Some("r-1".to_owned())); }
    /// ```
    ///
    /// # Errors
    ///
    /// Every error that `value` gives nothing for, as it was.
    fn or_already_done(
        self,
        value: impl FnOnce(&Self::Error) -> Option<T>,
    ) -> std::result::Result<T, Self::Error>;
}

impl<T, E> ResultExt<T> for std::result::Result<T, E> {
    type Error = E;

    fn fatal(self) -> Result<T>
    where
        E: Into<Error>,
    {
        self.map_err(|error| error.into().into_fatal())
    }

    fn retry_after(self, delay: Duration) -> Result<T>
    where
        E: Into<Error>,
    {
        self.map_err(|error| Error {
            retry: Retry::After(delay),
            ..error.into()
        })
    }

    fn context(self, message: impl fmt::Display) -> Result<T>
    where
        E: Into<Error>,
    {
        self.map_err(|error| error.into().context(message))
    }

    fn or_already_done(self, value: impl FnOnce(&E) -> Option<T>) -> Self {
        self.or_else(|error| {
            let done = value(&error).ok_or(error)?;
            note_already_done();
            Ok(done)
        })
    }
}
