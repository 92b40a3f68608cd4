//! Emptying files of the annex of which little is needed.
//!
//! Owns the walk over such a file: records that sled still points to are written to the newest file, and the pointers changed
//! in one batch; with the last one the file goes. It is done in rounds of a bounded size, so that an archive
//! never waits long. A file with damage in it stays. Never moves anything that nothing points to.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use super::super::database::{Database, Write, io_error};
use super::super::keys;
use super::record::HEAD;
use super::{Entry, Keeper, Pointer, file_path};
use crate::store::StoreResult;

/// How much of a file is read in one round, unless one record alone is longer.
const READ_AT_ONCE: u64 = 1024 * 1024;

/// A file that is being emptied.
#[derive(Debug)]
pub(super) struct Compaction {
    number: u64,
    file: File,
    /// Up to where its records were moved.
    at: u64,
    end: u64,
}

impl Keeper {
    /// Says whether there is a file to be emptied.
    pub(in super::super) fn is_wasteful(&self) -> bool {
        self.compaction.is_some() || self.sparsest().is_some()
    }

    /// Moves some records out of a file of which little is needed: adds the new pointers to a batch.
    pub(in super::super) fn compact(
        &mut self,
        database: &Database,
        writes: &mut Vec<Write>,
    ) -> StoreResult<()> {
        let Some(mut compaction) = self.take_up(database)? else {
            return Ok(());
        };
        let mut waiting = Vec::new();
        let mut freed = Vec::new();
        let bytes = compaction.read(database)?;
        let mut at = 0;
        while let Ok(entry) = Entry::read(&bytes[at..]) {
            let offset = u32::try_from(compaction.at + at as u64).expect("files are below 4 GiB");
            at += entry.len;
            let old = entry.at(compaction.number, offset);
            if database.points_to(entry.name, &old)? {
                let (name, record) = (entry.name, entry.record);
                let new = self.add(database, name, record, entry.archive, &mut waiting)?;
                writes.push((keys::first_key(name), Some(new.encode())));
                freed.push(old);
            }
        }
        self.write(database, &waiting)?;
        self.free(&freed)?;
        compaction.at += at as u64;
        // A record that cannot be read ends it: what is behind it stays where it is.
        if at > 0 && compaction.at < compaction.end {
            self.compaction = Some(compaction);
        }
        Ok(())
    }

    /// Opens the next file to be emptied, or goes on with one.
    fn take_up(&mut self, database: &Database) -> StoreResult<Option<Compaction>> {
        if let Some(compaction) = self.compaction.take()
            && self.tallies.contains_key(&compaction.number)
        {
            return Ok(Some(compaction));
        }
        let Some(number) = self.sparsest() else {
            return Ok(None);
        };
        // It is tried once until something of it is freed again.
        self.sparse.remove(&number);
        let path = file_path(database.annex.directory(), number);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("opening", &path, &error)),
        };
        Ok(Some(Compaction {
            number,
            file,
            at: 0,
            end: self.tallies[&number].end,
        }))
    }

    /// Finds a file of which little is needed. Not the newest: that is where records are moved to.
    fn sparsest(&self) -> Option<u64> {
        let (newest, _) = self.tallies.last_key_value()?;
        let sparse = self.sparse.iter().filter(|number| *number != newest);
        let counted = sparse.filter_map(|number| Some((self.tallies.get(number)?, *number)));
        let counted = counted.filter(|(tally, _)| tally.is_sparse());
        let (_, number) = counted.min_by_key(|(tally, _)| tally.bytes)?;
        Some(number)
    }
}

impl Compaction {
    /// Reads some whole records.
    fn read(&self, database: &Database) -> StoreResult<Vec<u8>> {
        let path = file_path(database.annex.directory(), self.number);
        let failed = |error: io::Error| io_error("reading", &path, &error);
        let left = self.end - self.at;
        let mut most = left.min(READ_AT_ONCE);
        let mut bytes = Vec::new();
        for _ in 0..2 {
            bytes.resize(usize::try_from(most).expect("files are below 4 GiB"), 0);
            match self.file.read_exact_at(&mut bytes, self.at) {
                Ok(()) => {}
                // It lost its end: what is left of it stays.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Vec::new()),
                Err(error) => return Err(failed(error)),
            }
            let Some(len) = bytes.first_chunk::<4>() else {
                break;
            };
            let len = 4 + u64::from(u32::from_le_bytes(*len));
            if len <= most || len > left || len < HEAD as u64 {
                break;
            }
            most = len;
        }
        Ok(bytes)
    }
}

impl Pointer {
    /// Says whether a value in sled is this pointer.
    pub(in super::super) fn is(&self, value: &[u8]) -> bool {
        Self::decode(value).as_ref() == Some(self)
    }
}
