//! Idempotency without a workflow: a key guards a piece of work, and a repetition is answered with the
//! first outcome.
//!
//! Owns [`KeyStore`], the small trait behind which keys live, and what is built on it: [`Once`] for
//! consumers and handlers, and with the feature `http` a tower layer for the `Idempotency-Key` header. It never
//! touches a journal, and never looks into an outcome: to a key store that is bytes.
//!
//! # The states of a key
//!
//! | state | a caller with the same body | a caller with another body |
//! |---|---|---|
//! | free | has it: its work runs | has it |
//! | in flight | waits for the outcome, or is refused, as it chooses | is refused |
//! | done | gets the outcome | is refused |
//!
//! Work that fails, panics or is dropped frees its key. An outcome is kept for a time *from its completion*
//! and then forgotten. Whoever has a key in flight holds it under a lease, which is extended while the work goes
//! on; when the lease ends because its owner died, the next caller takes the key over, and what the
//! first owner may still say is refused by the claim's fencing number.
//!
//! # What is promised
//!
//! *At-least-once execution, one recorded outcome.* Between the work's effect and the record of its outcome the process
//! may die; then the key is free again and a repetition runs. Hand the same key on to whoever does the
//! effect, or make the work a workflow.

mod claim;
pub mod conformance;
mod engine_keys;
mod events;
#[cfg(feature = "http")]
pub mod http;
mod names;
mod once;
#[cfg(feature = "redis")]
mod redis;

use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::store::{BoxFuture, StoreError};

pub use claim::InFlight;
pub(crate) use claim::{Acquired, Claim, acquire};
pub use engine_keys::EngineKeys;
#[cfg(feature = "testing")]
pub(crate) use engine_keys::hostile_row;
pub(crate) use engine_keys::{Book, Completing, Held, Joined, Obtained, StepKeys, Wanted, sweep};
pub use events::KeyInbox;
pub(crate) use events::{KEEP_FOR, caused, caused_run, event_key};
pub use names::{KeyId, OwnerId};
pub use once::{Once, OnceError};
#[cfg(feature = "redis")]
pub use redis::RedisKeys;

/// How long an outcome is kept unless told otherwise.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a claim holds without a sign of life from its owner, unless told otherwise.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How soon a waiting caller looks again where nobody tells it.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The result of an operation on keys.
pub type KeyResult<T> = Result<T, KeyError>;

/// What can go wrong where keys live.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The engine's store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another place for keys refused or failed.
    #[error("{place} failed: {message}")]
    Backend {
        /// Which one.
        place: &'static str,
        /// What it said.
        message: String,
    },
    /// What is kept under a key cannot be read.
    #[error("what is kept under the key {key} cannot be read: {problem}")]
    Unreadable {
        /// The key's name in the store.
        key: KeyId,
        /// What is wrong with it.
        problem: String,
    },
    /// The outcome is larger than can be kept.
    #[error(
        "an outcome of {bytes} bytes is larger than the limit of {limit}: keep large data elsewhere"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The engine's payload codec failed. Its message may quote a value, and is not shown.
    #[error("the payload codec failed")]
    Codec,
    /// The engine no longer works.
    #[error("the engine has stopped: open the store again")]
    Stopped,
}

/// Keeps keys: which are in flight, and what the done ones gave.
///
/// `store` in the names of the crate is where journals live; this is where keys do, and may be another place.
/// [`conformance`] checks an implementation.
pub trait KeyStore: Send + Sync + 'static {
    /// Takes a key, if it is free, or says why not. A free key is one that nobody took, that was released, whose
    /// claim ended without an outcome, or whose outcome expired.
    ///
    /// Asked again by the same owner, the claim that it has is returned again: a lost answer loses no key.
    fn reserve(&self, request: Reserve) -> BoxFuture<'_, KeyResult<Reservation>>;

    /// Records the outcome, durably as far as the implementation goes, to be kept for `ttl` from now. Refused, and
    /// nothing changed, if somebody else has taken the key over.
    fn complete(
        &self,
        ticket: &Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> BoxFuture<'_, KeyResult<Completion>>;

    /// Frees a key whose work failed. Of a claim that was taken over nothing is changed.
    fn release(&self, ticket: &Ticket) -> BoxFuture<'_, KeyResult<()>>;

    /// Extends a claim to `lease` from now. `false`: somebody else has the key, or nobody.
    fn extend(&self, ticket: &Ticket, lease: Duration) -> BoxFuture<'_, KeyResult<bool>>;

    /// Says how a key stands. `None`: it is free.
    fn look_up(&self, key: KeyId) -> BoxFuture<'_, KeyResult<Option<Entry>>>;

    /// Frees a key without waiting for it, as [`release`](Self::release) does: for destructors. If it cannot be
    /// done, the claim ends with its lease.
    fn abandon(&self, ticket: Ticket);

    /// Returns the largest outcome that can be kept.
    fn outcome_limit(&self) -> usize {
        usize::MAX
    }

    /// Resolves when a key that was in flight may have changed, and at the latest after `patience`.
    fn changed(&self, key: KeyId, patience: Duration) -> BoxFuture<'_, ()> {
        let _ = key;
        Box::pin(tokio::time::sleep(patience.min(LOOK_AGAIN)))
    }
}

/// Somebody wants a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Which one.
    pub key: KeyId,
    /// The digest of what it is used for: the same key with another body is refused.
    pub body: Digest,
    /// Who wants it.
    pub owner: OwnerId,
    /// For how long the claim holds without a sign of life.
    pub lease: Duration,
}

/// What became of a [`Reserve`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// The caller has the key: its work is to run.
    New(Ticket),
    /// Somebody else has it.
    InFlight(Busy),
    /// The work was done.
    Done(Done),
    /// The key is in use for another body.
    OtherBody {
        /// The digest of that one.
        first: Digest,
        /// When it was taken.
        since: Timestamp,
    },
}

/// The right to complete, extend or release a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Which one.
    pub key: KeyId,
    /// Who has it.
    pub owner: OwnerId,
    /// The number of the claim: later claims of a key have higher ones. To be handed on to where a late
    /// owner must be told from its successor.
    pub fence: u64,
    /// When it was taken.
    pub since: Timestamp,
    /// When the claim ends, unless it is extended.
    pub until: Timestamp,
}

/// A claim that somebody else has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// Since when.
    pub since: Timestamp,
    /// Until when, unless it is extended.
    pub until: Timestamp,
}

/// A recorded outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What was recorded.
    pub outcome: Bytes,
    /// When.
    pub completed_at: Timestamp,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// Whether an outcome was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// It was.
    Recorded,
    /// It was not: the claim had ended, and somebody else has the key or had it since.
    Refused,
}

/// How a key stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The digest of what it is used for.
    pub body: Digest,
    /// In flight, or done.
    pub state: EntryState,
}

/// In flight, or done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    /// Somebody has it.
    InFlight(Busy),
    /// It has an outcome.
    Done(Done),
}
