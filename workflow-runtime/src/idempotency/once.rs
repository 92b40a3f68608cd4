//! [`Once`]: work that runs once per key, with its outcome as a typed value.
//!
//! Owns the bytes of such an outcome. Never decides where keys live.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::claim::{self, Acquired, Claim, MIN_LEASE, Recorded};
use super::events::{self, EVENT_KIND};
use super::{
    Completion, DEFAULT_LEASE, DEFAULT_TTL, InFlight, KeyError, KeyId, KeyStore, OwnerId, Reserve,
};
use crate::clock::Timestamp;
use crate::digest::{self, Digest};
use crate::key::Key;
use crate::payload::{PayloadError, Payloads};

/// The kind of the keys of [`Once`]: they do not meet those of the HTTP layer.
const KIND: &str = "once";

/// The version of the outcome's bytes.
const FORMAT: u8 = 1;

/// The work gave a value; its payload follows.
const VALUE: u8 = 0;

/// The work was done and its value cannot be kept; why not follows, as text.
const NO_VALUE: u8 = 1;

/// Work that runs once per key; see [`Engine::once`](crate::Engine::once).
///
/// On another place for keys it is made with [`Once::new`]:
///
/// ```
/// use workflow_runtime::idempotency::Once;
/// # use workflow_runtime::{Engine, Error};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = Engine::builder().open_in_memory().await?;
/// # let keys = engine.keys();
/// for _ in 0..2 {
///     let sent = Once::new(&keys, "mail-7").run(|| async { Ok::<_, Error>("sent".to_owned()) });
///     assert_eq!(sent.await?, "sent"); // the second time it is not sent again
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is done until it is `run`"]
pub struct Once<'k> {
    keys: Held<'k>,
    payloads: Payloads,
    kind: &'static str,
    key: Key,
    scope: Box<str>,
    body: Result<Digest, String>,
    ttl: Duration,
    lease: Duration,
    in_flight: InFlight,
}

enum Held<'k> {
    Borrowed(&'k dyn KeyStore),
    Shared(Arc<dyn KeyStore>),
}

impl<'k> Once<'k> {
    /// Guards work by a key that lives in `keys`.
    pub fn new(keys: &'k dyn KeyStore, key: impl Into<Key>) -> Self {
        Self::with(Held::Borrowed(keys), Payloads::default(), key.into())
    }

    fn with(keys: Held<'k>, payloads: Payloads, key: Key) -> Self {
        Self {
            keys,
            payloads,
            kind: KIND,
            key,
            scope: "".into(),
            body: digest_of(&()),
            ttl: DEFAULT_TTL,
            lease: DEFAULT_LEASE,
            in_flight: InFlight::Wait,
        }
    }

    /// Compares what the key is used for: another body under the same key is refused. By content: the order of
    /// a map's entries does not count.
    pub fn body<B: Serialize + ?Sized>(mut self, body: &B) -> Self {
        self.body = digest_of(body);
        self
    }

