//! How outcomes get on record: one write for one key or several, alone or with what they stand for.
//!
//! Owns the commit in which the rows of keys and what goes with them (a run or a letter that an event causes) are
//! there or are not, and that a claim ends with it, however it comes out. Never lets go of a write that was begun, and
//! never knows what goes with the rows: to it, that is a commit with guards of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::super::{Completion, Done, KeyError, KeyId, KeyResult, Ticket};
use super::super::cache::Known;
use super::super::rows::{self, MAX_CODED, MAX_OUTCOME, Row};
use super::{Before, Book, State, locked, tell};
use crate::clock::Timestamp;
use crate::engine::notes;
use crate::store::{Commit, Committed, Guard, NoteChange, Refusal};

/// A key that is to be completed.
pub(crate) struct Completing {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Bytes,
    pub(crate) ttl: Duration,
}

/// What became of keys that were to be completed with something.
pub(crate) enum Joined {
    /// All is recorded, since then.
    Recorded(Timestamp),
    /// Nothing is: somebody else has one of the keys. The others are held as before.
    Lost,
    /// Nothing is: what was to be written with them was refused. All keys are held as before.
    Refused,
}

/// An outcome on its way to the store.
pub(in super::super) struct Recording {
    pub(in super::super) ticket: Ticket,
    row: Row,
    before: Option<Box<Before>>,
    pub(in super::super) known: Known,
}

impl Recording {
    /// What the key's row must say for it.
    fn guard(&self, namespace: &str) -> Guard {
        Guard {
            key: notes::guarded_row(namespace, self.ticket.key.as_bytes()),
            expected: self.before.as_ref().map(|before| before.bytes.clone()),
        }
    }

    /// What it changes in the store.
    pub(in super::super) fn changes(&self, namespace: &str) -> Vec<NoteChange> {
        let key = self.ticket.key;
        let mut changes = match &self.before {
            Some(before) => before.row.removal(namespace, key),
            None => Vec::new(),
        };
        changes.extend(rows::writing(namespace, key, self.row.clone()));
        changes
    }

    /// How many bytes the outcome has.
    pub(in super::super) fn size(&self) -> usize {
        self.row.outcome.len()
    }
}

/// Outcomes that are being written. Dropped, because the store failed or the runtime goes down, nobody knows what
/// became of them, and their claims end.
struct Writing<'b> {
    book: &'b Book,
    all: Vec<Recording>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        for one in &self.all {
            self.book.settle(&one.ticket, None);
        }
    }
}

