//! The store's examination of itself: what opening does not read.
//!
//! Owns the full walk over what left memory: runs, sleepers, notes, segments. It costs as much as the store is large;
//! opening never does it. Never writes.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::annex;
use super::bytes::Census;
use super::database::{Database, corrupt, describe};
use super::keys::{self, Key};
use super::reads;
use super::segment::{Archive, note_member, sleeper_member};
use super::shared::Shared;
use super::view::Snapshot;
use crate::ids::RunId;
use crate::store::{NoteKey, RunPosition, RunQuery, RunState, Sleeper, StoreResult};

/// How often the walk is made again because an archive was made meanwhile. After that
/// the counts are left out.
const TRIES: usize = 3;

/// What the walk found.
#[derive(Debug, Default)]
struct Found {
    shelved: u64,
    asleep: Census,
    /// Headers of sleeping runs, as the census of their `w` entries would have them.
    sleeping: Census,
    notes: Census,
    /// What segments and letters need of each file of the annex: how many records, how many bytes.
    annexed: BTreeMap<u64, (u64, u64)>,
}

/// Checks that every run that left memory can be found both ways and is whole, that none is
/// missing, nor a sleeper or a note, and that the segments of runs in memory are there.
pub(super) fn check(shared: &Shared, database: &Database) -> StoreResult<()> {
    if database.has_blobs()? {
        return Err(corrupt(
            "blobs".to_owned(),
            "sled keeps pages in files of their own, which it never syncs",
        ));
    }
    for _ in 0..TRIES {
        let before = reads::archive(database)?;
        let found = walk(shared, database)?;
        let counted = annex::tallies(database)?;
        if reads::archive(database)? == before {
            compare(&found, &before)?;
            compare_annex(&found, counted)?;
            break;
        }
    }
    let dozing: Vec<RunId> = {
        let state = shared.lock();
        state.table.dozing.iter().map(|(run, _)| run).collect()
    };
    for run in dozing {
        shared.dozing(run)?;
    }
    let live: Vec<(RunPosition, u64, u64)> = {
        let state = shared.lock();
        let runs = state.table.runs.values();
        runs.map(|live| (live.header.position(), live.archived, live.kept_from()))
            .collect()
    };
    for (at, archived, kept_from) in live {
        let frames = reads::check_segments(database, at, archived, kept_from);
        // It may have left memory and been deleted meanwhile.
        if frames.is_err() && is_there(shared, database, at.run)? {
            frames?;
        }
    }
    Ok(())
}

fn is_there(shared: &Shared, database: &Database, run: RunId) -> StoreResult<bool> {
    Ok(Snapshot::find(shared, database, run)?.is_some())
}

/// Reads everything that opening does not.
fn walk(shared: &Shared, database: &Database) -> StoreResult<Found> {
    let mut found = Found::default();
    for stored in reads::shelf(database, &RunQuery::default()) {
        let stored = stored?;
        let run = stored.header.run;
        found.shelved += 1;
        if let RunState::Asleep { wake_at } = stored.header.state {
            found.sleeping.add(sleeper_member(run, wake_at));
        }
        let at = stored.header.position();
        let sound = match reads::pointer(database, run)? {
            Some(_) => reads::check_segments(database, at, stored.frames, stored.kept_from),
            None => Err(corrupt(format!("the entry of {run}"), "it is missing")),
        };
        // A run may be deleted, or come back into memory, while this reads it.
        if let Err(error) = sound
            && database.get(&Key::header(at))?.is_some()
            && is_there(shared, database, run)?
        {
            return Err(error);
        }
    }
    for sleeper in reads::sleepers(database, None) {
        let Sleeper { wake_at, run, .. } = sleeper?;
        found.asleep.add(sleeper_member(run, wake_at));
    }
    for note in reads::notes(database, &NoteKey::from_bytes(Bytes::new()), None) {
        let (key, value) = note?;
        found.notes.add(note_member(&key, &value));
    }
    for prefix in [keys::SEGMENT, keys::MAIL] {
        for pointer in database.pointers(prefix) {
            let pointer = pointer?;
            let (records, bytes) = found.annexed.entry(pointer.file).or_default();
            *records += 1;
            *bytes += u64::from(pointer.len);
        }
    }
    Ok(found)
}

/// Compares what is pointed to with what is counted. A file of which less is counted than needed would be removed too soon.
fn compare_annex(found: &Found, counted: annex::Tallies) -> StoreResult<()> {
    let mut found = found.annexed.clone();
    for (number, tally) in counted {
        let needed = found.remove(&number).unwrap_or_default();
        if needed != (tally.records, tally.bytes) {
            let (records, bytes) = needed;
            let detail = format!(
                "{records} records of {bytes} bytes are needed, but it counts {} of {}",
                tally.records, tally.bytes
            );
            return Err(corrupt(describe(Key::annex(number).as_bytes()), &detail));
        }
    }
    match found.into_keys().next() {
        Some(number) => {
            let place = describe(Key::annex(number).as_bytes());
            Err(corrupt(place, "it is missing"))
        }
        None => Ok(()),
    }
}

/// Compares what was found with what the archive counts.
fn compare(found: &Found, archive: &Archive) -> StoreResult<()> {
    let differ = |what: &str, found: u64, counted: u64| {
        let detail = format!("{found} are there, but the archive counts {counted} others");
        Err(corrupt(what.to_owned(), &detail))
    };
    if found.shelved != archive.shelved {
        return differ("the headers", found.shelved, archive.shelved);
    }
    for census in [&found.asleep, &found.sleeping] {
        if *census != archive.asleep {
            return differ("the wake entries", census.count(), archive.asleep.count());
        }
    }
    if found.notes != archive.notes {
        return differ("the notes", found.notes.count(), archive.notes.count());
    }
    Ok(())
}
