//! The value of work that had been done already, on its way from a step's body to its journal.

use bytes::Bytes;
use serde::Serialize;

use crate::payload::{PayloadError, Payloads};

/// A serialized value, or why it is none. An engine's codec comes later: an error is made without one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AlreadyDone(Result<Bytes, PayloadError>);

impl AlreadyDone {
    pub(super) fn of<T: Serialize>(value: &T) -> Self {
        Self(Payloads::plain_of(value).map(Bytes::from))
    }

    /// The value as a payload.
    pub(crate) fn encode(&self, payloads: &Payloads) -> Result<Bytes, PayloadError> {
        match &self.0 {
            Ok(plain) => payloads.encode_plain(plain),
            Err(problem) => Err(problem.clone()),
        }
    }
}
