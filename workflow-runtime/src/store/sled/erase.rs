//! Deleting runs: what one deletion removes from the database, and what it leaves.
//!
//! Owns the tombstones: the log may still tell of a deleted run, and of notes that went with
//! it, so opening must know up to which commit that is of no account. A tombstone goes once
//! the log begins after that commit. Decides nothing about which runs may go.

use std::collections::VecDeque;

use super::database::{Database, Write};
use super::keys::{Key, pieces_of};
use super::ledger::Batch;
use super::plan::{Plan, put, remove};
use super::reads;
use super::segment::{Archive, Stored, Tombstone, deleted_member};
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{NoteKey, RunPosition, StoreResult};

/// How many pieces of segments go together with a run's header. The others of a longer
/// journal go afterwards.
const SEGMENTS_AT_ONCE: usize = 64;

/// How many pieces of segments go together with the headers of all runs of a plan. Runs for which none
/// are left have theirs removed afterwards, as those of a longer journal.
const SEGMENTS_OF_A_PLAN: usize = 1_024;

/// How many keys are removed before the next sync.
const KEYS_AT_ONCE: usize = 256;

/// How many tombstones one archive removes.
const TOMBSTONES_AT_ONCE: usize = 256;

/// The tombstones that are there, oldest first.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    newest: IdMap<RunId, u64>,
    line: VecDeque<(u64, RunId)>,
}

impl Tombstones {
    pub(super) fn new(found: &IdMap<RunId, Tombstone>) -> Self {
        let newest: IdMap<RunId, u64> = found.iter().map(|(run, at)| (*run, at.as_of)).collect();
        let mut line: Vec<(u64, RunId)> = newest.iter().map(|(run, at)| (*at, *run)).collect();
        line.sort_unstable();
        Self {
            newest,
            line: line.into(),
        }
    }

    fn add(&mut self, run: RunId, as_of: u64, archive: &mut Archive) {
        if let Some(older) = self.newest.insert(run, as_of) {
            archive.deleted.remove(deleted_member(run, older));
        }
        archive.deleted.add(deleted_member(run, as_of));
        self.line.push_back((as_of, run));
    }

    /// Removes tombstones that no block needs any more.
    pub(super) fn forget(&mut self, archive: &mut Archive, writes: &mut Vec<Write>) {
        for _ in 0..TOMBSTONES_AT_ONCE {
            match self.line.front() {
                Some((as_of, _)) if *as_of < archive.log_from => {}
                _ => return,
            }
            let Some((as_of, run)) = self.line.pop_front() else {
                return;
            };
            // The run may have been created and deleted again since.
            if self.newest.get(&run) == Some(&as_of) {
                self.newest.remove(&run);
                archive.deleted.remove(deleted_member(run, as_of));
                writes.push((Key::deleted(run).piece(0), None));
            }
        }
    }
}

/// Plans the deletion of runs that have ended. Returns those of which segments stay behind.
pub(super) fn plan(
    database: &Database,
    runs: &[Stored],
    batch: &Batch,
    archive: &mut Archive,
    tombstones: &mut Tombstones,
) -> StoreResult<(Plan, Vec<RunPosition>)> {
    let mut plan = Plan::default();
    let mut left = Vec::new();
    let mut room = SEGMENTS_OF_A_PLAN;
    archive.number += 1;
    archive.as_of = batch.as_of;
    archive.log_from = batch.log_from;
    for stored in runs {
        let header = &stored.header;
        let (run, position) = (header.run, header.position());
        archive.shelved -= 1;
        let pieces = pieces_of(stored.encode());
        remove(&mut plan.atomic, &Key::header(position), pieces);
        remove(&mut plan.atomic, &Key::run(run), 1);
        let prefix = NoteKey::of_run(run, &[]);
        let mut has_notes = batch.notes.iter().any(|note| note.key.run() == Some(run));
        for note in reads::notes(database, &prefix, None) {
            let (key, old) = note?;
            plan.note(&key, None, Some(&old), archive);
            has_notes = true;
        }
        let most = SEGMENTS_AT_ONCE.min(room);
        let mut segments = database.held(&Key::segments(position), most + 1)?;
        let is_long = segments.len() > most;
        segments.truncate(most);
        room -= segments.len();
        let letters = database.held(&Key::letters(run), usize::MAX)?;
        plan.drop(segments.into_iter().chain(letters));
        if is_long {
            left.push(position);
        }
        if is_long || has_notes || stored.as_of >= batch.log_from {
            let tombstone = Tombstone {
                as_of: batch.as_of,
                segments_of: is_long.then_some(header.created_at),
            };
            put(&mut plan.atomic, &Key::deleted(run), &tombstone.encode());
            tombstones.add(run, batch.as_of, archive);
        }
    }
    Ok((plan, left))
}

/// Plans the removal of further segments of a deleted run. The last such plan also says in
/// its tombstone that none are left.
pub(super) fn next_segments(
    database: &Database,
    position: RunPosition,
    as_of: u64,
) -> StoreResult<(Plan, bool)> {
    let found = database.held(&Key::segments(position), KEYS_AT_ONCE)?;
    let is_last = found.len() < KEYS_AT_ONCE;
    let mut plan = Plan::default();
    plan.drop(found);
    if is_last {
        let tombstone = Tombstone {
            as_of,
            segments_of: None,
        };
        let key = Key::deleted(position.run);
        put(&mut plan.atomic, &key, &tombstone.encode());
    }
    Ok((plan, is_last))
}
