//! What a group must know to judge what is queued: memory, the database, and what the group
//! itself is about to change.
//!
//! Owns the look at all three, in this order: the group, memory, the database. Runs that
//! sleep are taken back into memory here if something is to happen to them. Never writes.

use std::collections::HashMap;

use bytes::Bytes;

use super::reads;
use super::segment::Stored;
use super::shared::Shared;
use super::table::{Live, Table};
use crate::id_map::{IdMap, IdSet};
use crate::ids::RunId;
use crate::store::{
    EndKind, Epoch, Mail, Newest, NoteKey, Reopening, RunEnd, RunHeader, RunState, StoreError,
    StoreResult,
};

/// What a group is about to change, as far as what follows in it depends on that.
#[derive(Debug, Default)]
pub(super) struct Judge {
    created: IdMap<RunId, RunHeader>,
    ended: IdMap<RunId, RunEnd>,
    revived: IdSet<RunId>,
    /// Which letters of runs were taken, and the numbers of their next ones.
    letters: IdMap<RunId, (u64, u64)>,
    notes: HashMap<NoteKey, Option<Bytes>>,
    /// Runs that are about to sleep in the log, unless something comes for them in this group.
    dozing: IdSet<RunId>,
    /// Runs that must stay in memory until the group is published.
    pinned: Vec<RunId>,
}

/// Whether a run takes letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recipient {
    Takes,
    Ended,
    Unknown,
}

impl Judge {
    pub(super) fn clear(&mut self) {
        self.created.clear();
        self.ended.clear();
        self.revived.clear();
        self.letters.clear();
        self.notes.clear();
        self.dozing.clear();
    }

    /// Says whether letters come to a run, or are taken, with this group.
    pub(super) fn knows_letters(&self, live: &Live) -> bool {
        let known = self.letters.get(&live.header.run);
        known.is_some_and(|known| *known != letters_of(live))
    }

    /// Remembers that a run is about to sleep in the log.
    pub(super) fn dozes(&mut self, run: RunId) {
        self.dozing.insert(run);
    }

    /// Returns the runs that need not stay in memory because of this group any more.
    pub(super) fn unpin(&mut self) -> Vec<RunId> {
        std::mem::take(&mut self.pinned)
    }

    /// Remembers that a queued operation keeps a run in memory.
    pub(super) fn pinned(&mut self, run: RunId) {
        self.pinned.push(run);
    }

    /// Looks a run up that left memory.
    fn shelved(&self, shared: &Shared, run: RunId) -> StoreResult<Option<Stored>> {
        if let Some((_, slumber)) = shared.dozing(run)? {
            return Ok(Some(slumber.stored));
        }
        let guard = shared.database();
        let database = guard.as_ref().expect("only the committer takes it away");
        reads::shelved(database, run)
    }

    /// Returns the header of the run that has the id already.
    pub(super) fn existing(&self, shared: &Shared, run: RunId) -> StoreResult<Option<RunHeader>> {
        if let Some(created) = self.created.get(&run) {
            return Ok(Some(created.clone()));
        }
        loop {
            let departures = {
                let state = shared.lock();
                if let Some(live) = state.table.runs.get(&run) {
                    return Ok(Some(live.header.clone()));
                }
                state.table.departures
            };
            if let Some(stored) = self.shelved(shared, run)? {
                return Ok(Some(stored.header));
            }
            if shared.lock().table.is_nowhere(run, departures) {
                return Ok(None);
            }
        }
    }

    pub(super) fn create(&mut self, header: &RunHeader) {
        self.created.insert(header.run, header.clone());
    }

    pub(super) fn end(&mut self, run: RunId, end: RunEnd) {
        self.ended.insert(run, end);
        self.revived.remove(&run);
    }

    /// Says whether a run takes letters. If so it is in memory, or will be with this group.
    pub(super) fn recipient(&mut self, shared: &Shared, run: RunId) -> StoreResult<Recipient> {
        if self.ended.contains_key(&run) {
            return Ok(Recipient::Ended);
        }
        if self.dozing.remove(&run)
            && let Some(live) = shared.lock().table.runs.get_mut(&run)
        {
            // What comes for it is put where it is now: so it stays.
            live.pins += 1;
            self.pinned.push(run);
        }
        if self.created.contains_key(&run) || self.letters.contains_key(&run) {
            return Ok(Recipient::Takes);
        }
        let stored = loop {
            let departures = {
                let mut state = shared.lock();
                if let Some(recipient) = self.recipient_in(&mut state.table, run) {
                    return Ok(recipient);
                }
                state.table.departures
            };
            if shared.rouse(run)? {
                continue;
            }
            if let Some(stored) = self.shelved(shared, run)? {
                break stored;
            }
            if shared.lock().table.is_nowhere(run, departures) {
                return Ok(Recipient::Unknown);
            }
        };
        if matches!(stored.header.state, RunState::Ended(_)) {
            return Ok(Recipient::Ended);
        }
        let mut state = shared.lock();
        take_back(&mut state.table, stored);
        let found = self.recipient_in(&mut state.table, run);
        Ok(found.expect("it was just taken back"))
    }

    /// Returns who takes the letters to a run that went on as a new one: the newest of its line.
    pub(super) fn heir(&self, shared: &Shared, run: RunId) -> StoreResult<Option<RunId>> {
        let Some(mut header) = self.existing(shared, run)? else {
            return Ok(None);
        };
        if let Some(end) = self.ended.get(&run) {
            header.state = RunState::Ended(*end);
        }
        if !header.went_on() {
            return Ok(None);
        }
        let note = self.note(shared, &Newest::key(header.first_of_line()))?;
        let newest = note.as_deref().and_then(Newest::decode);
        Ok(newest.map(|newest| newest.run).filter(|heir| *heir != run))
    }

