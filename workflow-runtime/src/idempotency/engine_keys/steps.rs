//! Keys that the steps of a namespace's runs share: `.idempotency_key(k).shared(ttl)`.
//!
//! Owns who of several runs executes, what is kept of its outcome, and the generation of a key, which is in the id
//! that the outside world sees. The claims, the rows, their expiry and their sweep are the `book`'s. It never
//! writes: an outcome is recorded by the append that has the executor's own record, and settled when that is
//! acknowledged, so that both are there or neither is.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::super::{EntryState, KeyError, KeyId, KeyResult, OwnerId, Reservation, Reserve, Ticket};
use super::book::{Book, Recording};
use crate::digest::Digest;
use crate::engine::notes;
use crate::ids::RunId;
use crate::journal::Companion;
use crate::store::{NoteChange, StoreError};

/// A claim ends with the call that has it, which is in this process: it needs no lease.
const FOR_EVER: Duration = Duration::MAX;

/// The keys that steps share.
pub(crate) struct StepKeys {
    book: Arc<Book>,
    /// Who has a key in flight, for messages.
    origins: Mutex<HashMap<KeyId, Origin>>,
}

/// Whose outcome it is, or will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) run: RunId,
    /// Where the step was called: `file:line`.
    pub(crate) source: Box<str>,
}

/// What is kept under a key, behind the codec hook. On disk: fields are added at the end of a new format only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    generation: u64,
    run: RunId,
    source: Box<str>,
    /// What the step gave, as in its record.
    value: Bytes,
}

/// A call that wants its key.
pub(crate) struct Wanted {
    pub(crate) key: KeyId,
    /// The digest of its input.
    pub(crate) input: Digest,
    pub(crate) run: RunId,
    pub(crate) site: &'static Location<'static>,
}

/// What a call was given.
pub(crate) enum Obtained {
    /// The key: its body is to run.
    Mine(Held),
    /// What a call of this run gave.
    Known { run: RunId, value: Bytes },
    /// Nothing: the key is used for another input.
    OtherInput {
        first: Digest,
        /// Whose; `None` if that one has just failed.
        origin: Option<Origin>,
    },
}

impl StepKeys {
    pub(crate) fn new(book: Arc<Book>) -> Arc<Self> {
        Arc::new(Self {
            book,
            origins: Mutex::default(),
        })
    }

    fn origins(&self) -> MutexGuard<'_, HashMap<KeyId, Origin>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the store still works.
    pub(crate) fn store_works(&self) -> bool {
        self.book.store().failure().is_none()
    }

    /// Asks for a key until it is had, or somebody's outcome is there.
    pub(crate) async fn obtain(self: Arc<Self>, wanted: Wanted) -> KeyResult<Obtained> {
        let key = wanted.key;
        let request = Reserve {
            key,
            body: wanted.input,
            owner: OwnerId::next(),
            lease: FOR_EVER,
        };
        loop {
            match self.book.reserve(request).await? {
                Reservation::New(ticket) => {
                    let mut held = self.hold(ticket, &wanted);
                    if let Some(error) = self.book.store().failure() {
                        return Err(StoreError::Failed { error }.into()); // nothing can be recorded any more
                    }
                    held.generation = self.next_generation(key).await?;
                    return Ok(Obtained::Mine(held));
                }
                Reservation::Done(done) => {
                    let Kept { run, value, .. } = Kept::decode(key, &done.outcome)?;
                    return Ok(Obtained::Known { run, value });
                }
                Reservation::OtherBody { first, .. } => {
                    let origin = self.origin(key).await?;
                    return Ok(Obtained::OtherInput { first, origin });
                }
                Reservation::InFlight(_) => {
                    if let Some(gone) = self.book.gone(key) {
                        gone.await;
                    }
                }
            }
        }
    }

    fn hold(self: &Arc<Self>, ticket: Ticket, wanted: &Wanted) -> Held {
        let origin = Origin {
            run: wanted.run,
            source: format!("{}:{}", wanted.site.file(), wanted.site.line()).into(),
        };
        self.origins().insert(ticket.key, origin.clone());
        Held {
            keys: self.clone(),
            ticket: Some(ticket),
            generation: 0,
            origin,
        }
    }

    /// The generation of the next outcome. Only an outcome counts one up: whoever takes over from one that failed or died
    /// is the same to the outside world.
    async fn next_generation(&self, key: KeyId) -> KeyResult<u64> {
        let name = notes::step_generation(self.book.namespace(), key.as_bytes());
        let Some(newest) = self.book.store().note(name).await? else {
            return Ok(0);
        };
        let newest: u64 =
            notes::decode(&newest).map_err(|problem| KeyError::Unreadable { key, problem })?;
        Ok(newest + 1)
    }

    async fn origin(&self, key: KeyId) -> KeyResult<Option<Origin>> {
        let in_flight = self.origins().get(&key).cloned();
        if in_flight.is_some() {
            return Ok(in_flight);
        }
        let entry = self.book.look_up(key).await?;
        let Some(EntryState::Done(done)) = entry.map(|entry| entry.state) else {
            return Ok(None);
        };
        let Kept { run, source, .. } = Kept::decode(key, &done.outcome)?;
        Ok(Some(Origin { run, source }))
    }
}

