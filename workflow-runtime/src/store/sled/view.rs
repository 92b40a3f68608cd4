//! Runs and notes as a reader sees them: what is in memory and what left it, together.
//!
//! Owns the merge of memory with the database. What is in memory counts: of a run that came
//! back the database may still say that it sleeps. Memory is looked at first, because things
//! go to the database before they leave it. Never writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::database::Database;
use super::doze::{Slumber, Turn};
use super::judge::take_back;
use super::layout::{ALWAYS_KEPT, Layout};
use super::op::Op;
use super::reads;
use super::shared::Shared;
use super::table::{Live, Table};
use crate::clock::Timestamp;
use crate::id_map::IdSet;
use crate::ids::RunId;
use crate::store::{
    Epoch, Mail, NoteKey, RunHeader, RunOrder, RunPosition, RunQuery, RunState, Sleeper,
    StoreError, StoreResult,
};

/// How often notes are read again if an archive was made meanwhile.
const TRIES: usize = 4;

/// What is known of a run at one moment.
pub(super) struct Snapshot {
    pub(super) header: RunHeader,
    /// The number behind the last frame in segments.
    archived: u64,
    /// Records from 2 up to this number were forgotten.
    pub(super) kept_from: u64,
    /// The committed frames after those in segments, with their numbers.
    tail: Vec<(u64, Bytes)>,
    pub(super) mail: Vec<Mail>,
    pub(super) next_letter: u64,
}

impl Snapshot {
    fn of(live: &Live) -> Self {
        let mailbox = live.mailbox.as_ref();
        Self {
            header: live.header.clone(),
            archived: live.archived,
            kept_from: live.kept_from(),
            tail: live
                .numbered()
                .map(|(seq, frame)| (seq, frame.clone()))
                .collect(),
            mail: mailbox.map_or_else(Vec::new, |mail| mail.from(0)),
            next_letter: mailbox.map_or(0, |mail| mail.next),
        }
    }

    fn asleep_in_log(slumber: Slumber) -> Self {
        let Slumber { stored, frames } = slumber;
        Self {
            header: stored.header,
            archived: 0,
            kept_from: 0,
            tail: (0..).zip(frames).collect(),
            mail: Vec::new(),
            next_letter: stored.next_letter,
        }
    }

    /// Finds a run in memory, in the log or in the database.
    pub(super) fn find(
        shared: &Shared,
        database: &Database,
        run: RunId,
    ) -> StoreResult<Option<Self>> {
        let stored = loop {
            let departures = {
                let state = shared.lock();
                if let Some(live) = state.table.runs.get(&run) {
                    return Ok(Some(Self::of(live)));
                }
                state.table.departures
            };
            if let Some((_, slumber)) = shared.dozing(run)? {
                return Ok(Some(Self::asleep_in_log(slumber)));
            }
            if let Some(stored) = reads::shelved(database, run)? {
                break stored;
            }
            if shared.lock().table.is_nowhere(run, departures) {
                return Ok(None);
            }
        };
        Ok(Some(Self {
            header: stored.header,
            archived: stored.frames,
            kept_from: stored.kept_from,
            tail: Vec::new(),
            mail: Vec::new(),
            next_letter: stored.next_letter,
        }))
    }

    /// Reads frames of the run. Those that it forgot are an error.
    fn frames(&self, database: &Database, from: u64, limit: usize) -> StoreResult<Vec<Bytes>> {
        let layout = Layout {
            start: 0,
            kept_from: self.kept_from,
        };
        let end = self.tail.last().map_or(self.archived, |(seq, _)| seq + 1);
        if layout.misses(from, from.saturating_add(limit as u64).min(end)) {
            return Err(StoreError::Forgotten {
                run: self.header.run,
                kept_from: self.kept_from,
            });
        }
        let at = self.header.position();
        let mut frames = reads::segment_frames(database, at, from, self.archived, limit)?;
        let room = limit - frames.len();
        let tail = self.tail.iter().filter(|(seq, _)| *seq >= from);
        frames.extend(tail.take(room).map(|(_, frame)| frame.clone()));
        Ok(frames)
    }

    /// Reads all frames of the run that are there.
    fn all_frames(&self, database: &Database) -> StoreResult<Vec<Bytes>> {
        if self.kept_from <= ALWAYS_KEPT {
            return self.frames(database, 0, usize::MAX);
        }
        let mut frames = self.frames(database, 0, ALWAYS_KEPT as usize)?;
        frames.extend(self.frames(database, self.kept_from, usize::MAX)?);
        Ok(frames)
    }
}

/// A run that was claimed by somebody who found it outside of memory.
pub(super) enum Claimed {
    /// It is in memory now, or again. The claim is queued.
    InMemory(Epoch, oneshot::Receiver<StoreResult<()>>),
    /// It has ended: there is nothing to own.
    Ended(Epoch),
}

