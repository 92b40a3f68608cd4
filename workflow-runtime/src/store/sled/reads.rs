//! Reading what left memory: headers of ended runs and segments of any.
//!
//! Owns the walk over `r`, `h` and `s`. Never writes, never looks at the table of live
//! runs.

use bytes::Bytes;

use super::database::{Database, Scanned, corrupt, describe};
use super::keys::{self, Key};
use super::segment::{Archive, EndedRun, unpack};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{RunPosition, RunQuery, StoreResult};

/// Reads what the newest archive left.
pub(super) fn archive(database: &Database) -> StoreResult<Archive> {
    let key = Key::archive();
    let place = || describe(key.as_bytes());
    let record = database
        .get(&key)?
        .ok_or_else(|| corrupt(place(), "it is missing"))?;
    Archive::decode(&record).map_err(|wrong| corrupt(place(), wrong))
}

/// Looks an ended run up by its id.
pub(super) fn ended_run(database: &Database, run: RunId) -> StoreResult<Option<EndedRun>> {
    let key = Key::run(run);
    let Some(created) = database.get(&key)? else {
        return Ok(None);
    };
    let created: [u8; 8] = created
        .as_ref()
        .try_into()
        .map_err(|_| corrupt(describe(key.as_bytes()), "it is not eight bytes long"))?;
    let position = RunPosition {
        created_at: Timestamp::from_micros(u64::from_le_bytes(created)),
        run,
    };
    let key = Key::header(position);
    let place = || describe(key.as_bytes());
    let record = database
        .get(&key)?
        .ok_or_else(|| corrupt(place(), "it is missing"))?;
    let ended = EndedRun::decode(&record).map_err(|wrong| corrupt(place(), wrong))?;
    if ended.header.position() == position {
        Ok(Some(ended))
    } else {
        Err(corrupt(place(), "it is the header of another run"))
    }
}

/// Says whether a run has ended and left memory.
pub(super) fn is_ended(database: &Database, run: RunId) -> StoreResult<bool> {
    Ok(database.get(&Key::run(run))?.is_some())
}

/// Walks over the headers of ended runs, newest first, from the query's place on.
pub(super) fn ended_runs<'a>(
    database: &'a Database,
    query: &RunQuery,
) -> impl Iterator<Item = StoreResult<EndedRun>> + use<'a> {
    let start = match query.after {
        // Behind the place itself: its own pieces are skipped.
        Some(after) => Key::header(after).piece(u16::MAX),
        None => vec![keys::HEADER],
    };
    database.scan(&[keys::HEADER], &start).map(|scanned| {
        let (name, record) = match scanned? {
            Scanned::Whole { name, record, .. } => (name, record),
            Scanned::Broken { name } => {
                return Err(corrupt(describe(&name), "pieces of it are missing"));
            }
        };
        EndedRun::decode(&record).map_err(|wrong| corrupt(describe(&name), wrong))
    })
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
            Scanned::Whole { name, record, .. } => (name, Some(record)),
            Scanned::Broken { name } => (name, None),
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
        let record = record.ok_or_else(|| corrupt(place(), "pieces of it are missing"))?;
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
