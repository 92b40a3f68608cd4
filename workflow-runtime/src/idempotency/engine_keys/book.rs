//! Which keys are in flight in this process, and how one becomes done.
//!
//! Owns the table of claims and the order of looking, claiming and recording. Never holds its lock across a
//! read or a write of the store.

mod with;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::super::{
    Busy, Completion, Done, Entry, EntryState, KeyError, KeyId, KeyResult, Reservation, Reserve,
    Ticket,
};
use super::cache::{Cache, Known};
use super::rows::{self, MAX_OUTCOME, Row};
use crate::clock::{Clock, Timestamp};
use crate::digest::Digest;
use crate::engine::notes;
use crate::payload::Payloads;
use crate::store::{Changes, Commit, Committed, Guard, NoteChange, NoteKey, Refusal, Store};

pub(crate) use with::{Completing, Joined};

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
    /// Its outcome is being written: nobody takes it over.
    completing: bool,
    /// What the key's row said when it was taken.
    before: Option<Before>,
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
        let ticket = &mut claimed.ticket;
        if !claimed.completing && (ticket.until <= now || ticket.owner == request.owner) {
            let is_other = ticket.owner != request.owner;
            if is_other {
                state.fence = next_fence(state.fence, now);
                *ticket = ticket_of(request, state.fence, now);
                claimed.body = request.body;
            }
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
                return Ok(Found::Free(Some(Before { bytes, row })));
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
            let outcome = self.payloads.uncode(&coded).map_err(|_| KeyError::Codec)?;
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

    /// Records an outcome, in a task of its own: begun, it is finished, whoever still waits for it.
    pub(super) async fn complete(
        self: Arc<Self>,
        ticket: Ticket,
        outcome: Bytes,
        ttl: Duration,
    ) -> KeyResult<Completion> {
        let coded = match self.payloads.recode(&outcome) {
            Ok(coded) => coded.unwrap_or_else(|| outcome.clone()),
            Err(_) => return Err(KeyError::Codec),
        };
        if coded.len() > MAX_OUTCOME {
            return Err(KeyError::TooLarge {
                bytes: coded.len(),
                limit: MAX_OUTCOME,
            });
        }
        let (before, body) = {
            let mut state = self.lock();
            let Some(claimed) = state.claim_of(&ticket) else {
                return Ok(Completion::Refused);
            };
            if claimed.completing {
                return Ok(Completion::Refused);
            }
            claimed.completing = true;
            (claimed.before.take(), claimed.body)
        };
        let completed_at = self.clock.now();
        let row = Row {
            body,
            since: ticket.since,
            completed_at,
            expires_at: completed_at.after(ttl),
            outcome: coded,
            chunks: 0,
        };
        let recording = async move {
            let known = Known {
                body,
                since: row.since,
                done: Done {
                    outcome,
                    completed_at,
                    expires_at: row.expires_at,
                },
            };
            let written = self.write(ticket.key, row, before).await;
            let is_done = matches!(written, Ok(Completion::Recorded));
            self.settle(&ticket, is_done.then_some(known));
            written
        };
        match tokio::spawn(recording).await {
            Ok(written) => written,
            Err(_) => Err(KeyError::Stopped), // the runtime goes down
        }
    }

    /// Writes a row, unless another engine was faster.
    async fn write(&self, key: KeyId, row: Row, before: Option<Before>) -> KeyResult<Completion> {
        let name = notes::guarded_row(&self.namespace, key.as_bytes());
        let mut before = before;
        loop {
            let mut changes = Vec::new();
            if let Some(before) = &before {
                changes.extend(before.row.removal(&self.namespace, key));
            }
            changes.extend(rows::writing(&self.namespace, key, row.clone()));
            let commit = guarded(name.clone(), before.map(|before| before.bytes), changes);
            match self.store.commit(commit).await? {
                Committed::Done => return Ok(Completion::Recorded),
                Committed::Refused(Refusal::Note { found: None, .. }) => before = None, // it was swept
                Committed::Refused(Refusal::Note {
                    found: Some(bytes), ..
                }) => {
                    let found = Row::decode(key, &bytes)?;
                    if found.expires_at > self.clock.now() {
                        return Ok(Completion::Refused);
                    }
                    before = Some(Before { bytes, row: found });
                }
                Committed::Refused(_) => return Ok(Completion::Refused),
            }
        }
    }

    /// Ends a claim whose outcome was written, or could not be.
    fn settle(&self, ticket: &Ticket, known: Option<Known>) {
        let mut state = self.lock();
        match known {
            Some(known) => state.cache.insert(ticket.key, known),
            None => state.cache.remove(&ticket.key),
        }
        self.remove(&mut state, ticket);
    }

    pub(super) fn release(&self, ticket: &Ticket) {
        let mut state = self.lock();
        if state.claim_of(ticket).is_some_and(|c| !c.completing) {
            self.remove(&mut state, ticket);
        }
    }

    /// Takes a claim out of the table and tells who waits for it.
    fn remove(&self, state: &mut State, ticket: &Ticket) {
        if state.claim_of(ticket).is_none() {
            return;
        }
        if let Some(Slot::Claimed(claimed)) = state.slots.remove(&ticket.key) {
            claimed.gone.notify_waiters();
        }
        self.tell_if_drained(state);
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
            true
        })
    }

    pub(super) async fn look_up(&self, key: KeyId) -> KeyResult<Option<Entry>> {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            if let Some(Slot::Claimed(claimed)) = state.slots.get(&key)
                && (claimed.ticket.until > now || claimed.completing)
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
        let gone = {
            let state = self.lock();
            match state.slots.get(&key) {
                Some(Slot::Claimed(claimed)) => enlist(&claimed.gone),
                Some(Slot::Looked(told)) => enlist(told),
                None => return,
            }
        };
        let _ = tokio::time::timeout(patience, gone).await;
    }
}

/// What the store has of a key.
enum Found {
    /// Nothing, or a row whose time is over.
    Free(Option<Before>),
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

impl State {
    /// The claim that a ticket is for, unless it was taken over or is gone.
    fn claim_of(&mut self, ticket: &Ticket) -> Option<&mut Claimed> {
        match self.slots.get_mut(&ticket.key) {
            Some(Slot::Claimed(claimed)) if claimed.ticket.fence == ticket.fence => Some(claimed),
            _ => None,
        }
    }
}

fn guarded(key: NoteKey, expected: Option<Bytes>, notes: Vec<NoteChange>) -> Commit {
    Commit {
        guards: vec![Guard { key, expected }],
        changes: Changes {
            notes,
            ..Changes::default()
        },
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
