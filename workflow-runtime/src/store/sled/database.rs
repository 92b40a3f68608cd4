//! The one place that calls sled.
//!
//! Owns the open tree and the second handle of its file. Every call is behind
//! `catch_unwind`, because sled panics on some damage, and comes back as a [`StoreError`]; a
//! lookout sees to it that it does come back.
//! Never decides what to write.

use std::any::Any;
use std::fs::{File, Metadata};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use bytes::Bytes;

use super::annex::{Files, Pointer};
use super::collect::Collector;
use super::keys::{self, Key};
use super::lookout::Lookout;
use super::walk::Held;
use crate::store::{StoreError, StoreResult};

/// sled's segment size: twice its default, which doubles both limits that follow from it.
pub(super) const SLED_SEGMENT: usize = 1024 * 1024;

/// One change of one key: a new value, or none.
pub(super) type Write = (Vec<u8>, Option<Vec<u8>>);

/// How sled is opened.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) cache_bytes: u64,
    pub(super) skip_fdatasync: bool,
    /// How large a file of the log gets.
    pub(super) log_file_bytes: u64,
    /// Whether a sync may have failed, so that what can be read may be on no disk.
    pub(super) write_again: bool,
}

/// An open sled tree.
#[derive(Debug)]
pub(super) struct Database {
    /// First, because it is dropped first: it has a handle of sled's too.
    lookout: Lookout,
    pub(super) sled: sled::Db,
    pub(super) file: File,
    pub(super) directory: PathBuf,
    pub(super) annex: Files,
    pub(super) skip_fdatasync: bool,
    broken: AtomicBool,
    /// Held by readers for a call of sled each, and by the writer from where all is synced to the end of its batch.
    pub(super) still: RwLock<()>,
    /// Held from the first sync of a commit to its last.
    pub(super) committing: Mutex<()>,
    /// Bytes of sled's log that were written and not synced, batches left out.
    pub(super) by_reading: AtomicU64,
    /// When sled's file was changed last, as of the last sync.
    pub(super) synced_at: AtomicI64,
    pub(super) collector: Mutex<Collector>,
}

