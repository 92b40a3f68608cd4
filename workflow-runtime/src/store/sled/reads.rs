//! Reading what left memory: headers, sleepers, notes and segments.
//!
//! Owns the walk over `r`, `h`, `w`, `n` and `s`. Never writes, never looks at what is in
//! memory.

use bytes::Bytes;

use super::database::{Database, corrupt, describe};
use super::keys::{self, Key};
use super::layout::ALWAYS_KEPT;
use super::segment::{Archive, Pointer, Stored, unpack};
use super::walk::Scanned;
use crate::ids::RunId;
use crate::store::{NoteKey, RunOrder, RunPosition, RunQuery, Sleeper, StoreResult};

/// Reads what the newest archive left.
pub(super) fn archive(database: &Database) -> StoreResult<Archive> {
    let key = Key::archive();
    let place = || describe(key.as_bytes());
    let record = database
        .get(&key)?
        .ok_or_else(|| corrupt(place(), "it is missing"))?;
    Archive::decode(&record).map_err(|wrong| corrupt(place(), wrong))
}

/// Looks up when a run was created that left memory, and as of which commit it is there.
pub(super) fn pointer(database: &Database, run: RunId) -> StoreResult<Option<Pointer>> {
    let key = Key::run(run);
    let Some(record) = database.get(&key)? else {
        return Ok(None);
    };
    let pointer = Pointer::decode(&record);
    let pointer = pointer.map_err(|wrong| corrupt(describe(key.as_bytes()), wrong))?;
    Ok(Some(pointer))
}

/// Looks a run up that left memory, by its id.
pub(super) fn shelved(database: &Database, run: RunId) -> StoreResult<Option<Stored>> {
    let Some(found) = pointer(database, run)? else {
        return Ok(None);
    };
    let position = RunPosition {
        created_at: found.created_at,
        run,
    };
    let key = Key::header(position);
    let place = || describe(key.as_bytes());
    let Some(record) = database.get(&key)? else {
        // It may have come back into memory or have been deleted in between.
        return match pointer(database, run)? {
            Some(now) if now == found => Err(corrupt(place(), "it is missing")),
            Some(_) => shelved(database, run),
            None => Ok(None),
        };
    };
    let stored = Stored::decode(&record).map_err(|wrong| corrupt(place(), wrong))?;
    if stored.header.position() == position {
        Ok(Some(stored))
    } else {
        Err(corrupt(place(), "it is the header of another run"))
    }
}

/// Walks over the headers of runs that left memory, in the query's order, from its place
/// on. Runs that came back may be among them.
pub(super) fn shelf<'a>(
    database: &'a Database,
    query: &RunQuery,
) -> impl Iterator<Item = StoreResult<Stored>> + use<'a> {
    let prefix = [keys::HEADER];
    let scan = match (query.order, query.after) {
        // Behind the place itself: its own pieces are skipped.
        (RunOrder::NewestFirst, Some(after)) => {
            database.scan(&prefix, &Key::header(after).piece(u16::MAX))
        }
        (RunOrder::NewestFirst, None) => database.scan(&prefix, &prefix),
        (RunOrder::OldestFirst, Some(after)) => {
            database.scan_back(&prefix, Key::header(after).as_bytes())
        }
        (RunOrder::OldestFirst, None) => database.scan_back(&prefix, &[keys::HEADER + 1]),
    };
    scan.map(|scanned| {
        let (name, record) = whole(scanned?)?;
        Stored::decode(&record).map_err(|wrong| corrupt(describe(&name), wrong))
    })
}

/// Walks over sleeping runs, soonest first, from behind a place on. Runs that came back into
/// memory may be among them.
pub(super) fn sleepers<'a>(
    database: &'a Database,
    after: Option<&Sleeper>,
) -> impl Iterator<Item = StoreResult<Sleeper>> + use<'a> {
    let start = match after {
        Some(after) => Key::wake(after.wake_at, after.run).piece(u16::MAX),
        None => vec![keys::WAKE],
    };
    database.scan(&[keys::WAKE], &start).map(|scanned| {
        let (name, record) = whole(scanned?)?;
        let wrong = |wrong| corrupt(describe(&name), wrong);
        let place = keys::wake_of(&name);
        let (wake_at, run) = place.ok_or_else(|| wrong("its key has the wrong length"))?;
        let namespace = std::str::from_utf8(&record);
        let namespace = namespace.map_err(|_| wrong("its namespace is not text"))?;
        Ok(Sleeper {
            wake_at,
            run,
            namespace: namespace.into(),
        })
    })
}