impl Kept {
    fn decode(key: KeyId, bytes: &[u8]) -> KeyResult<Self> {
        notes::decode(bytes).map_err(|problem| KeyError::Unreadable { key, problem })
    }
}

/// A key that a call has. Dropped without an outcome, it is free again.
pub(crate) struct Held {
    keys: Arc<StepKeys>,
    ticket: Option<Ticket>,
    generation: u64,
    origin: Origin,
}

impl Held {
    /// Which outcome of the key this will be, from 0.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Makes the outcome ready to be written with the call's own record.
    ///
    /// # Errors
    ///
    /// If it is too large, or the codec hook fails; the key is free again.
    pub(crate) fn complete(mut self, value: Bytes, ttl: Duration) -> KeyResult<Settlement> {
        let ticket = self.ticket.expect("it is taken out only at the end");
        let kept = notes::encode(&Kept {
            generation: self.generation,
            run: self.origin.run,
            source: self.origin.source.clone(),
            value,
        });
        let recording = self.keys.book.begin_recording(&ticket, kept, ttl)?;
        let recording = recording.expect("a claim without a lease is not taken over");
        self.ticket = None;
        Ok(Settlement {
            keys: self.keys.clone(),
            generation: self.generation,
            recording: Some(recording),
        })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.keys.origins().remove(&ticket.key);
            self.keys.book.release(&ticket);
        }
    }
}

/// An outcome that goes with its executor's record. Dropped before that was handed to the store, the key is free again.
pub(crate) struct Settlement {
    keys: Arc<StepKeys>,
    generation: u64,
    recording: Option<Recording>,
}

impl Settlement {
    fn end(&mut self, durable: bool) {
        if let Some(Recording { ticket, known, .. }) = self.recording.take() {
            self.keys.origins().remove(&ticket.key);
            self.keys.book.settle(&ticket, durable.then_some(known));
        }
    }
}

impl Companion for Settlement {
    fn notes(&self) -> Vec<NoteChange> {
        let Some(recording) = &self.recording else {
            return Vec::new();
        };
        let namespace = self.keys.book.namespace();
        let mut notes = recording.changes(namespace);
        notes.push(NoteChange {
            key: notes::step_generation(namespace, recording.ticket.key.as_bytes()),
            value: Some(notes::encode(&self.generation)),
        });
        notes
    }

    fn size(&self) -> usize {
        self.recording.as_ref().map_or(0, Recording::size)
    }

    fn settle(mut self: Box<Self>, durable: bool) {
        self.end(durable);
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Hands hostile bytes to the reader of what steps share; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(key: KeyId, bytes: &[u8]) {
    let _ = Kept::decode(key, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::payload::Payloads;
    use crate::store::memory::MemoryStore;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_what_is_kept_and_of_a_generation_are_frozen() {
        let kept = Kept {
            generation: 300,
            run: RunId::from_bytes([0xab; 16]),
            source: "src/pay.rs:7".into(),
            value: Bytes::from_static(b"ok"),
        };
        let bytes = notes::encode(&kept);
        let source = hex(b"src/pay.rs:7");
        let expected = format!("01fb2c01{}0c{source}026f6b", "ab".repeat(16));
        assert_eq!(hex(&bytes), expected);
        let key = KeyId::from_bytes([0xcd; 32]);
        assert_eq!(Kept::decode(key, &bytes).expect("reads"), kept);
        assert_eq!(hex(&notes::encode(&300u64)), "01fb2c01");
        let name = notes::step_generation("n", key.as_bytes());
        assert_eq!(
            hex(name.as_bytes()),
            format!("686e0001{}0001", "cd".repeat(32))
        );
    }

    #[tokio::test]
    async fn an_outcome_that_never_came_to_the_store_is_weighed_and_leaves_its_key_to_who_waits() {
        let store = Arc::new(MemoryStore::new());
        let book = Book::new(store, "n".into(), Payloads::default(), Clock::default());
        let keys = StepKeys::new(Arc::new(book));
        let obtain = |run: u8| {
            keys.clone().obtain(Wanted {
                key: KeyId::from_bytes([0xcd; 32]),
                input: Digest::from_bytes([1; 16]),
                run: RunId::from_bytes([run; 16]),
                site: Location::caller(),
            })
        };
        let Ok(Obtained::Mine(held)) = obtain(1).await else {
            panic!("nobody has it");
        };
        let hour = Duration::from_secs(3600);
        let outcome = held.complete(Bytes::from(vec![7; 1_000]), hour);
        let outcome = outcome.expect("is small enough");
        assert!((1_000..1_200).contains(&outcome.size()), "of its bytes");
        assert_eq!(outcome.notes().len(), 3, "row, expiry, generation");
        let mut waiting = std::pin::pin!(obtain(2));
        let moment = Duration::from_millis(5);
        let early = tokio::time::timeout(moment, waiting.as_mut()).await;
        assert!(early.is_err(), "it may be on its way");
        drop(outcome);
        let late = tokio::time::timeout(hour / 120, waiting).await;
        assert!(matches!(late, Ok(Ok(Obtained::Mine(_)))), "it is free");
    }
}
