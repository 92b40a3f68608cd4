//! Outboxes: messages that are written with a step's outcome, and relayed at least once under a stable id.
//!
//! Owns what leads from a durable message to a handler that has taken it. The files: `note` is what is kept, `relay` the
//! task that hands messages to a handler, `handle` is for whoever looks after an outbox. Never writes a message:
//! that is in the append of the record that it belongs to (`writer`), so there is none without its outcome.

mod handle;
mod note;
mod relay;

use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::Engine;
use crate::clock::Timestamp;
use crate::ids::{MessageId, RunId};
use crate::payload::{PayloadError, Payloads};

pub use handle::{OutboxHandle, SetAside};
pub(crate) use note::{MAX_MESSAGE, Pushed, Pushing, is_message};
pub(super) use relay::{Relay, Relays, serve};

/// Messages that are relayed at once, unless told otherwise.
const CONCURRENCY: usize = 16;

/// Attempts at relaying a message before it is set aside, unless told otherwise: with the backoff below, more
/// than an hour.
const MAX_ATTEMPTS: u32 = 20;

/// The shortest and the longest wait between two of them, unless told otherwise.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(300));

/// How long one of them may take, unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Engine {
    /// Returns a handle to an outbox: to relay its messages, or to look after those that were set aside.
    pub fn outbox(&self, name: &str) -> OutboxHandle {
        OutboxHandle::new(self.shared(), name)
    }
}

/// How the messages of an outbox are relayed.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    concurrency: usize,
    max_attempts: u32,
    backoff: (Duration, Duration),
    timeout: Duration,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            concurrency: CONCURRENCY,
            max_attempts: MAX_ATTEMPTS,
            backoff: BACKOFF,
            timeout: TIMEOUT,
        }
    }
}

impl RelayOptions {
    /// Sets how many messages are relayed at once, each of another run; 16 otherwise, at least 1.
    #[must_use]
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.concurrency = messages.max(1);
        self
    }

    /// Sets after how many failed attempts a message is set aside; 20 otherwise, at least 1.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// Sets the shortest and the longest wait between two attempts; 500 ms and 5 min otherwise.
    #[must_use]
    pub fn backoff(mut self, shortest: Duration, longest: Duration) -> Self {
        self.backoff = (shortest, longest.max(shortest));
        self
    }

    /// Sets how long one attempt may take; 60 s otherwise. One that takes longer is dropped, and has failed.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How long to wait after the attempt of that number: doubled each time, somewhere below that. Where comes from
    /// the message's id, so that messages that failed together do not come back together.
    fn delay(&self, id: MessageId, failed: u32) -> Duration {
        let (shortest, longest) = self.backoff;
        let doubled = shortest.saturating_mul(2u32.saturating_pow(failed.min(31)));
        let mut hash = blake3::Hasher::new();
        hash.update(id.as_bytes());
        hash.update(&failed.to_le_bytes());
        let mut draw = [0; 8];
        hash.finalize_xof().fill(&mut draw);
        let share = u64::from_le_bytes(draw) as f64 / u64::MAX as f64;
        let room = doubled.min(longest).saturating_sub(shortest);
        shortest + room.mul_f64(share)
    }
}

/// A message that is being relayed.
#[derive(Clone)]
#[non_exhaustive]
pub struct Message {
    /// Its id: the same in every attempt and delivery. Hand it to whoever receives the message as the idempotency key,
    /// or guard the sending with [`engine.once(id)`](Engine::once).
    pub id: MessageId,
    /// The run that pushed it.
    pub run: RunId,
    /// When it was written.
    pub pushed_at: Timestamp,
    /// Which attempt this is, from 1; of a message that was set aside, the last one.
    pub attempt: u32,
    payload: Bytes,
    payloads: Payloads,
}

impl Message {
    /// Reads what was pushed.
    ///
    /// # Errors
    ///
    /// If it is not of that type, or the payload codec fails.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        self.payloads.decode(&self.payload)
    }
}

/// Without what it says.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Message({} of {}, attempt {})",
            self.id, self.run, self.attempt
        )
    }
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let _ = super::notes::decode::<note::MessageNote>(bytes);
    let _ = super::notes::decode::<note::TriesNote>(bytes);
    let _ = super::notes::decode::<note::AsideNote>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_between_attempts_grows_within_its_bounds_and_spreads() {
        let options = RelayOptions::default();
        let mut seen = std::collections::HashSet::new();
        for n in 0..100u8 {
            let id = MessageId::from_bytes([n; 16]);
            assert!(options.delay(id, 1) <= 2 * BACKOFF.0);
            for failed in 1..40 {
                let delay = options.delay(id, failed);
                assert!(delay >= BACKOFF.0 && delay <= BACKOFF.1, "{delay:?}");
                seen.insert(delay);
            }
        }
        assert!(seen.len() > 2000, "{}", seen.len());
    }
}
