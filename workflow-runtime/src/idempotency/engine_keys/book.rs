//! Which keys are in flight in this process, and how one becomes done.
//!
//! Owns the table of claims and the order of looking, claiming and recording. Never holds its lock across a
//! read or a write of the store.

mod recording;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Instant;

pub(super) use self::recording::Recording;
pub(crate) use self::recording::{Completing, Joined};
use super::super::{
    Busy, Done, Entry, EntryState, KeyError, KeyId, KeyResult, Reservation, Reserve, Ticket,
};
use super::cache::{Cache, Known};
use super::rows::Row;
use crate::clock::{Clock, Timestamp};
use crate::digest::Digest;
use crate::engine::notes;
use crate::payload::{self, PayloadError, Payloads};
use crate::store::{Store, StoreError};

/// The keys of one namespace in one process.
pub(crate) struct Book {
    store: Arc<dyn Store>,
    namespace: Arc<str>,
    payloads: Payloads,
    clock: Clock,
    state: Mutex<State>,
    /// Notified when the last claim is gone.
    drained: Notify,
}

#[derive(Default)]
struct State {
    slots: HashMap<KeyId, Slot>,
    cache: Cache,
    /// The number of the newest claim.
    fence: u64,
    closing: bool,
}

/// A key that somebody is busy with.
enum Slot {
    /// Somebody looks it up; the others wait for that.
    Looked(Arc<Notify>),
    Claimed(Claimed),
}

struct Claimed {
    ticket: Ticket,
    body: Digest,
    /// When the claim ends, by a clock that nobody sets: two callers must not work at once because of one that was.
    /// `None`: never, for a lease that no clock can count.
    ends: Option<Instant>,
    /// Its outcome is being written: nobody takes it over.
    completing: bool,
    /// What the key's row said when it was taken.
    before: Option<Box<Before>>,
    /// Notified when the claim is gone.
    gone: Arc<Notify>,
}

/// A row whose time was over.
struct Before {
    bytes: Bytes,
    row: Row,
}

/// What a look at the table gave.
enum Seen {
    Answer(Reservation),
    /// Somebody looks the key up.
    Wait(OwnedNotified),
    /// The caller is to look it up.
    Look(Looking),
}

/// The duty to look a key up. Dropped, somebody else does.
struct Looking {
    told: Arc<Notify>,
}