/// Reads an archived note.
pub(super) fn note(database: &Database, key: &NoteKey) -> StoreResult<Option<Bytes>> {
    database.get(&Key::note(key))
}

/// Walks over archived notes whose keys begin with `prefix`, from behind `after` on.
pub(super) fn notes<'a>(
    database: &'a Database,
    prefix: &NoteKey,
    after: Option<&NoteKey>,
) -> impl Iterator<Item = StoreResult<(NoteKey, Bytes)>> + use<'a> {
    let name = Key::notes(prefix);
    let start = match after {
        Some(after) if after >= prefix => Key::note(after).piece(u16::MAX),
        _ => name.clone(),
    };
    database.scan(&name, &start).map(|scanned| {
        let (name, record) = whole(scanned?)?;
        let key = keys::note_of(&name);
        let key = key.ok_or_else(|| corrupt(describe(&name), "its key is malformed"))?;
        Ok((key, record))
    })
}

/// Returns a scanned record, or says that it is damaged.
pub(super) fn whole(scanned: Scanned) -> StoreResult<(Vec<u8>, Bytes)> {
    match scanned {
        Scanned::Whole { name, record, .. } => Ok((name, record)),
        Scanned::Broken { name, wrong } => Err(corrupt(describe(&name), &wrong)),
    }
}

/// Reads at most `limit` of the frames `from..until` of a run, all of which are in
/// segments.
pub(super) fn segment_frames(
    database: &Database,
    at: RunPosition,
    from: u64,
    until: u64,
    limit: usize,
) -> StoreResult<Vec<Bytes>> {
    let until = until.min(from.saturating_add(limit as u64));
    let mut frames = Vec::new();
    if from >= until {
        return Ok(frames);
    }
    let mut expected = first_record(database, at, from)?;
    let prefix = Key::segments(at);
    let start = Key::segment(at, expected).piece(0);
    for scanned in database.scan(&prefix, &start) {
        let (name, record) = match scanned? {
            Scanned::Whole { name, record, .. } => (name, Ok(record)),
            Scanned::Broken { name, wrong } => (name, Err(wrong)),
        };
        let place = || describe(&name);
        let (_, seq) = keys::segment_of(&name)
            .ok_or_else(|| corrupt(place(), "its key has the wrong length"))?;
        if seq < expected {
            continue; // left over from a commit that was torn; it was written again since
        }
        if seq > expected {
            break;
        }
        let record = record.map_err(|wrong| corrupt(place(), &wrong))?;
        for frame in unpack(&record).map_err(|wrong| corrupt(place(), wrong))? {
            if expected >= from && expected < until {
                frames.push(frame);
            }
            expected += 1;
        }
        if expected >= until {
            return Ok(frames);
        }
    }
    let place = describe(Key::segment(at, expected).as_bytes());
    Err(corrupt(place, "it is missing"))
}

/// Checks that all frames of a run below `until` are there, but for those that it forgot.
pub(super) fn check_segments(
    database: &Database,
    at: RunPosition,
    until: u64,
    kept_from: u64,
) -> StoreResult<()> {
    let lead = match kept_from {
        0 => until,
        _ => until.min(ALWAYS_KEPT),
    };
    segment_frames(database, at, 0, lead, usize::MAX)?;
    segment_frames(database, at, kept_from.max(lead), until, usize::MAX).map(drop)
}

/// Finds the first sequence number of the record that holds frame `seq`.
fn first_record(database: &Database, at: RunPosition, seq: u64) -> StoreResult<u64> {
    let prefix = Key::segments(at);
    let mut before = Key::segment(at, seq).piece(u16::MAX);
    loop {
        let name = database.name_before(&prefix, &before)?;
        let first = name.as_deref().and_then(keys::segment_of);
        let Some((_, first)) = first else {
            let place = describe(Key::segment(at, seq).as_bytes());
            return Err(corrupt(place, "the journal's first segment is missing"));
        };
        let key = Key::segment(at, first);
        if first == seq {
            return Ok(first);
        }
        // A record left over from a torn commit may be too short: then look before it.
        if let Some(record) = database.get(&key)? {
            let place = || describe(key.as_bytes());
            let frames = unpack(&record).map_err(|wrong| corrupt(place(), wrong))?;
            if first + frames.len() as u64 > seq {
                return Ok(first);
            }
        }
        before = key.piece(0);
    }
}
