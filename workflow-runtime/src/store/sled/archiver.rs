//! The archiver: the one thread that writes to the database.
//!
//! Owns the way of a record from the log to a segment, in batches: one atomic change of
//! the database, synced, then shown to readers, then the files of the log go of which
//! nothing is needed any more. It also deletes runs, and prepares the log's next file. Commits never wait for
//! it, unless it falls far behind. After the first error the store stops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::annex::Keeper;
use super::database::{Database, Write, corrupt};
use super::erase::{self, Tombstones};
use super::forgotten;
use super::keys::Key;
use super::ledger::Batch;
use super::log::{self, LogFile};
use super::plan::{Plan, put, remove};
use super::reads;
use super::segment::{Archive, Tombstone};
use super::shared::{Chore, Shared, Spare};
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{RunPosition, StoreResult};

/// How many runs are deleted at once: a deletion syncs as often for one as for many. More would be
/// a batch for which readers wait longer.
const DELETED_AT_ONCE: usize = 256;

/// How large a file of the annex gets, in files of the log: 16 MiB. Each has a count in sled, and emptying one is a few dozen
/// rounds.
pub(super) const ANNEX_TO_LOG: u64 = 4;

/// How long to wait for a run that has ended to be let go of by whoever reads it.
const LET_GO: Duration = Duration::from_millis(1);

/// The archiver's own state.
#[derive(Debug)]
pub(super) struct Archiver {
    shared: Arc<Shared>,
    /// The log's directory.
    directory: PathBuf,
    /// How large a file of the log gets.
    log_file_bytes: u64,
    archive: Archive,
    tombstones: Tombstones,
    /// Runs that were deleted when their segments were not, and up to which commit.
    unfinished: Vec<(RunPosition, u64)>,
    keeper: Keeper,
}

impl Archiver {
    pub(super) fn new(
        shared: Arc<Shared>,
        log_file_bytes: u64,
        archive: Archive,
        deleted: &IdMap<RunId, Tombstone>,
    ) -> StoreResult<Self> {
        let directory = log::directory(&shared.directory);
        let unfinished = deleted.iter().filter_map(|(run, tombstone)| {
            let created_at = tombstone.segments_of?;
            let run = *run;
            Some((RunPosition { created_at, run }, tombstone.as_of))
        });
        let keeper = {
            let guard = shared.database();
            let database = guard.as_ref().expect("it was just opened");
            Keeper::open(database, log_file_bytes * ANNEX_TO_LOG)?
        };
        Ok(Self {
            shared,
            directory,
            log_file_bytes,
            archive,
            tombstones: Tombstones::new(deleted),
            unfinished: unfinished.collect(),
            keeper,
        })
    }

    /// Works until it is told to stop or something fails.
    pub(super) fn run(mut self) {
        // A bug in here must not leave anybody waiting for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.work()))
            .unwrap_or_else(|_| Err(corrupt("the archiver".to_owned(), "it panicked")));
        if let Err(error) = &outcome {
            self.shared.fail(error);
        }
    }

    fn work(&mut self) -> StoreResult<()> {
        // Before anything is archived: a run of the same id may have been created since.
        self.remove_segments()?;
        loop {
            while self.keeper.is_wasteful() && self.shared.archiver_may_tidy() {
                self.compact()?;
            }
            while self.shared.archiver_may_tidy() && self.collect()? {}
            match self.shared.next_chore() {
                Chore::Archive => self.archive()?,
                Chore::PrepareFile => {
                    let file = log::prepare(&self.directory, self.log_file_bytes)?;
                    self.shared.lock().spare = Spare::Ready(file);
                }
                Chore::Delete => self.delete()?,
                Chore::Stop => return Ok(()),
            }
        }
    }

