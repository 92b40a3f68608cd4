//! Writing to sled so that a power cut leaves it whole.
//!
//! Owns when sled's file is synced: one batch lies between two syncs, and before it only what is synced. Never decides
//! what to write. Why it is done like this is in `docs/decisions/0042-one-batch-to-a-sync.md`.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::collect::Collector;
use super::database::{Database, Write, io_error};
use crate::store::StoreResult;

/// The most bytes that one note may add to a batch. sled writes some five times as much, and readers wait for it.
pub(super) const MAX_BATCH: usize = 512 * 1024;

/// How many bytes of sled's log may be unsynced that reading made it write. Far less than a segment: nothing is
/// amiss before sled begins two of them between two syncs.
const MAX_BY_READING: u64 = 256 * 1024;

/// After how many changes of a batch another round of giving memory back is due: sled makes two or three
/// old copies of pages for each, and a round frees up to 512 of them.
const CHANGES_PER_ROUND: usize = 128;

/// Rounds after every batch, however small: what a batch leaves is free two rounds later.
const LEAST_ROUNDS: usize = 3;

impl Database {
    /// Makes all changes in one atomic batch, durably.
    ///
    /// sled calls stable what it wrote. So that it never says so of what a power cut may take, one batch lies
    /// between two syncs and nothing else: `docs/store-format.md`, "Syncing".
    pub(super) fn commit(&self, writes: Vec<Write>) -> StoreResult<()> {
        let changes = writes.len();
        let mut batch = sled::Batch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        let _committing = self.committing.lock();
        // First beside the readers, because it takes a while, then for what they did meanwhile.
        self.settle(0)?;
        {
            let still = &self.still;
            let _alone = still.write().unwrap_or_else(PoisonError::into_inner);
            self.settle(0)?;
            self.guard("committing", || self.sled.apply_batch(batch))?;
        }
        self.put_down()?;
        give_back_memory(changes);
        Ok(())
    }

    /// Makes all changes in one atomic batch, durably, and has sled collect in it if that is due. `entries`: about how
    /// many there are in all.
    ///
    /// What sled moves for that is part of the batch, so it is synced with it.
    pub(super) fn commit_and_collect(
        &self,
        mut writes: Vec<Write>,
        entries: u64,
    ) -> StoreResult<()> {
        let len = self.file_len()?;
        writes.extend(self.collector().fillers(len, entries, writes.len()));
        self.commit(writes)
    }

    /// Has sled collect some more, durably, in a batch that changes nothing. Says whether there was anything to do.
    pub(super) fn collect(&self) -> StoreResult<bool> {
        let len = self.file_len()?;
        let fillers = self.collector().fillers_alone(len);
        if fillers.is_empty() {
            return Ok(false);
        }
        self.commit(fillers)?;
        Ok(true)
    }

    fn collector(&self) -> MutexGuard<'_, Collector> {
        let collector = self.collector.lock();
        collector.unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts everything on the disk that sled holds.
    pub(super) fn put_down(&self) -> StoreResult<()> {
        let written = self.guard("flushing", || self.sled.flush())?;
        self.collector().wrote(written as u64);
        self.sync()
    }

    /// Syncs what reading made sled write, if that is much.
    ///
    /// # Errors
    ///
    /// As any error of a sync, this one ends the store.
    pub(super) fn settle_after_reading(&self) -> StoreResult<()> {
        match self.committing.try_lock() {
            Ok(_free) => self.settle(MAX_BY_READING),
            // Whoever writes a batch syncs all that is there.
            Err(_) => Ok(()),
        }
    }

    /// Syncs what sled wrote since the last sync if it is more than this: reading too splits and merges pages.
    fn settle(&self, most: u64) -> StoreResult<()> {
        let written = self.guard("flushing", || self.sled.flush())? as u64;
        let unsynced = self.by_reading.fetch_add(written, Ordering::AcqRel) + written;
        // sled also writes what it is about to read back, and does not say so.
        if unsynced > most
            || (most == 0 && self.changed_at()? != self.synced_at.load(Ordering::Acquire))
        {
            self.sync()?;
        }
        Ok(())
    }

    /// Returns when sled's file was changed last, as the file system has it.
    fn changed_at(&self) -> StoreResult<i64> {
        let metadata = self.metadata()?;
        Ok(metadata
            .mtime()
            .wrapping_mul(1_000_000_000)
            .wrapping_add(metadata.mtime_nsec()))
    }

    /// Puts on the disk what the operating system has: what sled's `flush` does not do on Linux.
    fn sync(&self) -> StoreResult<()> {
        if self.skip_fdatasync {
            return Ok(());
        }
        // Before the sync: what is written while it goes on may be missing from it.
        self.by_reading.store(0, Ordering::Release);
        let changed_at = self.changed_at()?;
        let path = self.directory.join("db");
        self.file
            .sync_data()
            .map_err(|error| io_error("syncing", &path, &error))?;
        self.synced_at.store(changed_at, Ordering::Release);
        Ok(())
    }
}

/// Has sled free the pages that it replaced.
///
/// It does so by itself only after every 128 calls, a limited number each time. A batch is one call
/// that replaces hundreds of pages, so without this what it replaces piles up: some KiB for every run
/// that falls asleep.
fn give_back_memory(changes: usize) {
    for _ in 0..LEAST_ROUNDS + changes / CHANGES_PER_ROUND {
        sled::pin().flush();
    }
}

#[cfg(test)]
mod tests;
