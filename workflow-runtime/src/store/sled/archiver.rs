//! The archiver: the one thread that writes to the database.
//!
//! Owns the way of a record from the log to a segment, in batches: one atomic change of
//! the database, synced, then shown to readers, then the files of the log go of which
//! nothing is needed any more. It also prepares the log's next file. Commits never wait for
//! it, unless it falls far behind. After the first error the store stops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::database::{Database, MAX_UNSYNCED, Write, corrupt, cost};
use super::log;
use super::plan::Plan;
use super::segment::Archive;
use super::shared::{Chore, Shared, Spare};
use crate::store::StoreResult;

/// The archiver's own state.
#[derive(Debug)]
pub(super) struct Archiver {
    shared: Arc<Shared>,
    /// The log's directory.
    directory: PathBuf,
    archive: Archive,
    /// Bytes handed over since the last sync.
    unsynced: usize,
}

impl Archiver {
    pub(super) fn new(shared: Arc<Shared>, archive: Archive) -> Self {
        let directory = log::directory(&shared.directory);
        Self {
            shared,
            directory,
            archive,
            unsynced: 0,
        }
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
        loop {
            match self.shared.next_chore() {
                Chore::Archive => self.archive()?,
                Chore::PrepareFile => {
                    let file = log::prepare(&self.directory)?;
                    self.shared.lock().spare = Spare::Ready(file);
                }
                Chore::Stop => return Ok(()),
            }
        }
    }

    /// Moves what is in line to the database.
    fn archive(&mut self) -> StoreResult<()> {
        let shared = Arc::clone(&self.shared);
        let (mut batch, log_file) = {
            let mut state = shared.lock();
            let state = &mut *state;
            (state.ledger.take(&state.table), state.log_file.clone())
        };
        // First the log: what the database knows of a commit must not outlive the commit,
        // whose number would be given to another.
        if shared.synced.load(Ordering::Acquire) < batch.as_of {
            log_file.sync()?;
            shared.synced.fetch_max(batch.as_of, Ordering::AcqRel);
        }
        let plan = Plan::new(&mut batch, &mut self.archive);
        let guard = shared.database();
        let database = guard.as_ref().expect("it is taken away after this thread");
        self.hand_over(database, plan.segments, plan.atomic)?;
        self.sync(database)?;
        drop(guard);
        shared
            .archived
            .store(self.archive.number, Ordering::Release);
        let gone = {
            let mut state = shared.lock();
            let state = &mut *state;
            state.ledger.archived(batch, &mut state.table)
        };
        shared.made_room();
        log::remove(&self.directory, &gone.files)
    }

    /// Hands writes to sled: `last` in one batch, `early` with it if there is room.
    fn hand_over(
        &mut self,
        database: &Database,
        early: Vec<Write>,
        mut last: Vec<Write>,
    ) -> StoreResult<()> {
        let mut bytes: usize = last.iter().map(cost).sum();
        let mut ahead = Vec::new();
        let mut ahead_bytes = 0;
        for write in early {
            let weight = cost(&write);
            if bytes + weight <= MAX_UNSYNCED {
                bytes += weight;
                last.push(write);
                continue;
            }
            if ahead_bytes + weight > MAX_UNSYNCED {
                let full = std::mem::take(&mut ahead);
                self.apply(database, full, ahead_bytes)?;
                ahead_bytes = 0;
            }
            ahead_bytes += weight;
            ahead.push(write);
        }
        if !ahead.is_empty() {
            self.apply(database, ahead, ahead_bytes)?;
        }
        self.apply(database, last, bytes)
    }

    fn apply(&mut self, database: &Database, writes: Vec<Write>, bytes: usize) -> StoreResult<()> {
        if self.unsynced + bytes > MAX_UNSYNCED && self.unsynced > 0 {
            self.sync(database)?;
        }
        database.apply(writes)?;
        database.flush()?;
        self.unsynced += bytes;
        Ok(())
    }

    fn sync(&mut self, database: &Database) -> StoreResult<()> {
        database.sync()?;
        self.unsynced = 0;
        Ok(())
    }
}
