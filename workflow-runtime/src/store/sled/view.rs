//! Runs as a reader sees them: what is in memory and what left it, together.
//!
//! Owns the merge of the table of live runs with the database. Never writes.

use bytes::Bytes;

use super::database::Database;
use super::reads;
use super::shared::Shared;
use super::table::Live;
use crate::ids::RunId;
use crate::store::{Epoch, RunHeader, RunQuery, StoreResult};

/// What is known of a run at one moment.
pub(super) struct Snapshot {
    pub(super) header: RunHeader,
    pub(super) epoch: Epoch,
    /// How many frames are in segments.
    archived: u64,
    /// The committed frames after those.
    tail: Vec<Bytes>,
}

impl Snapshot {
    fn of(live: &Live) -> Self {
        Self {
            header: live.header.clone(),
            epoch: live.epoch,
            archived: live.archived,
            tail: live.tail.iter().map(|frame| frame.bytes.clone()).collect(),
        }
    }

    /// Finds a run in memory or in the database.
    pub(super) fn find(
        shared: &Shared,
        database: &Database,
        run: RunId,
    ) -> StoreResult<Option<Self>> {
        if let Some(live) = shared.lock().table.runs.get(&run) {
            return Ok(Some(Self::of(live)));
        }
        let ended = reads::ended_run(database, run)?;
        Ok(ended.map(|ended| Self {
            header: ended.header,
            epoch: Epoch::FIRST,
            archived: ended.frames,
            tail: Vec::new(),
        }))
    }

    pub(super) fn frames(
        self,
        database: &Database,
        from: u64,
        limit: usize,
    ) -> StoreResult<Vec<Bytes>> {
        let at = self.header.position();
        let mut frames = reads::segment_frames(database, at, from, self.archived, limit)?;
        let skip = usize::try_from(from.saturating_sub(self.archived)).unwrap_or(usize::MAX);
        let room = limit - frames.len();
        frames.extend(self.tail.into_iter().skip(skip).take(room));
        Ok(frames)
    }
}

/// Merges runs in memory with ended ones in the database, newest first.
pub(super) fn list(
    shared: &Shared,
    database: &Database,
    query: &RunQuery,
) -> StoreResult<Vec<RunHeader>> {
    // The database first: a run that leaves memory meanwhile is found at least once.
    let mut ended = Vec::new();
    for found in reads::ended_runs(database, query) {
        if ended.len() >= query.limit {
            break;
        }
        let found = found?;
        if query.matches(&found.header) {
            ended.push(found.header);
        }
    }
    let end = match query.after {
        Some(after) => std::ops::Bound::Excluded(after),
        None => std::ops::Bound::Unbounded,
    };
    let state = shared.lock();
    let live = state
        .table
        .order
        .range((std::ops::Bound::Unbounded, end))
        .rev()
        .map(|(_, run)| &state.table.runs[run].header)
        .filter(|header| query.matches(header))
        .take(query.limit)
        .cloned();
    let mut all: Vec<RunHeader> = live.collect();
    drop(state);
    all.extend(ended);
    all.sort_by_key(|header| std::cmp::Reverse(header.position()));
    all.dedup_by_key(|header| header.position());
    all.truncate(query.limit);
    Ok(all)
}