impl Database {
    /// Opens or makes sled's files in `directory`.
    pub(super) fn open(directory: &Path, settings: &Settings) -> StoreResult<Self> {
        let config = sled::Config::new()
            .path(directory)
            .segment_size(SLED_SEGMENT)
            .cache_capacity(settings.cache_bytes)
            .flush_every_ms(None);
        let sled = guarded("opening the database", || config.open())?;
        let lookout = Lookout::new(&sled, &config)
            .map_err(|error| io_error("starting a thread for", directory, &error))?;
        let path = directory.join("db");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| io_error("opening", &path, &error))?;
        Ok(Self {
            lookout,
            sled,
            file,
            directory: directory.to_path_buf(),
            annex: Files::new(directory),
            skip_fdatasync: settings.skip_fdatasync,
            broken: AtomicBool::new(false),
            still: RwLock::new(()),
            committing: Mutex::new(()),
            by_reading: AtomicU64::new(0),
            synced_at: AtomicI64::new(0),
            collector: Mutex::new(Collector::new(settings.log_file_bytes)),
        })
    }

    /// Says whether sled panicked: nothing it says is to be trusted after that.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Calls sled for reading.
    pub(super) fn call<T>(
        &self,
        place: &str,
        call: impl FnOnce() -> sled::Result<T>,
    ) -> StoreResult<T> {
        let _still = self.still.read().unwrap_or_else(PoisonError::into_inner);
        self.guard(place, call)
    }

    pub(super) fn guard<T>(
        &self,
        place: &str,
        call: impl FnOnce() -> sled::Result<T>,
    ) -> StoreResult<T> {
        let mut returned = false;
        let _watched = self.lookout.watch();
        let result = guarded(place, || {
            let result = call();
            returned = true;
            result
        });
        if !returned {
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Reads one record.
    pub(super) fn get(&self, key: &Key) -> StoreResult<Option<Bytes>> {
        let place = || describe(key.as_bytes());
        // One look for all pieces: a batch in between may remove the rest of them.
        let still = self.still.read().unwrap_or_else(PoisonError::into_inner);
        let first = self.guard(&place(), || self.sled.get(key.piece(0)))?;
        let Some(first) = first else {
            return Ok(None);
        };
        if Pointer::decode(&first).is_some() {
            drop(still);
            return self.fetch(key.as_bytes(), first);
        }
        let (count, head) = keys::first_piece(&first)
            .ok_or_else(|| corrupt(place(), "its first piece is empty"))?;
        if count == 1 {
            return Ok(Some(Bytes::copy_from_slice(head)));
        }
        let mut record = Vec::with_capacity(usize::from(count) * keys::MAX_VALUE);
        record.extend_from_slice(head);
        for number in 1..count {
            let piece = self.guard(&place(), || self.sled.get(key.piece(number)))?;
            let piece = piece.ok_or_else(|| {
                corrupt(place(), &format!("piece {number} of {count} is missing"))
            })?;
            record.extend_from_slice(&piece);
        }
        Ok(Some(record.into()))
    }

    /// Reads a record from the annex. `first`: what its key had, which may point to a file that was emptied since.
    pub(super) fn fetch(&self, name: &[u8], mut first: sled::IVec) -> StoreResult<Option<Bytes>> {
        loop {
            let Some(pointer) = Pointer::decode(&first) else {
                let (_, head) = keys::first_piece(&first)
                    .ok_or_else(|| corrupt(describe(name), "it points to nowhere"))?;
                return Ok(Some(Bytes::copy_from_slice(head)));
            };
            let unread = match self.annex.read(name, &pointer) {
                Ok(record) => return Ok(Some(record)),
                Err(unread) => unread,
            };
            let place = describe(name);
            match self.call(&place, || self.sled.get(keys::first_key(name)))? {
                Some(now) if now == first => return Err(unread.error(place)),
                Some(now) => first = now,
                None => return Ok(None),
            }
        }
    }

    /// Says whether that is where a record lies now.
    pub(super) fn points_to(&self, name: &[u8], pointer: &Pointer) -> StoreResult<bool> {
        let found = self.call(&describe(name), || self.sled.get(keys::first_key(name)))?;
        Ok(found.is_some_and(|value| pointer.is(&value)))
    }

    /// Returns how many pieces a record has in sled, and where in the annex it lies if it does; 0 if it is not there.
    pub(super) fn pieces(&self, key: &Key) -> StoreResult<(u16, Option<Pointer>)> {
        let first = self.call(&describe(key.as_bytes()), || self.sled.get(key.piece(0)))?;
        let Some(first) = first else {
            return Ok((0, None));
        };
        let pointer = Pointer::decode(&first);
        let count = keys::first_piece(&first).map_or(1, |(count, _)| count);
        Ok((count, pointer))
    }

    /// Returns at most `limit` pieces whose keys begin with `prefix`.
    pub(super) fn held(&self, prefix: &[u8], limit: usize) -> StoreResult<Vec<Held>> {
        let mut found = Vec::new();
        let mut iter = self.sled.scan_prefix(prefix);
        while found.len() < limit {
            let next = self.call(&describe(prefix), || iter.next().transpose())?;
            let Some((key, value)) = next else {
                break;
            };
            found.push(Held::new(&key, &value));
        }
        Ok(found)
    }

    /// Returns at most `limit` pieces with keys from `first` on and before `end`.
    pub(super) fn held_between(
        &self,
        first: &[u8],
        end: &[u8],
        limit: usize,
    ) -> StoreResult<Vec<Held>> {
        let mut iter = self.sled.range(first..end);
        let mut found = Vec::new();
        while found.len() < limit {
            let next = self.call(&describe(first), || iter.next().transpose())?;
            let Some((key, value)) = next else {
                break;
            };
            found.push(Held::new(&key, &value));
        }
        Ok(found)
    }

    /// Returns the name of the last record before `name` that begins with `prefix`.
    pub(super) fn name_before(&self, prefix: &[u8], name: &[u8]) -> StoreResult<Option<Vec<u8>>> {
        let found = self.call(&describe(name), || self.sled.get_lt(name))?;
        Ok(found.and_then(|(key, _)| {
            let (found, _) = keys::split_piece(&key)?;
            found.starts_with(prefix).then(|| found.to_vec())
        }))
    }

    /// Returns how long sled's file is.
    pub(super) fn file_len(&self) -> StoreResult<u64> {
        Ok(self.metadata()?.len())
    }

    pub(super) fn metadata(&self) -> StoreResult<Metadata> {
        let path = self.directory.join("db");
        let found = self.file.metadata();
        found.map_err(|error| io_error("measuring", &path, &error))
    }

    /// Reads everything that is there.
    pub(super) fn entries(&self) -> StoreResult<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut iter = self.sled.iter();
        let mut found = Vec::new();
        while let Some((key, value)) = self.call("the entries", || iter.next().transpose())? {
            found.push((key.to_vec(), value.to_vec()));
        }
        Ok(found)
    }

    /// Says whether sled spilled a page into a file of its own, which it would never sync.
    pub(super) fn has_blobs(&self) -> StoreResult<bool> {
        let path = self.directory.join("blobs");
        let mut entries =
            std::fs::read_dir(&path).map_err(|error| io_error("reading", &path, &error))?;
        Ok(entries.next().is_some())
    }

    /// Closes sled: it writes what it still holds and lets go of its files.
    pub(super) fn close(self) -> StoreResult<()> {
        let Self { lookout, sled, .. } = self;
        drop(lookout);
        guarded("closing the database", || {
            drop(sled);
            Ok(())
        })
    }
}