    /// Sets what the key is unique in, beside the namespace: a tenant, say.
    pub fn scope(mut self, scope: &str) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets how long the outcome is kept from its completion on; 24 hours otherwise. For money rather 90 days.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets what happens while another caller has the key; [`InFlight::Wait`] otherwise.
    pub fn in_flight(mut self, in_flight: InFlight) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// Sets how long the key is held without a sign of life from its owner; 30 s otherwise, at least 100 ms. While the
    /// work is polled the lease is extended; work that blocks its thread for longer may lose the key.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(MIN_LEASE);
        self
    }

    /// Compares a body whose digest is known.
    pub(crate) fn of_body(mut self, body: Result<Digest, String>) -> Self {
        self.body = body;
        self
    }

    /// Makes the key that of an event in an inbox.
    pub(crate) fn of_event(mut self, inbox: &str) -> Self {
        self.kind = EVENT_KIND;
        self.scope(inbox)
    }

    /// Does the work, unless it was done: then the recorded outcome is returned.
    ///
    /// An outcome is recorded, durably, before it is returned. Work that fails, panics or is dropped frees
    /// the key: the next caller, or one that waits, does it.
    ///
    /// # Errors
    ///
    /// [`OnceError::Failed`] with what the work failed with; the other variants say why it did not run, or why
    /// its outcome is not known.
    pub async fn run<F, W, T, E>(self, work: F) -> Result<T, OnceError<E>>
    where
        F: FnOnce() -> W,
        W: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
    {
        if let Some(problem) = self.key.problem() {
            return Err(OnceError::Key(problem));
        }
        let body = self.body.clone().map_err(OnceError::Body)?;
        let request = Reserve {
            key: KeyId::derive(self.kind, &self.scope, &self.key),
            body,
            owner: OwnerId::next(),
            lease: self.lease,
        };
        let keys = self.keys();
        let ticket = match claim::acquire(keys, request, self.in_flight).await? {
            Acquired::Mine(ticket) => ticket,
            Acquired::Done(done) => return self.read(request.key, &done.outcome),
            Acquired::Busy(busy) => {
                return Err(OnceError::InFlight {
                    key: self.key.to_string(),
                    since: busy.since,
                });
            }
            Acquired::OtherBody { first, since } => {
                return Err(OnceError::Conflict {
                    key: self.key.to_string(),
                    since,
                    first,
                    now: body,
                });
            }
        };
        let claim = Claim::new(keys, ticket, self.lease);
        let value = match claim.during(async { work().await }).await {
            Ok(value) => value,
            Err(error) => {
                claim.release().await;
                return Err(OnceError::Failed(error));
            }
        };
        let outcome = encode(&self.payloads.at_most(keys.outcome_limit()), &value);
        drop(value); // the caller sees what can be read back
        self.record(claim, request, outcome).await
    }

    /// Records an outcome and returns what is on record.
    async fn record<T: DeserializeOwned, E>(
        &self,
        claim: Claim<'_>,
        request: Reserve,
        outcome: Bytes,
    ) -> Result<T, OnceError<E>> {
        let completion = claim.complete(outcome.clone(), self.ttl).await;
        if completion.map_err(OnceError::NotRecorded)? == Completion::Recorded {
            return self.read(request.key, &outcome);
        }
        let late = claim::record_late(self.keys(), request, outcome.clone(), self.ttl).await;
        match late.map_err(OnceError::NotRecorded)? {
            Recorded::Own => self.read(request.key, &outcome),
            Recorded::Other(done) => self.read(request.key, &done.outcome),
            Recorded::Never => Err(OnceError::Lost {
                key: self.key.to_string(),
            }),
        }
    }

    fn keys(&self) -> &dyn KeyStore {
        match &self.keys {
            Held::Borrowed(keys) => *keys,
            Held::Shared(keys) => &**keys,
        }
    }

    fn read<T: DeserializeOwned, E>(&self, key: KeyId, outcome: &[u8]) -> Result<T, OnceError<E>> {
        match outcome {
            [FORMAT, VALUE, payload @ ..] => {
                self.payloads.decode(payload).map_err(OnceError::Outcome)
            }
            [FORMAT, NO_VALUE, problem @ ..] => {
                Err(OnceError::NoValue(String::from_utf8_lossy(problem).into()))
            }
            [FORMAT, events::CAUSED, ..] => Err(OnceError::Keys(KeyError::Unreadable {
                key,
                problem: "the event was accepted with a run or a signal: handle it in one way only"
                    .into(),
            })),
            _ => Err(OnceError::Keys(KeyError::Unreadable {
                key,
                problem: "it is no outcome of this release's `once`".into(),
            })),
        }
    }
}

impl Once<'static> {
    pub(crate) fn shared(keys: Arc<dyn KeyStore>, payloads: Payloads, key: Key) -> Self {
        Self::with(Held::Shared(keys), payloads, key)
    }
}