    /// Moves what is in line to the database.
    fn archive(&mut self) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        let drowsy = shared.lock().ledger.take_drowsy();
        for run in drowsy {
            shared.rouse(run)?;
        }
        let (mut batch, log_file) = {
            let mut state = shared.lock();
            let state = &mut *state;
            (state.ledger.take(&mut state.table), state.log_file.clone())
        };
        self.sync_log(&log_file, &batch)?;
        let guard = shared.database();
        let database = guard.as_ref().expect("it is taken away after this thread");
        let notes = batch.notes.iter();
        let olds = notes.map(|note| reads::note(database, &note.key));
        let olds = olds.collect::<StoreResult<Vec<_>>>()?;
        let mut plan = Plan::new(&mut batch, &olds, &mut self.archive);
        for letter in std::mem::take(&mut plan.taken) {
            let (pieces, pointer) = database.pieces(&letter)?;
            remove(&mut plan.atomic, &letter, pieces);
            plan.freed.extend(pointer);
        }
        forgotten::remove(database, &batch, &mut plan)?;
        self.make(database, plan)?;
        drop(guard);
        self.show(batch, &[])
    }

    /// Syncs the log up to where an archive knows it: what the database knows of a commit must
    /// not outlive the commit, whose number would be given to another.
    fn sync_log(&self, log_file: &LogFile, batch: &Batch) -> StoreResult<()> {
        let synced = &self.shared.synced;
        if synced.load(Ordering::Acquire) < batch.as_of {
            log_file.sync()?;
            synced.fetch_max(batch.as_of, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Makes an archive, durably.
    fn make(&mut self, database: &Database, mut plan: Plan) -> StoreResult<()> {
        self.tombstones.forget(&mut self.archive, &mut plan.atomic);
        hand_over(database, &mut self.keeper, &mut self.archive, plan)?;
        let archived = &self.shared.archived;
        archived.store(self.archive.number, Ordering::Release);
        Ok(())
    }

    /// Shows readers an archive that is on the disk, and lets files of the log go.
    fn show(&mut self, batch: Batch, deleted: &[RunId]) -> StoreResult<()> {
        let gone = {
            let mut state = self.shared.lock();
            let state = &mut *state;
            state.table.departures += deleted.len() as u64;
            for run in deleted {
                state.table.deleting.remove(run);
            }
            state.ledger.archived(batch, &mut state.table)
        };
        self.shared.made_room();
        log::remove(&self.directory, &gone.files)
    }

    /// Deletes some of the runs that are to be deleted.
    fn delete(&mut self) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        let runs = shared.next_deletions(DELETED_AT_ONCE);
        // Those that have ended and are still in memory leave it first.
        while shared.lock().any_is_leaving(&runs) {
            self.archive()?;
            std::thread::sleep(LET_GO);
        }
        if shared.lock().open().is_err() {
            // It failed, or closes: nobody waits for an answer any more.
            return Ok(());
        }
        let chosen = shared.lock().mark_deleting(runs);
        let guard = shared.database();
        let database = guard.as_ref().expect("it is taken away after this thread");
        let mut found = Vec::new();
        for run in &chosen {
            let stored = reads::shelved(database, *run)?;
            found.extend(stored.filter(|stored| stored.header.end().is_some()));
        }
        let ids: Vec<RunId> = found.iter().map(|stored| stored.header.run).collect();
        if !found.is_empty() {
            let (batch, log_file) = {
                let mut state = shared.lock();
                (state.ledger.take_notes_of(&ids), state.log_file.clone())
            };
            self.sync_log(&log_file, &batch)?;
            let (plan, left) = erase::plan(
                database,
                &found,
                &batch,
                &mut self.archive,
                &mut self.tombstones,
            )?;
            let left = left.into_iter().map(|position| (position, batch.as_of));
            self.unfinished.extend(left);
            self.make(database, plan)?;
            self.show(batch, &chosen)?;
            self.remove_segments()?;
        } else {
            shared.lock().unmark_deleting(&chosen);
        }
        drop(guard);
        shared.deleted(ids.len() as u64);
        Ok(())
    }

    /// Moves some of what is needed out of a file of the annex that hardly is.
    fn compact(&mut self) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        let guard = shared.database();
        let database = guard.as_ref().expect("it is taken away after this thread");
        let mut writes = Vec::new();
        self.keeper.compact(database, &mut writes)?;
        match writes.is_empty() {
            true => Ok(()),
            false => commit(database, &mut self.keeper, &mut self.archive, writes),
        }
    }

    /// Has sled collect, if that is due. Says whether there was anything to do.
    fn collect(&self) -> StoreResult<bool> {
        let guard = self.shared.database();
        let database = guard.as_ref().expect("it is taken away after this thread");
        database.collect()
    }

    /// Removes what is left of long journals that were deleted.
    fn remove_segments(&mut self) -> StoreResult<()> {
        if self.unfinished.is_empty() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let guard = shared.database();
        let database = guard.as_ref().expect("it is taken away after this thread");
        for (position, as_of) in std::mem::take(&mut self.unfinished) {
            loop {
                let (plan, is_last) = erase::next_segments(database, position, as_of)?;
                hand_over(database, &mut self.keeper, &mut self.archive, plan)?;
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Makes a plan true, durably: what goes to the annex first, then all that changes in sled in one batch, and then files of the
/// annex go of which nothing is needed.
pub(super) fn hand_over(
    database: &Database,
    keeper: &mut Keeper,
    archive: &mut Archive,
    mut plan: Plan,
) -> StoreResult<()> {
    keeper.store(database, plan.early, archive.number, &mut plan.atomic)?;
    keeper.free(&plan.freed)?;
    commit(database, keeper, archive, plan.atomic)
}

/// Commits a batch with what it changes in the counts of the annex.
fn commit(
    database: &Database,
    keeper: &mut Keeper,
    archive: &mut Archive,
    mut writes: Vec<Write>,
) -> StoreResult<()> {
    keeper.settle(archive, &mut writes);
    put(&mut writes, &Key::archive(), &archive.encode());
    database.commit_and_collect(writes, archive.entries() + keeper.records())?;
    keeper.tidy(database)
}
