//! The store's examination of itself: what opening does not read.
//!
//! Owns the full walk over ended runs and segments. It costs as much as the store is large;
//! opening never does it. Never writes.

use super::database::{Database, corrupt};
use super::reads;
use super::shared::Shared;
use crate::store::{RunPosition, RunQuery, StoreResult};

/// Checks that every ended run can be found both ways and is whole, that none is missing,
/// and that the segments of live runs are there.
pub(super) fn check(shared: &Shared, database: &Database) -> StoreResult<()> {
    if database.has_blobs()? {
        return Err(corrupt(
            "blobs".to_owned(),
            "sled keeps pages in files of their own, which it never syncs",
        ));
    }
    let before = reads::archive(database)?.ended;
    let mut count = 0;
    for found in reads::ended_runs(database, &RunQuery::default()) {
        let ended = found?;
        let run = ended.header.run;
        if !reads::is_ended(database, run)? {
            return Err(corrupt(format!("the entry of {run}"), "it is missing"));
        }
        let at = ended.header.position();
        reads::segment_frames(database, at, 0, ended.frames, usize::MAX)?;
        count += 1;
    }
    let after = reads::archive(database)?.ended;
    // Runs may have ended while this was counting.
    if !(before..=after).contains(&count) {
        return Err(corrupt(
            "the headers".to_owned(),
            &format!("{count} are there, but {after} runs have ended"),
        ));
    }
    let live: Vec<(RunPosition, u64)> = {
        let state = shared.lock();
        let runs = state.table.runs.values();
        runs.map(|live| (live.header.position(), live.archived))
            .collect()
    };
    for (at, archived) in live {
        reads::segment_frames(database, at, 0, archived, usize::MAX)?;
    }
    Ok(())
}
