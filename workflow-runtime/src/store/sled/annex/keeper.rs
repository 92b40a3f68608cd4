//! Writing to the annex, and the count of what is needed of each file.
//!
//! Owns the order of things: bytes are in a file, and synced, before sled points to them; a file is removed after the batch
//! was synced that stopped pointing there. Counts change in the batch that changes what they count. Only the archiver has
//! one, so there is one writer. Never decides which records go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};

use bytes::Bytes;

use super::super::database::{Database, Write, corrupt, describe, io_error};
use super::super::files;
use super::super::keys::{self, Key};
use super::super::plan::{put, remove};
use super::super::reads;
use super::super::segment::Archive;
use super::compact::Compaction;
use super::{Pointer, Tally, encode, file_path, list, tally_member};
use crate::store::StoreResult;

/// Records below this many bytes stay in sled: a pointer and what surrounds a record in a file are as long.
const INLINE: usize = 64;

/// What is needed of which file.
pub(in super::super) type Tallies = BTreeMap<u64, Tally>;

/// Reads what is counted of each file.
pub(in super::super) fn tallies(database: &Database) -> StoreResult<Tallies> {
    let mut found = Tallies::new();
    for scanned in database.scan(&[keys::ANNEX], &[keys::ANNEX]) {
        let (name, record) = reads::whole(scanned?)?;
        let wrong = |wrong| corrupt(describe(&name), wrong);
        let number = keys::annex_of(&name);
        let number = number.ok_or_else(|| wrong("its key has the wrong length"))?;
        found.insert(number, Tally::decode(&record).map_err(wrong)?);
    }
    Ok(found)
}

/// The one writer of the annex.
#[derive(Debug)]
pub(in super::super) struct Keeper {
    /// How large a file gets, unless one record alone is larger.
    limit: u64,
    pub(super) tallies: Tallies,
    /// What sled has of those that changed since: `None` if nothing.
    changed: BTreeMap<u64, Option<Tally>>,
    /// The newest file, if it can be written to.
    file: Option<File>,
    /// Files that no entry counts once the next batch is on the disk.
    emptied: Vec<u64>,
    /// Files of which little is needed.
    pub(super) sparse: BTreeSet<u64>,
    pub(super) compaction: Option<Compaction>,
}

impl Keeper {
    /// Takes the annex up as sled counts it. Files that it does not count are removed, and what follows the last record
    /// in the newest one is cut off: nothing ever pointed there.
    pub(in super::super) fn open(database: &Database, limit: u64) -> StoreResult<Self> {
        let tallies = tallies(database)?;
        let directory = database.annex.directory();
        for number in list(directory)? {
            if !tallies.contains_key(&number) {
                remove_file(database, number)?;
            }
        }
        let sparse = tallies.iter().filter(|(_, tally)| tally.is_sparse());
        let mut keeper = Self {
            limit,
            sparse: sparse.map(|(number, _)| *number).collect(),
            tallies,
            changed: BTreeMap::new(),
            file: None,
            emptied: Vec::new(),
            compaction: None,
        };
        keeper.file = keeper.resume(database)?;
        Ok(keeper)
    }

    /// Opens the newest file to go on with it. Not if something is missing from it: readers say what.
    fn resume(&self, database: &Database) -> StoreResult<Option<File>> {
        let Some((number, tally)) = self.tallies.last_key_value() else {
            return Ok(None);
        };
        let path = file_path(database.annex.directory(), *number);
        let failed = |error: io::Error| io_error("opening", &path, &error);
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let len = file.metadata().map_err(failed)?.len();
        if len < tally.end {
            return Ok(None);
        }
        if len > tally.end {
            let cut = file.set_len(tally.end).and_then(|()| file.sync_all());
            cut.map_err(|error| io_error("cutting", &path, &error))?;
        }
        Ok(Some(file))
    }

    /// Writes records to the newest file, on the disk, and adds the pointers to them. Small ones go into sled.
    pub(in super::super) fn store(
        &mut self,
        database: &Database,
        records: impl IntoIterator<Item = (Key, Bytes)>,
        archive: u64,
        writes: &mut Vec<Write>,
    ) -> StoreResult<()> {
        let mut waiting = Vec::new();
        for (key, record) in records {
            if record.len() < INLINE {
                put(writes, &key, &record);
                continue;
            }
            let pointer = self.add(database, key.as_bytes(), &record, archive, &mut waiting)?;
            writes.push((key.piece(0), Some(pointer.encode())));
        }
        self.write(database, &waiting)
    }