/// Encodes a value, or why it cannot be kept: the work was done, and must not run again for that.
fn encode<T: Serialize + DeserializeOwned>(payloads: &Payloads, value: &T) -> Bytes {
    let payload = payloads.encode(value);
    let kept = payload.and_then(|payload| payloads.decode::<T>(&payload).map(|_| payload));
    let (tag, rest) = match kept {
        Ok(payload) => (VALUE, payload),
        Err(problem) => (NO_VALUE, problem.without_values().into()),
    };
    let mut out = BytesMut::with_capacity(2 + rest.len());
    out.put_slice(&[FORMAT, tag]);
    out.put_slice(&rest);
    out.freeze()
}

fn digest_of<B: Serialize + ?Sized>(body: &B) -> Result<Digest, String> {
    match digest::digest(body) {
        Ok(digest) => Ok(digest.strict),
        Err(problem) => Err(problem.to_string()),
    }
}

/// Why [`Once::run`] gave no value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OnceError<E> {
    /// The work failed with this. The key is free: it may be tried again.
    Failed(E),
    /// Another caller has the key, and this one chose not to wait (any longer).
    InFlight {
        /// The key.
        key: String,
        /// Since when.
        since: Timestamp,
    },
    /// The key is used for another body.
    Conflict {
        /// The key.
        key: String,
        /// Since when.
        since: Timestamp,
        /// The digest of that body.
        first: Digest,
        /// The digest of this one.
        now: Digest,
    },
    /// The key cannot be used.
    Key(String),
    /// The body has no digest.
    Body(String),
    /// The work was done and gave a value that cannot be kept: it is too large, or cannot be read back. It is
    /// not done again for that.
    NoValue(String),
    /// The recorded outcome is of another type than the one that was asked for.
    Outcome(PayloadError),
    /// Where keys live failed before the work began.
    Keys(KeyError),
    /// The work was done, and where keys live failed to record its outcome: a repetition may do it again.
    NotRecorded(KeyError),
    /// The work was done, but its claim was lost while it went on and the key is used for another body since.
    Lost {
        /// The key.
        key: String,
    },
}

impl<E: fmt::Display> fmt::Display for OnceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::InFlight { key, since } => write!(
                f,
                "the key {key:?} is in flight since {since}: wait for it, or ask again later"
            ),
            Self::Conflict {
                key,
                since,
                first,
                now,
            } => write!(
                f,
                "the key {key:?} was taken {since} for another body (digest {first}, now {now}): use another key, \
                 or the same body"
            ),
            Self::Key(problem) => f.write_str(problem),
            Self::Body(problem) => write!(f, "the body has no digest: {problem}"),
            Self::NoValue(problem) => write!(
                f,
                "the work was done once and is not done again, but its value cannot be kept: {problem}"
            ),
            Self::Outcome(problem) => write!(f, "the recorded outcome: {problem}"),
            Self::Keys(error) => error.fmt(f),
            Self::NotRecorded(error) => write!(
                f,
                "the work was done, but its outcome could not be recorded, so a repetition may do it again: {error}"
            ),
            Self::Lost { key } => write!(
                f,
                "the work was done, but the key {key:?} was taken over for another body while it went on: \
                 raise the lease, and do not block the thread"
            ),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for OnceError<E> {}

impl<E> From<KeyError> for OnceError<E> {
    fn from(error: KeyError) -> Self {
        Self::Keys(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_outcome_are_frozen() {
        let payloads = Payloads::default();
        let hex = |bytes: Bytes| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(
            hex(encode(&payloads, &("ok".to_owned(), 300))),
            "010092a26f6bcd012c"
        );
        let small = Payloads::new(3, None, &"".into());
        let refused = encode(&small, &"too long".to_owned());
        assert_eq!(refused[..2], [1, 1]);
        assert!(refused[2..].starts_with(b"it is larger than the limit of 3 bytes"));
    }
}