/// Calls sled and turns its errors and its panics into ours.
fn guarded<T>(place: &str, call: impl FnOnce() -> sled::Result<T>) -> StoreResult<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) => Err(StoreError::Io {
            operation: place.to_owned(),
            message: error.to_string(),
        }),
        Ok(Err(error)) => Err(corrupt(place.to_owned(), &error.to_string())),
        Err(panic) => Err(corrupt(place.to_owned(), &panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("sled gave up: {}", text.unwrap_or("it did not say why"))
}

pub(super) fn corrupt(place: String, detail: &str) -> StoreError {
    StoreError::Corrupt {
        place,
        detail: detail.to_owned(),
    }
}

pub(super) fn io_error(doing: &str, path: &Path, error: &std::io::Error) -> StoreError {
    StoreError::Io {
        operation: format!("{doing} {}", path.display()),
        message: error.to_string(),
    }
}

/// Says what a key names, for messages.
pub(super) fn describe(name: &[u8]) -> String {
    let run = || keys::run_of(name).map(|run| run.to_string());
    match name.first() {
        Some(&keys::ARCHIVE) => "the archive's record".to_owned(),
        Some(&keys::SEGMENT) => match keys::segment_of(name) {
            Some((run, seq)) => format!("the segment of {run} at record {seq}"),
            None => "the segments".to_owned(),
        },
        Some(&keys::HEADER) => match keys::position_of(name) {
            Some(place) => format!("the header of {}", place.run),
            None => "the headers".to_owned(),
        },
        Some(&keys::RUN) => format!("the entry of {}", run().unwrap_or_default()),
        Some(&keys::LIVE) => format!("the live entry of {}", run().unwrap_or_default()),
        Some(&keys::MAIL) => match keys::letter_of(name) {
            Some((run, number)) => format!("letter {number} to {run}"),
            None => "the letters".to_owned(),
        },
        Some(&keys::WAKE) => match keys::wake_of(name) {
            Some((_, run)) => format!("the wake entry of {run}"),
            None => "the wake entries".to_owned(),
        },
        // Its key may be somebody's secret.
        Some(&keys::NOTE) => "a note".to_owned(),
        Some(&keys::DELETED) => format!("the tombstone of {}", run().unwrap_or_default()),
        Some(&keys::ANNEX) => match keys::annex_of(name) {
            Some(number) => format!("the count of file {number} of the annex"),
            None => "the counts of the annex".to_owned(),
        },
        _ => format!("an unknown key {name:02x?}"),
    }
}