    /// Returns the number of the first letter to a run that was not taken, and those that wait as far as
    /// committed.
    pub(super) fn waiting(&mut self, shared: &Shared, run: RunId) -> (u64, Vec<Mail>) {
        let from = *self.mail(shared, run).0;
        let state = shared.lock();
        let live = state.table.runs.get(&run);
        let mailbox = live.and_then(|live| live.mailbox.as_ref());
        let waiting = mailbox.map_or_else(Vec::new, |mailbox| mailbox.from(from));
        (from, waiting)
    }

    fn recipient_in(&mut self, table: &mut Table, run: RunId) -> Option<Recipient> {
        let live = table.runs.get_mut(&run)?;
        if live.ended() && !self.revived.contains(&run) {
            return Some(Recipient::Ended);
        }
        live.pins += 1;
        self.pinned.push(run);
        self.letters.insert(run, letters_of(live));
        Some(Recipient::Takes)
    }

    /// Returns the number of the next letter to a run that takes letters.
    pub(super) fn number(&mut self, run: RunId) -> u64 {
        let (_, next) = self.letters.entry(run).or_default();
        *next += 1;
        *next - 1
    }

    /// Takes letters below a number, and returns below which one there were any.
    pub(super) fn take(&mut self, shared: &Shared, run: RunId, below: u64) -> u64 {
        let (taken, next) = self.mail(shared, run);
        let below = below.min(next);
        *taken = below.max(*taken);
        below
    }

    /// Says whether letters wait for a run in memory.
    pub(super) fn has_mail(&mut self, shared: &Shared, run: RunId) -> bool {
        let (taken, next) = self.mail(shared, run);
        *taken < next
    }

    fn mail(&mut self, shared: &Shared, run: RunId) -> (&mut u64, u64) {
        let (taken, next) = self.letters.entry(run).or_insert_with(|| {
            let state = shared.lock();
            state
                .table
                .runs
                .get(&run)
                .map_or((0, 0), |live| letters_of(live))
        });
        (taken, *next)
    }

    /// Returns what a note says.
    pub(super) fn note(&self, shared: &Shared, key: &NoteKey) -> StoreResult<Option<Bytes>> {
        if let Some(value) = self.notes.get(key) {
            return Ok(value.clone());
        }
        if let Some(value) = shared.lock().ledger.notes.get(key) {
            return Ok(value);
        }
        let guard = shared.database();
        let database = guard.as_ref().expect("only the committer takes it away");
        reads::note(database, key)
    }

    pub(super) fn change_note(&mut self, key: NoteKey, value: Option<Bytes>) {
        self.notes.insert(key, value);
    }

    /// Says whether a failed run can be taken up again. If so it is in memory, and has the
    /// epoch that is returned once the group is published. The outer error stops the store.
    pub(super) fn revive(
        &mut self,
        shared: &Shared,
        reopening: &Reopening,
    ) -> StoreResult<StoreResult<Epoch>> {
        let run = reopening.run;
        // From the look at the table until it is pinned under one lock: the archiver may be about to put it away.
        let mut state = loop {
            let departures = {
                let state = shared.lock();
                if state.table.runs.contains_key(&run) {
                    break state;
                }
                if state.table.deleting.contains(&run) {
                    return Ok(Err(StoreError::UnknownRun { run }));
                }
                state.table.departures
            };
            if shared.rouse(run)? {
                continue;
            }
            let Some(stored) = self.shelved(shared, run)? else {
                if shared.lock().table.is_nowhere(run, departures) {
                    return Ok(Err(StoreError::UnknownRun { run }));
                }
                continue;
            };
            if let Err(refused) = fits(reopening, stored.header.end(), stored.frames) {
                return Ok(Err(refused));
            }
            let mut state = shared.lock();
            // It may have been deleted since it was looked up.
            if state.table.departures == departures && !state.table.deleting.contains(&run) {
                take_back(&mut state.table, stored);
            }
        };
        let table = &mut state.table;
        let epoch = table.next_epoch();
        let live = table.runs.get_mut(&run).expect("it was just looked at");
        let end = match self.revived.contains(&run) {
            true => None,
            false => live.header.end().or(self.ended.get(&run).copied()),
        };
        if let Err(refused) = fits(reopening, end, live.next_seq) {
            return Ok(Err(refused));
        }
        live.pins += 1;
        self.pinned.push(run);
        self.ended.remove(&run);
        self.revived.insert(run);
        Ok(Ok(epoch))
    }
}

/// Says whether a frame takes up a run that ended like this, with so many frames.
fn fits(reopening: &Reopening, end: Option<RunEnd>, expected: u64) -> StoreResult<()> {
    let run = reopening.run;
    if end.is_none_or(|end| end.kind != EndKind::Failed) {
        return Err(StoreError::Ended { run });
    }
    if reopening.seq != expected {
        let got = reopening.seq;
        return Err(StoreError::OutOfOrder { run, expected, got });
    }
    Ok(())
}

fn letters_of(live: &Live) -> (u64, u64) {
    let mailbox = live.mailbox.as_ref();
    mailbox.map_or((0, 0), |mail| (mail.taken, mail.next))
}

/// Takes a run back into memory, unless somebody else did meanwhile.
pub(super) fn take_back(table: &mut Table, stored: Stored) {
    if !table.runs.contains_key(&stored.header.run) {
        let pieces = super::keys::pieces_of(stored.encode());
        table.insert(Live::from_shelf(stored, pieces));
    }
}
