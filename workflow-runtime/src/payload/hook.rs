//! The codec hook: what a codec can do, and what becomes of its errors.
//!
//! Owns the trait that users implement and the line between errors that may be shown and those that may not. It never
//! serializes anything.

use std::sync::Arc;

use super::place::{PayloadContext, Place};

/// Transforms payload bytes on their way into the journal and back, for encryption or
/// compression.
///
/// It covers inputs, outputs, errors, signals, published values, messages, what guarded keys keep, and the payloads
/// shown in reports. Digests are taken before it, so it need not be deterministic. `Encryption` (feature
/// `encryption`) is one.
pub trait PayloadCodec: Send + Sync + 'static {
    /// Transforms a payload before it is journaled.
    ///
    /// # Errors
    ///
    /// Says why it cannot; the step or start that made the payload then fails for good.
    fn encode(&self, plain: Vec<u8>) -> Result<Vec<u8>, String>;

    /// Undoes [`PayloadCodec::encode`].
    ///
    /// # Errors
    ///
    /// Says why it cannot (a missing key, say); the run is parked and nothing is lost.
    fn decode(&self, coded: &[u8]) -> Result<Vec<u8>, String>;

    /// Transforms a payload that stands at a place. Only a codec that [binds](Self::binds) payloads to their places
    /// writes its own.
    ///
    /// # Errors
    ///
    /// As [`PayloadCodec::encode`].
    fn encode_at(
        &self,
        plain: Vec<u8>,
        _context: &PayloadContext<'_>,
    ) -> Result<Vec<u8>, CodecError> {
        self.encode(plain).map_err(CodecError::Quoting)
    }

    /// Undoes [`PayloadCodec::encode_at`], at the same place.
    ///
    /// # Errors
    ///
    /// As [`PayloadCodec::decode`]; or that the payload does not belong there.
    fn decode_at(
        &self,
        coded: &[u8],
        _context: &PayloadContext<'_>,
    ) -> Result<Vec<u8>, CodecError> {
        self.decode(coded).map_err(CodecError::Quoting)
    }

    /// Says whether a payload can be decoded only at the place that it was encoded for. What the engine copies to
    /// another place is then decoded and encoded anew.
    fn binds(&self) -> bool {
        false
    }
}

/// Says why a codec cannot transform a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The text may quote the payload: it is kept as a payload itself, and never logged.
    #[error("{0}")]
    Quoting(String),
    /// The text quotes nothing (it names a key, say): it may be logged and stand in reports.
    #[error("{0}")]
    Plain(String),
}

/// Says why a value could not cross the journal. Its text may quote the value, as serde's messages
/// do: it is for the caller, not for a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// It is larger than the limit.
    #[error(
        "it is larger than the limit of {limit} bytes: keep large data elsewhere and journal its name, or raise `payload_limit`"
    )]
    TooLarge {
        /// The engine's limit.
        limit: usize,
    },
    /// Its `Serialize` failed.
    #[error("it cannot be serialized: {0}")]
    Serialize(String),
    /// It cannot be read back as the type the code asks for.
    #[error("it cannot be read back as `{type_name}`: {message}")]
    Deserialize {
        /// The type asked for.
        type_name: &'static str,
        /// What the decoder said.
        message: String,
    },
    /// The codec hook failed.
    #[error("the payload codec failed: {0}")]
    Codec(String),
    /// It is locked: a key is missing, or it is not what was written there. The text quotes no value.
    #[error("{0}")]
    Locked(String),
}

impl From<CodecError> for PayloadError {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Quoting(text) => Self::Codec(text),
            CodecError::Plain(text) => Self::Locked(text),
        }
    }
}

/// The first byte of an encrypted payload: the one that begins nothing in MessagePack.
pub(crate) const ENCRYPTED: u8 = 0xc1;

/// The codec, and the namespace that it works for.
pub(super) struct Hook {
    pub(super) codec: Arc<dyn PayloadCodec>,
    pub(super) namespace: Arc<str>,
}

impl Hook {
    pub(super) fn encode(&self, plain: Vec<u8>, place: Place) -> Result<Vec<u8>, PayloadError> {
        let context = PayloadContext::new(&self.namespace, place);
        Ok(self.codec.encode_at(plain, &context)?)
    }

    pub(super) fn decode(&self, coded: &[u8], place: Place) -> Result<Vec<u8>, PayloadError> {
        let context = PayloadContext::new(&self.namespace, place);
        Ok(self.codec.decode_at(coded, &context)?)
    }
}

impl PayloadError {
    /// Says the same without anything that may quote the value.
    pub(crate) fn without_values(&self) -> String {
        match self {
            Self::TooLarge { .. } | Self::Locked(_) => self.to_string(),
            Self::Serialize(_) => "it cannot be serialized".to_owned(),
            Self::Deserialize { type_name, .. } => {
                format!("it cannot be read back as `{type_name}`")
            }
            Self::Codec(_) => "the payload codec failed".to_owned(),
        }
    }

    /// Says whether it is the codec's doing. Then nothing is known of the value, and a person can help.
    pub(crate) fn is_codecs(&self) -> bool {
        matches!(self, Self::Codec(_) | Self::Locked(_))
    }
}