impl Book {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        namespace: Arc<str>,
        payloads: Payloads,
        clock: Clock,
    ) -> Self {
        Self {
            store,
            namespace,
            payloads,
            clock,
            state: Mutex::default(),
            drained: Notify::new(),
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The most bytes of a value that is kept under a key.
    pub(crate) fn payloads(&self) -> Payloads {
        self.payloads.without_codec()
    }

    /// How what is kept under a key is coded.
    fn payloads_of(&self, key: KeyId) -> Payloads {
        let place = payload::Place::guarded_outcome(key.as_bytes());
        self.payloads.at(place)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no key be taken any more; what is in flight may be completed.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn drained(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            drained.as_mut().enable();
            if self.lock().slots.is_empty() {
                return;
            }
            drained.await;
        }
    }

    pub(super) async fn reserve(&self, request: Reserve) -> KeyResult<Reservation> {
        loop {
            let seen = self.see(&request)?;
            match seen {
                Seen::Answer(answer) => return Ok(answer),
                Seen::Wait(told) => told.await,
                Seen::Look(looking) => {
                    let duty = Duty {
                        book: self,
                        key: request.key,
                        looking: Some(looking),
                    };
                    let found = self.read(request.key).await?;
                    return Ok(duty.claim(&request, found));
                }
            }
        }
    }

    /// Looks at what is in memory.
    fn see(&self, request: &Reserve) -> KeyResult<Seen> {
        let now = self.clock.now();
        let mut state = self.lock();
        let state = &mut *state;
        if state.closing {
            if let Some(error) = self.store.failure() {
                return Err(StoreError::Failed { error }.into());
            }
            return Err(KeyError::Stopped);
        }
        let slot = match state.slots.entry(request.key) {
            Place::Occupied(slot) => slot.into_mut(),
            Place::Vacant(place) => {
                if let Some(known) = state.cache.get(&request.key, now) {
                    return Ok(Seen::Answer(answer(known, request.body)));
                }
                let told = Arc::new(Notify::new());
                place.insert(Slot::Looked(told.clone()));
                return Ok(Seen::Look(Looking { told }));
            }
        };
        let claimed = match slot {
            Slot::Looked(told) => return Ok(Seen::Wait(enlist(told))),
            Slot::Claimed(claimed) => claimed,
        };
        let is_same = claimed.ticket.owner == request.owner;
        if !is_same && claimed.has_ended() {
            // Its end was judged by another clock, and after the time was read.
            let now = now.max(claimed.ticket.until);
            state.fence = next_fence(state.fence, now);
            claimed.ticket = ticket_of(request, state.fence, now);
            claimed.ends = ending(request.lease);
            claimed.body = request.body;
            return Ok(Seen::Answer(Reservation::New(claimed.ticket)));
        }
        let ticket = &claimed.ticket;
        if is_same && !claimed.completing {
            return Ok(Seen::Answer(Reservation::New(*ticket)));
        }
        Ok(Seen::Answer(match claimed.body == request.body {
            true => Reservation::InFlight(busy(ticket)),
            false => Reservation::OtherBody {
                first: claimed.body,
                since: ticket.since,
            },
        }))
    }

    /// Reads a key's row from the store.
    async fn read(&self, key: KeyId) -> KeyResult<Found> {
        let name = notes::guarded_row(&self.namespace, key.as_bytes());
        loop {
            let Some(bytes) = self.store.note(name.clone()).await? else {
                return Ok(Found::Free(None));
            };
            let row = Row::decode(key, &bytes)?;
            if row.expires_at <= self.clock.now() {
                return Ok(Found::Free(Some(Box::new(Before { bytes, row }))));
            }
            let whole = row.outcome(&*self.store, &self.namespace, key).await?;
            let Some(coded) = whole else {
                // Another engine may have replaced it meanwhile; if not, it is damaged.
                if self.store.note(name.clone()).await? == Some(bytes) {
                    let problem = "a part of its outcome is missing".to_owned();
                    return Err(KeyError::Unreadable { key, problem });
                }
                continue;
            };
            let outcome = self.payloads_of(key);
            let outcome = outcome.uncode(&coded).map_err(|error| locked(key, error))?;
            return Ok(Found::Done(Known {
                body: row.body,
                since: row.since,
                done: Done {
                    outcome: outcome.map_or(coded, Bytes::from),
                    completed_at: row.completed_at,
                    expires_at: row.expires_at,
                },
            }));
        }
    }

    pub(super) fn release(&self, ticket: &Ticket) {
        let mut state = self.lock();
        if state.claim_of(ticket).is_some_and(|c| !c.completing) {
            let gone = self.remove(&mut state, ticket);
            drop(state);
            tell(gone);
        }
    }

    /// Takes a claim out of the table. Who waits for it is to be told without the lock: its waker may be a user's.
    fn remove(&self, state: &mut State, ticket: &Ticket) -> Option<Arc<Notify>> {
        state.claim_of(ticket)?;
        let slot = state.slots.remove(&ticket.key);
        self.tell_if_drained(state);
        match slot? {
            Slot::Claimed(claimed) => Some(claimed.gone),
            Slot::Looked(told) => Some(told),
        }
    }

    fn tell_if_drained(&self, state: &State) {
        if state.slots.is_empty() {
            self.drained.notify_waiters();
        }
    }

    pub(super) fn extend(&self, ticket: &Ticket, lease: Duration) -> bool {
        let mut state = self.lock();
        let claimed = state.claim_of(ticket);
        claimed.is_some_and(|claimed| {
            claimed.ticket.until = self.clock.now().after(lease);
            claimed.ends = ending(lease);
            true
        })
    }

    pub(super) async fn look_up(&self, key: KeyId) -> KeyResult<Option<Entry>> {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            if let Some(Slot::Claimed(claimed)) = state.slots.get(&key)
                && !claimed.has_ended()
            {
                return Ok(Some(Entry {
                    body: claimed.body,
                    state: EntryState::InFlight(busy(&claimed.ticket)),
                }));
            }
            if let Some(known) = state.cache.get(&key, now) {
                return Ok(Some(entry(known.clone())));
            }
        }
        Ok(match self.read(key).await? {
            Found::Done(known) => Some(entry(known)),
            Found::Free(_) => None,
        })
    }

    pub(super) async fn changed(&self, key: KeyId, patience: Duration) {
        let Some(gone) = self.gone(key) else {
            return;
        };
        tokio::select! {
            _ = tokio::time::timeout(patience, gone) => {}
            // No outcome will come, however long the claim is. The engine may learn of it later than this.
            _ = self.store.failed() => self.close(),
        }
    }

    /// Resolves when who is busy with a key is done. `None`: nobody is.
    pub(super) fn gone(&self, key: KeyId) -> Option<OwnedNotified> {
        match self.lock().slots.get(&key)? {
            Slot::Claimed(claimed) => Some(enlist(&claimed.gone)),
            Slot::Looked(told) => Some(enlist(told)),
        }
    }
}

/// What the store has of a key.
enum Found {
    /// Nothing, or a row whose time is over.
    Free(Option<Box<Before>>),
    Done(Known),
}

/// Ends a look: with what was found, or, dropped, with nothing.
struct Duty<'b> {
    book: &'b Book,
    key: KeyId,
    looking: Option<Looking>,
}