    /// Adds a record to those that wait to be written to the newest file, which may be begun for it.
    pub(super) fn add(
        &mut self,
        database: &Database,
        name: &[u8],
        record: &[u8],
        archive: u64,
        waiting: &mut Vec<u8>,
    ) -> StoreResult<Pointer> {
        let is_full = |(_, tally): (&u64, &Tally)| tally.end >= self.limit;
        if self.file.is_none() || self.tallies.last_key_value().is_none_or(is_full) {
            self.write(database, waiting)?;
            waiting.clear();
            self.begin(database)?;
        }
        let (number, tally) = self.tallies.last_key_value().expect("one was begun");
        let start = tally.end - waiting.len() as u64;
        let number = *number;
        let pointer = encode(waiting, name, record, archive, (number, start));
        let mut tally = *tally;
        tally.add(&pointer);
        self.change(number, Some(tally));
        Ok(pointer)
    }

    /// Writes what was added, and syncs it.
    pub(super) fn write(&self, database: &Database, waiting: &[u8]) -> StoreResult<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        let (number, tally) = self.tallies.last_key_value().expect("one was begun");
        let path = file_path(database.annex.directory(), *number);
        let file = self.file.as_ref().expect("one was begun");
        file.write_all_at(waiting, tally.end - waiting.len() as u64)
            .map_err(|error| io_error("writing", &path, &error))?;
        if database.skip_fdatasync {
            return Ok(());
        }
        file.sync_data()
            .map_err(|error| io_error("syncing", &path, &error))
    }

    /// Begins the next file. Its name is on the disk before anything can point to it.
    fn begin(&mut self, database: &Database) -> StoreResult<()> {
        let directory = database.annex.directory();
        files::raise_format(&database.directory)?;
        let failed = |error: io::Error| io_error("making", directory, &error);
        match DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => files::sync_directory(&database.directory)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        let newest = self.tallies.last_key_value().map(|(number, _)| *number);
        let number = newest.map_or(0, |number| number + 1);
        let path = file_path(directory, number);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| io_error("making", &path, &error))?;
        files::sync_directory(directory)?;
        self.file = Some(file);
        self.change(number, Some(Tally::default()));
        // Nothing may have been needed of the one before: from now on it can go.
        if let Some(newest) = newest {
            self.change(newest, self.tallies.get(&newest).copied());
        }
        Ok(())
    }

    /// Counts records as not needed any more.
    pub(in super::super) fn free<'a>(
        &mut self,
        pointers: impl IntoIterator<Item = &'a Pointer>,
    ) -> StoreResult<()> {
        for pointer in pointers {
            let tally = self.tallies.get(&pointer.file);
            let Some(less) = tally.and_then(|tally| tally.without(pointer)) else {
                let place = describe(Key::annex(pointer.file).as_bytes());
                return Err(corrupt(place, "it counts less than there is"));
            };
            self.change(pointer.file, Some(less));
            if less.is_sparse() {
                self.sparse.insert(pointer.file);
            }
        }
        Ok(())
    }

    /// Returns how many records are needed: sled has a pointer to each.
    pub(in super::super) fn records(&self) -> u64 {
        self.tallies.values().map(|tally| tally.records).sum()
    }

    fn change(&mut self, number: u64, to: Option<Tally>) {
        let was = match to {
            Some(tally) => self.tallies.insert(number, tally),
            None => self.tallies.remove(&number),
        };
        self.changed.entry(number).or_insert(was);
    }

    /// Adds the counts that changed to a batch. Files of which nothing is needed are not counted any more.
    pub(in super::super) fn settle(&mut self, archive: &mut Archive, writes: &mut Vec<Write>) {
        let newest = self.tallies.last_key_value().map(|(number, _)| *number);
        for (number, was) in std::mem::take(&mut self.changed) {
            let is_emptied = |tally: &Tally| tally.records == 0 && Some(number) != newest;
            if let Some(was) = was {
                archive.annex.remove(tally_member(number, &was));
            }
            let key = Key::annex(number);
            if let Some(tally) = self.tallies.get(&number)
                && !is_emptied(tally)
            {
                archive.annex.add(tally_member(number, tally));
                put(writes, &key, &tally.encode());
            } else {
                self.tallies.remove(&number);
                self.sparse.remove(&number);
                self.emptied.push(number);
                remove(writes, &key, 1);
            }
        }
    }

    /// Removes files of which nothing is needed. The batch that says so is on the disk.
    pub(in super::super) fn tidy(&mut self, database: &Database) -> StoreResult<()> {
        for number in std::mem::take(&mut self.emptied) {
            remove_file(database, number)?;
        }
        Ok(())
    }
}

/// Removes a file. If that is forgotten in a power cut, the next open removes it again.
fn remove_file(database: &Database, number: u64) -> StoreResult<()> {
    let path = file_path(database.annex.directory(), number);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("removing", &path, &error));
        }
        _ => {}
    }
    database.annex.forget(number);
    Ok(())
}