impl Book {
    /// Records an outcome, in a task of its own: begun, it is finished, whoever still waits for it.
    pub(in super::super) async fn complete(
        self: Arc<Self>,
        ticket: Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> KeyResult<Completion> {
        // Not in the task: from now on nobody takes the key over, and nobody who goes away frees it.
        let Some(recording) = self.begin_recording(&ticket, outcome, ttl)? else {
            return Ok(Completion::Refused);
        };
        let now = recording.row.completed_at;
        let write = async move { self.write(vec![recording], &Commit::default(), now).await };
        match tokio::spawn(write).await {
            Ok(Ok(Joined::Recorded(_))) => Ok(Completion::Recorded),
            Ok(Ok(Joined::Lost | Joined::Refused)) => Ok(Completion::Refused),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(KeyError::Stopped), // the runtime goes down
        }
    }

    /// Records outcomes and makes a commit, all in one write. To be called in a task of its own: begun, it has
    /// to be finished.
    pub(crate) async fn complete_with(
        &self,
        keys: Vec<Completing>,
        with: &Commit,
    ) -> KeyResult<Joined> {
        let now = self.clock.now();
        match self.enter(keys, now)? {
            Some(recordings) => self.write(recordings, with, now).await,
            None => Ok(Joined::Lost),
        }
    }

    /// Makes an outcome ready to be written. From now on nobody takes the key over, until it is settled. `None`: the
    /// claim was taken over, or is being completed.
    pub(in super::super) fn begin_recording(
        &self,
        ticket: &Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> KeyResult<Option<Recording>> {
        let one = Completing {
            ticket: *ticket,
            outcome,
            ttl,
        };
        let entered = self.enter(vec![one], self.clock.now())?;
        Ok(entered.and_then(|mut all| all.pop()))
    }

    /// Marks all keys as being completed. `None`: not all of them are held any more, and none is marked.
    fn enter(&self, keys: Vec<Completing>, now: Timestamp) -> KeyResult<Option<Vec<Recording>>> {
        let coded = keys
            .iter()
            .map(|one| self.code(one.ticket.key, &one.outcome));
        let coded: Vec<Bytes> = coded.collect::<KeyResult<_>>()?;
        let mut state = self.lock();
        let held = |ticket: &Ticket, state: &mut State| {
            state.claim_of(ticket).is_some_and(|one| !one.completing)
        };
        if !keys.iter().all(|one| held(&one.ticket, &mut state)) {
            return Ok(None);
        }
        let entering = keys.into_iter().zip(coded);
        let entered = entering.filter_map(|(one, coded)| state.enter(one, coded, now));
        Ok(Some(entered.collect()))
    }

    /// What is kept of an outcome.
    fn code(&self, key: KeyId, outcome: &Bytes) -> KeyResult<Bytes> {
        let too_large = |bytes: &Bytes| KeyError::TooLarge {
            bytes: bytes.len(),
            limit: MAX_OUTCOME,
        };
        if outcome.len() > MAX_OUTCOME {
            return Err(too_large(outcome));
        }
        let coded = match self.payloads_of(key).recode(outcome) {
            Ok(coded) => coded.unwrap_or_else(|| outcome.clone()),
            Err(error) => return Err(locked(key, error)),
        };
        match coded.len() > MAX_CODED {
            true => Err(too_large(&coded)),
            false => Ok(coded),
        }
    }

    /// Writes rows and what goes with them, unless another engine was faster.
    async fn write(
        &self,
        recordings: Vec<Recording>,
        with: &Commit,
        now: Timestamp,
    ) -> KeyResult<Joined> {
        let mut writing = Writing {
            book: self,
            all: recordings,
        };
        loop {
            let (at, found) = match self.store.commit(writing.commit(with)).await? {
                Committed::Done => {
                    for one in writing.all.drain(..) {
                        self.settle(&one.ticket, Some(one.known));
                    }
                    return Ok(Joined::Recorded(now));
                }
                // The keys' own guards are the first ones.
                Committed::Refused(Refusal::Note { guard, found }) if guard < writing.all.len() => {
                    (guard, found)
                }
                Committed::Refused(_) => {
                    writing.step_back();
                    return Ok(Joined::Refused);
                }
            };
            let one = &mut writing.all[at];
            one.before = match found {
                None => None, // it was swept
                Some(bytes) => match Row::decode(one.ticket.key, &bytes) {
                    Ok(row) if row.expires_at <= now => Some(Box::new(Before { bytes, row })),
                    // Another engine has it, or nobody can say.
                    other => {
                        let lost = writing.all.swap_remove(at);
                        self.settle(&lost.ticket, None);
                        writing.step_back();
                        return other.map(|_| Joined::Lost);
                    }
                },
            };
        }
    }

    /// Ends a claim whose outcome was written, or could not be.
    pub(in super::super) fn settle(&self, ticket: &Ticket, known: Option<Known>) {
        let mut state = self.lock();
        match known {
            Some(known) => state.cache.insert(ticket.key, known),
            None => state.cache.remove(&ticket.key),
        }
        let gone = self.remove(&mut state, ticket);
        drop(state);
        tell(gone);
    }
}

impl State {
    /// Marks a key that is held as being completed.
    fn enter(&mut self, one: Completing, coded: Bytes, now: Timestamp) -> Option<Recording> {
        let claimed = self.claim_of(&one.ticket)?;
        claimed.completing = true;
        let (body, since, expires_at) = (claimed.body, one.ticket.since, now.after(one.ttl));
        Some(Recording {
            ticket: one.ticket,
            row: Row {
                body,
                since,
                completed_at: now,
                expires_at,
                outcome: coded,
                chunks: 0,
            },
            before: claimed.before.take(),
            known: Known {
                body,
                since,
                done: Done {
                    outcome: one.outcome,
                    completed_at: now,
                    expires_at,
                },
            },
        })
    }
}

impl Writing<'_> {
    /// The one write: the keys' own guards first.
    fn commit(&self, with: &Commit) -> Commit {
        let namespace = self.book.namespace();
        let guards = self.all.iter().map(|one| one.guard(namespace));
        let mut commit = Commit {
            guards: guards.chain(with.guards.iter().cloned()).collect(),
            changes: with.changes.clone(),
        };
        for one in &self.all {
            commit.changes.notes.extend(one.changes(namespace));
        }
        commit
    }

    /// The keys are held as before.
    fn step_back(&mut self) {
        let mut state = self.book.lock();
        for one in self.all.drain(..) {
            if let Some(claimed) = state.claim_of(&one.ticket) {
                claimed.completing = false;
                claimed.before = one.before;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::{OwnerId, Reservation, Reserve};
    use super::*;
    use crate::clock::Clock;
    use crate::digest::Digest;
    use crate::payload::{PayloadCodec, Payloads};
    use crate::store::memory::MemoryStore;
    use crate::store::{NoteKey, Store};

    const HOUR: Duration = Duration::from_secs(3600);

    fn book(store: &MemoryStore, payloads: Payloads) -> Arc<Book> {
        let store: Arc<dyn Store> = Arc::new(store.clone());
        Arc::new(Book::new(store, "n".into(), payloads, Clock::default()))
    }

    async fn take(book: &Book, key: u8) -> Ticket {
        let request = Reserve {
            key: KeyId::from_bytes([key; 32]),
            body: Digest::from_bytes([1; 16]),
            owner: OwnerId::next(),
            lease: HOUR,
        };
        match book.reserve(request).await {
            Ok(Reservation::New(ticket)) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn completing(ticket: Ticket) -> Completing {
        Completing {
            ticket,
            outcome: Bytes::from_static(b"done"),
            ttl: HOUR,
        }
    }

    #[tokio::test]
    async fn keys_are_held_as_before_if_what_goes_with_their_outcomes_is_refused() {
        let book = book(&MemoryStore::new(), Payloads::default());
        let tickets = [take(&book, 1).await, take(&book, 2).await];
        let all = || tickets.map(completing).into_iter().collect();
        let with = |expected| Commit {
            guards: vec![Guard {
                key: NoteKey::new(0x70, &[b"of another"]),
                expected,
            }],
            ..Commit::default()
        };
        for _ in 0..2 {
            let refused = with(Some(Bytes::from_static(b"is not there")));
            let joined = book.complete_with(all(), &refused).await;
            assert!(matches!(joined, Ok(Joined::Refused)));
        }
        let joined = book.complete_with(all(), &with(None)).await;
        assert!(matches!(joined, Ok(Joined::Recorded(_))));
    }

    #[tokio::test]
    async fn an_outcome_of_another_engine_that_is_over_gives_way_and_one_that_is_not_stays() {
        for (ttl, expected) in [
            (Duration::ZERO, Completion::Recorded),
            (HOUR, Completion::Refused),
        ] {
            let store = MemoryStore::new();
            let [ours, theirs] = [(); 2].map(|()| book(&store, Payloads::default()));
            let (our, their) = (take(&ours, 1).await, take(&theirs, 1).await);
            let value = |text: &'static str| Bytes::from_static(text.as_bytes());
            let first = theirs.complete(their, value("theirs"), ttl).await;
            assert_eq!(first.expect("is written"), Completion::Recorded);
            let second = ours.clone().complete(our, value("ours"), HOUR).await;
            assert_eq!(second.expect("is judged"), expected, "{ttl:?}");
        }
    }

    /// Makes as many bytes of everything.
    struct Swelling(usize);

    impl PayloadCodec for Swelling {
        fn encode(&self, _: Vec<u8>) -> Result<Vec<u8>, String> {
            Ok(vec![0; self.0])
        }

        fn decode(&self, _: &[u8]) -> Result<Vec<u8>, String> {
            Err("is not asked".into())
        }
    }

    #[test]
    fn what_a_codec_makes_of_an_outcome_may_be_of_a_size_and_not_of_more() {
        for (bytes, fits) in [
            (MAX_CODED - 1, true),
            (MAX_CODED, true),
            (MAX_CODED + 1, false),
            (MAX_CODED + 2, false),
        ] {
            let codec = Arc::new(Swelling(bytes));
            let payloads = Payloads::new(1024, Some(codec), &"n".into());
            let book = book(&MemoryStore::new(), payloads);
            let key = KeyId::from_bytes([1; 32]);
            let coded = book.code(key, &Bytes::from_static(b"small"));
            match (coded, fits) {
                (Ok(coded), true) => assert_eq!(coded.len(), bytes),
                (Err(KeyError::TooLarge { bytes: said, .. }), false) => assert_eq!(said, bytes),
                (other, _) => panic!("{bytes}: {:?}", other.map(|coded| coded.len())),
            }
        }
    }
}