/// Takes a sleeping run back into memory and gives it to a new owner.
pub(super) fn take_back_and_claim(
    shared: &Shared,
    database: &Database,
    run: RunId,
) -> StoreResult<Option<Claimed>> {
    loop {
        let departures = {
            let mut state = shared.lock();
            state.open()?;
            if let Some(epoch) = state.table.claim(run) {
                let (reply, durable) = oneshot::channel();
                shared.push(state, Op::Claim(run, reply), 0);
                return Ok(Some(Claimed::InMemory(epoch, durable)));
            }
            state.table.departures
        };
        if shared.rouse(run)? {
            continue;
        }
        let stored = reads::shelved(database, run)?;
        let mut state = shared.lock();
        let table = &mut state.table;
        if table.departures != departures {
            // It may have been in memory and gone again since: what was read may be old.
            continue;
        }
        match stored {
            Some(stored) if stored.header.end().is_none() => take_back(table, stored),
            Some(_) => return Ok(Some(Claimed::Ended(table.next_epoch()))),
            None if table.runs.contains_key(&run) => {}
            None => return Ok(None),
        }
    }
}

/// Finds a run and reads frames of it. A run that is deleted meanwhile is not there.
pub(super) fn journal(
    shared: &Shared,
    database: &Database,
    run: RunId,
    from: u64,
    limit: usize,
) -> StoreResult<Option<(Snapshot, Vec<Bytes>)>> {
    read(shared, database, run, |found| {
        found.frames(database, from, limit)
    })
}

/// Finds a run and reads all frames of it that are there.
pub(super) fn kept_journal(
    shared: &Shared,
    database: &Database,
    run: RunId,
) -> StoreResult<Option<(Snapshot, Vec<Bytes>)>> {
    read(shared, database, run, |found| found.all_frames(database))
}

fn read(
    shared: &Shared,
    database: &Database,
    run: RunId,
    frames: impl Fn(&Snapshot) -> StoreResult<Vec<Bytes>>,
) -> StoreResult<Option<(Snapshot, Vec<Bytes>)>> {
    let Some(mut found) = Snapshot::find(shared, database, run)? else {
        return Ok(None);
    };
    loop {
        let error = match frames(&found) {
            Ok(frames) => return Ok(Some((found, frames))),
            Err(error @ StoreError::Corrupt { .. }) => error,
            Err(error) => return Err(error),
        };
        // Segments that it was about to read may have gone with the run, or with what it forgot.
        found = match Snapshot::find(shared, database, run)? {
            Some(now) if now.kept_from > found.kept_from => now,
            Some(_) => return Err(error),
            None => return Ok(None),
        };
    }
}

/// Merges runs in memory with those that left it.
pub(super) fn list(
    shared: &Shared,
    database: &Database,
    query: &RunQuery,
) -> StoreResult<Vec<RunHeader>> {
    let (mut all, dozing) = {
        let table = &shared.lock().table;
        (in_memory(table, query), dozing(table, query))
    };
    all.extend(asleep_in_log(shared, query, dozing)?);
    let mut shelf = reads::shelf(database, query);
    let mut room = query.limit;
    while room > 0 {
        let mut found = Vec::with_capacity(room.min(1_024));
        for stored in shelf.by_ref() {
            let header = stored?.header;
            if query.matches(&header) {
                found.push(header);
            }
            if found.len() == room {
                break;
            }
        }
        let at_the_end = found.len() < room;
        let state = shared.lock();
        for header in found {
            match state.table.runs.get(&header.run) {
                // It is among those in memory, or came back meanwhile.
                Some(live) if query.matches(&live.header) => all.push(live.header.clone()),
                Some(_) => {}
                None => {
                    all.push(header);
                    room -= 1;
                }
            }
        }
        if at_the_end {
            break;
        }
    }
    // Stable: what was found in memory comes before what the database says of the same run.
    match query.order {
        RunOrder::NewestFirst => all.sort_by_key(|header| std::cmp::Reverse(header.position())),
        RunOrder::OldestFirst => all.sort_by_key(RunHeader::position),
    }
    all.dedup_by_key(|header| header.position());
    all.truncate(query.limit);
    Ok(all)
}

fn in_memory(table: &Table, query: &RunQuery) -> Vec<RunHeader> {
    let matching = |runs: &mut dyn Iterator<Item = &RunId>| {
        runs.map(|run| &table.runs[run].header)
            .filter(|header| query.matches(header))
            .take(query.limit)
            .cloned()
            .collect()
    };
    let place = query.after.map_or(Bound::Unbounded, Bound::Excluded);
    match query.order {
        RunOrder::NewestFirst => {
            let older = table.order.range((Bound::Unbounded, place));
            matching(&mut older.rev().map(|(_, run)| run))
        }
        RunOrder::OldestFirst => {
            let newer = table.order.range((place, Bound::Unbounded));
            matching(&mut newer.map(|(_, run)| run))
        }
    }
}

/// Returns the places of runs that sleep in the log.
fn dozing(table: &Table, query: &RunQuery) -> Vec<RunPosition> {
    let wanted = query.namespace.as_deref();
    let dozing = table.dozing.iter();
    let dozing = dozing.filter(|(_, doze)| {
        let namespace = table.dozing.namespace(doze);
        wanted.is_none_or(|wanted| wanted == namespace)
    });
    let places = dozing.map(|(run, doze)| RunPosition {
        created_at: doze.created_at,
        run,
    });
    places.filter(|place| query.is_behind(*place)).collect()
}

