//! Segments of records that a run forgot: which of them an archive removes.
//!
//! Owns the rule of what is left over in the database of a journal with a gap. Never writes, the archiver does.

use std::collections::HashSet;

use bytes::Bytes;

use super::database::Database;
use super::keys::{Key, split_piece};
use super::layout::{ALWAYS_KEPT, Layout};
use super::ledger::{Batch, Moving};
use super::plan::Plan;
use super::walk::Held;
use crate::store::{RunPosition, StoreResult};

/// How many pieces of forgotten segments one archive removes: removing one rewrites a page. What is left goes with the
/// next archives of the run, or with the run.
const REMOVED_AT_ONCE: usize = 64;

/// Adds the removal of segments to a plan that nobody needs once it is made.
pub(super) fn remove(database: &Database, batch: &Batch, plan: &mut Plan) -> StoreResult<()> {
    let mut room = REMOVED_AT_ONCE;
    for moving in &batch.moving {
        if moving.layout.kept_from <= ALWAYS_KEPT {
            continue;
        }
        let torn = torn(database, moving, &plan.early)?;
        let old = old(database, moving.header.position(), moving.layout, room)?;
        room -= old.len();
        plan.drop(torn.into_iter().chain(old));
    }
    Ok(())
}

/// Finds segments of records that were archived and then forgotten.
fn old(
    database: &Database,
    at: RunPosition,
    layout: Layout,
    limit: usize,
) -> StoreResult<Vec<Held>> {
    let Layout { start, kept_from } = layout;
    let first = Key::segment(at, ALWAYS_KEPT).piece(0);
    if kept_from >= start {
        // Nothing in segments is needed but the first two records, which lie before these.
        let end = Key::segment(at, start).piece(0);
        return database.held_between(&first, &end, limit);
    }
    let end = Key::segment(at, kept_from).piece(u16::MAX);
    let mut found = database.held_between(&first, &end, limit)?;
    // The last of these segments, with all its pieces, may hold records that are kept.
    let last = found.last();
    let last = last.and_then(|held| Some(split_piece(&held.key)?.0));
    if let Some(last) = last.map(<[u8]>::to_vec) {
        found.retain(|held| !held.key.starts_with(&last));
    }
    Ok(found)
}

/// Finds segments that an archive left behind which was torn before it counted. Those that are written again are
/// cut as they were then, unless records were forgotten since: then they would not fit to the new ones.
fn torn(database: &Database, moving: &Moving, written: &[(Key, Bytes)]) -> StoreResult<Vec<Held>> {
    let Layout { start, kept_from } = moving.layout;
    if kept_from <= start {
        return Ok(Vec::new());
    }
    let at = moving.header.position();
    let first = Key::segment(at, start.max(ALWAYS_KEPT)).piece(0);
    let end = Key::segment(at, u64::MAX).piece(u16::MAX);
    let mut found = database.held_between(&first, &end, usize::MAX)?;
    if !found.is_empty() {
        let written: HashSet<Vec<u8>> = written.iter().map(|(key, _)| key.piece(0)).collect();
        found.retain(|held| !written.contains(&held.key));
    }
    Ok(found)
}