impl Duty<'_> {
    /// Enters what was found, and answers with it.
    fn claim(mut self, request: &Reserve, found: Found) -> Reservation {
        let now = self.book.clock.now();
        let mut state = self.book.lock();
        let looking = self.looking.take();
        let reservation = match found {
            Found::Done(known) => {
                state.slots.remove(&self.key);
                let reservation = answer(&known, request.body);
                state.cache.insert(self.key, known);
                self.book.tell_if_drained(&state);
                reservation
            }
            Found::Free(before) => {
                state.fence = next_fence(state.fence, now);
                let ticket = ticket_of(request, state.fence, now);
                let claimed = Claimed {
                    ticket,
                    body: request.body,
                    ends: ending(request.lease),
                    completing: false,
                    before,
                    gone: Arc::new(Notify::new()),
                };
                state.slots.insert(self.key, Slot::Claimed(claimed));
                Reservation::New(ticket)
            }
        };
        drop(state);
        if let Some(looking) = looking {
            looking.told.notify_waiters();
        }
        reservation
    }
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if let Some(looking) = self.looking.take() {
            let mut state = self.book.lock();
            state.slots.remove(&self.key);
            self.book.tell_if_drained(&state);
            drop(state);
            looking.told.notify_waiters();
        }
    }
}

impl Claimed {
    /// Says whether another caller may take it over.
    fn has_ended(&self) -> bool {
        !self.completing && self.ends.is_some_and(|ends| ends <= Instant::now())
    }
}

impl State {
    /// The claim that a ticket is for, unless it was taken over or is gone.
    fn claim_of(&mut self, ticket: &Ticket) -> Option<&mut Claimed> {
        match self.slots.get_mut(&ticket.key) {
            Some(Slot::Claimed(claimed)) if claimed.ticket.fence == ticket.fence => Some(claimed),
            _ => None,
        }
    }
}

fn tell(gone: Option<Arc<Notify>>) {
    if let Some(gone) = gone {
        gone.notify_waiters();
    }
}

fn enlist(notify: &Arc<Notify>) -> OwnedNotified {
    // Told from here on: it counts the calls of `notify_waiters` since it was made.
    notify.clone().notified_owned()
}

/// Later claims have higher numbers, also after a restart as long as the clock goes on.
fn next_fence(last: u64, now: Timestamp) -> u64 {
    now.as_micros().max(last + 1)
}

fn ending(lease: Duration) -> Option<Instant> {
    Instant::now().checked_add(lease)
}

fn ticket_of(request: &Reserve, fence: u64, now: Timestamp) -> Ticket {
    Ticket {
        key: request.key,
        owner: request.owner,
        fence,
        since: now,
        until: now.after(request.lease),
    }
}

fn busy(ticket: &Ticket) -> Busy {
    Busy {
        since: ticket.since,
        until: ticket.until,
    }
}

fn answer(known: &Known, body: Digest) -> Reservation {
    match known.body == body {
        true => Reservation::Done(known.done.clone()),
        false => Reservation::OtherBody {
            first: known.body,
            since: known.since,
        },
    }
}

fn entry(known: Known) -> Entry {
    Entry {
        body: known.body,
        state: EntryState::Done(known.done),
    }
}

/// Says why the codec did not let an outcome pass, with its text only if that quotes no value.
fn locked(key: KeyId, problem: PayloadError) -> KeyError {
    match problem {
        PayloadError::Locked(problem) => KeyError::Unreadable { key, problem },
        _ => KeyError::Codec,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;
    use crate::store::Commit;
    use crate::store::memory::MemoryStore;

    #[test]
    fn a_later_claim_has_a_higher_number_whether_the_clock_goes_on_stands_or_goes_back() {
        let at = Timestamp::from_micros;
        let first = next_fence(0, at(1_000));
        assert_eq!(first, 1_000, "after a restart it goes on with the clock");
        let mut last = first;
        for now in [1_000, 1_000, 999, 0, 1_001, 5_000] {
            let next = next_fence(last, at(now));
            assert!(next > last && next >= now, "{last} {next} at {now}");
            last = next;
        }
        assert_eq!(last, 5_000);
    }

    #[tokio::test]
    async fn an_outcome_of_which_a_part_is_gone_cannot_be_read_and_is_not_waited_for() {
        let store = Arc::new(MemoryStore::new());
        let key = KeyId::from_bytes([1; 32]);
        let row = Row {
            body: Digest::from_bytes([2; 16]),
            since: Timestamp::default(),
            completed_at: Timestamp::default(),
            expires_at: Timestamp::from_micros(u64::MAX),
            outcome: vec![7; 2 * rows::CHUNK].into(),
            chunks: 0,
        };
        let mut commit = Commit::default();
        commit.changes.notes = rows::writing("n", key, row);
        commit.changes.notes.remove(0); // the part behind the row
        store.commit(commit).await.expect("is written");
        let book = Book::new(store, "n".into(), Payloads::default(), Clock::default());
        let looking = tokio::time::timeout(Duration::from_secs(30), book.look_up(key));
        let found = looking.await.expect("is answered");
        assert!(matches!(found, Err(KeyError::Unreadable { key: named, .. }) if named == key));
    }
}