/// Reads the headers of runs that sleep in the log, as far as they are wanted.
fn asleep_in_log(
    shared: &Shared,
    query: &RunQuery,
    mut places: Vec<RunPosition>,
) -> StoreResult<Vec<RunHeader>> {
    match query.order {
        RunOrder::NewestFirst => places.sort_unstable_by(|a, b| b.cmp(a)),
        RunOrder::OldestFirst => places.sort_unstable(),
    }
    let mut found = Vec::new();
    for place in places {
        if found.len() == query.limit {
            break;
        }
        let header = match shared.dozing(place.run)? {
            Some((_, slumber)) => Some(slumber.stored.header),
            // It is in memory by now, or, if it left that again, in the database, which is read after this.
            None => {
                let state = shared.lock();
                let live = state.table.runs.get(&place.run);
                live.map(|live| live.header.clone())
            }
        };
        found.extend(header.filter(|header| query.matches(header)));
    }
    Ok(found)
}

/// A sleeper's place in the order of waking.
fn place(sleeper: &Sleeper) -> Turn {
    let wake_at = sleeper.wake_at;
    (wake_at.is_none(), wake_at.unwrap_or_default(), sleeper.run)
}

/// Returns a run in memory as a sleeper, if it sleeps. If letters wait for it, it is due.
fn sleeper(live: &Live) -> Option<Sleeper> {
    let RunState::Asleep { wake_at } = live.header.state else {
        return None;
    };
    let wake_at = match live.has_mail() {
        true => Some(Timestamp::default()),
        false => wake_at,
    };
    Some(Sleeper {
        wake_at,
        run: live.header.run,
        namespace: live.header.namespace.clone(),
    })
}

/// Merges sleeping runs in memory with those that left it.
pub(super) fn asleep(
    shared: &Shared,
    database: &Database,
    after: Option<&Sleeper>,
    limit: usize,
) -> StoreResult<Vec<Sleeper>> {
    let behind = |sleeper: &Sleeper| after.is_none_or(|after| place(sleeper) > place(after));
    let mut all: Vec<Sleeper> = {
        let state = shared.lock();
        let runs = state.table.sleeping.iter();
        let sleepers = runs.filter_map(|run| sleeper(state.table.runs.get(run)?));
        let mut all: Vec<Sleeper> = sleepers.filter(behind).collect();
        all.extend(state.table.dozing.next(after.map(place), limit));
        all
    };
    let known: IdSet<RunId> = all.iter().map(|sleeper| sleeper.run).collect();
    let mut entries = reads::sleepers(database, after);
    let mut room = limit;
    while room > 0 {
        let mut found = Vec::with_capacity(room.min(1_024));
        for entry in entries.by_ref().take(room) {
            found.push(entry?);
        }
        let at_the_end = found.len() < room;
        let state = shared.lock();
        for entry in found {
            if !state.table.runs.contains_key(&entry.run) && !known.contains(&entry.run) {
                all.push(entry);
                room -= 1;
            }
        }
        if at_the_end {
            break;
        }
    }
    all.sort_by_key(place);
    all.truncate(limit);
    Ok(all)
}

/// Reads a note.
pub(super) fn note(
    shared: &Shared,
    database: &Database,
    key: &NoteKey,
) -> StoreResult<Option<Bytes>> {
    let changed = shared.lock().ledger.notes.get(key);
    match changed {
        Some(value) => Ok(value),
        None => reads::note(database, key),
    }
}

/// Merges changed notes with archived ones.
pub(super) fn notes(
    shared: &Shared,
    database: &Database,
    prefix: &NoteKey,
    after: Option<&NoteKey>,
    limit: usize,
) -> StoreResult<Vec<(NoteKey, Bytes)>> {
    let mut tries = 0;
    loop {
        let archive = shared.archived.load(Ordering::Acquire);
        let found = notes_once(shared, database, prefix, after, limit)?;
        tries += 1;
        // What an archive brought meanwhile may be newer than what was found in memory.
        if tries == TRIES || shared.archived.load(Ordering::Acquire) == archive {
            return Ok(found);
        }
    }
}

fn notes_once(
    shared: &Shared,
    database: &Database,
    prefix: &NoteKey,
    after: Option<&NoteKey>,
    limit: usize,
) -> StoreResult<Vec<(NoteKey, Bytes)>> {
    let changed: BTreeMap<NoteKey, Option<Bytes>> = {
        let state = shared.lock();
        let changed = state.ledger.notes.range(prefix, after);
        changed
            .map(|(key, value)| (key.clone(), value.cloned()))
            .collect()
    };
    let mut archived = Vec::new();
    for found in reads::notes(database, prefix, after) {
        if archived.len() >= limit {
            break;
        }
        let (key, value) = found?;
        if !changed.contains_key(&key) {
            archived.push((key, value));
        }
    }
    let changed = changed
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)));
    archived.extend(changed);
    archived.sort_by(|(a, _), (b, _)| a.cmp(b));
    archived.truncate(limit);
    Ok(archived)
}
