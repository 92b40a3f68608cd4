//! The annex: segments and letters in files of our own, to which sled only points.
//!
//! Owns the names of these files and how a record is read from one. `record` has their bytes, `keeper` writes, counts and
//! removes, `compact` empties files of which little is needed. What is pointed to was synced before the pointer was
//! written, and is never changed in its place. Never decides what is archived or deleted.

mod compact;
#[cfg(feature = "testing")]
mod hostile;
mod keeper;
mod record;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

#[cfg(feature = "testing")]
pub(super) use self::hostile::hostile;
pub(super) use self::keeper::{Keeper, Tallies, tallies};
pub(super) use self::record::{Entry, Pointer, Tally, encode, tally_member};
use super::bytes::Malformed;
use super::database::{corrupt, io_error};
use crate::store::{StoreError, StoreResult};

/// The directory of the annex, inside the store's.
const DIRECTORY: &str = "annex";

/// What the names of files end with, after 20 digits.
const ENDING: &str = ".annex";

/// How many files stay open for readers. Opening one costs as much as reading a record.
const OPEN_FILES: usize = 16;

/// Up to here memory is asked for as a pointer says. More only if the file is long enough: a pointer may be anything that somebody
/// wrote to a disk.
const TRUSTED: u32 = 1024 * 1024;

/// Returns the directory of the annex.
pub(super) fn directory(store: &Path) -> PathBuf {
    store.join(DIRECTORY)
}

/// Returns the path of a file of the annex.
pub(super) fn file_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}{ENDING}"))
}

/// Lists the numbers of the files that are there, in their order.
pub(super) fn list(directory: &Path) -> StoreResult<Vec<u64>> {
    let failed = |error: io::Error| io_error("reading", directory, &error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // It is made with the first file.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        numbers.extend(number_of(&name.to_string_lossy()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the number of a file from its name. `None`: it is none of ours.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok())?
}

/// Why a record could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// Its file is not there: it was emptied meanwhile, or it is lost.
    Gone,
    /// What is there is not what was written.
    Wrong(Malformed),
    /// The operating system does not read.
    Refused(StoreError),
}

impl Unread {
    /// Makes an error of it that names the record.
    pub(super) fn error(self, place: String) -> StoreError {
        match self {
            Self::Gone => corrupt(place, "its file in the annex is missing"),
            Self::Wrong(wrong) => corrupt(place, wrong),
            Self::Refused(error) => error,
        }
    }
}

/// The files of the annex, for reading.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    /// Those that were read last, the newest last.
    open: Mutex<Vec<(u64, Arc<File>)>>,
}

impl Files {
    pub(super) fn new(store: &Path) -> Self {
        Self {
            directory: directory(store),
            open: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads the record of that name that a pointer points to.
    pub(super) fn read(&self, name: &[u8], pointer: &Pointer) -> Result<Bytes, Unread> {
        let path = || file_path(&self.directory, pointer.file);
        let refused = |error: io::Error| Unread::Refused(io_error("reading", &path(), &error));
        let file = self.file(pointer.file)?;
        let too_short = Err(Unread::Wrong("its file in the annex ends before it"));
        let end = u64::from(pointer.offset) + u64::from(pointer.len);
        if pointer.len > TRUSTED && file.metadata().map_err(refused)?.len() < end {
            return too_short;
        }
        let mut bytes = vec![0; pointer.len as usize];
        match file.read_exact_at(&mut bytes, u64::from(pointer.offset)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return too_short,
            Err(error) => return Err(refused(error)),
        }
        let bytes = Bytes::from(bytes);
        let entry = Entry::read(&bytes).map_err(Unread::Wrong)?;
        if entry.name != name || !pointer.fits(&entry) {
            return Err(Unread::Wrong("another record lies in its place"));
        }
        Ok(bytes.slice_ref(entry.record))
    }

    /// Forgets a file that is not there any more, so that the disk gets its space back.
    pub(super) fn forget(&self, number: u64) {
        self.open().retain(|(other, _)| *other != number);
    }

    fn file(&self, number: u64) -> Result<Arc<File>, Unread> {
        {
            let mut open = self.open();
            if let Some(at) = open.iter().position(|(other, _)| *other == number) {
                let found = open.remove(at);
                let file = Arc::clone(&found.1);
                open.push(found);
                return Ok(file);
            }
        }
        let path = file_path(&self.directory, number);
        let refused = |error: io::Error| Unread::Refused(io_error("opening", &path, &error));
        let file = match File::open(&path) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Unread::Gone),
            Err(error) => return Err(refused(error)),
        };
        let mut open = self.open();
        // Whoever removes it does so before it is forgotten here: one that is gone must not be kept.
        if file.metadata().map_err(refused)?.nlink() > 0 {
            if open.len() == OPEN_FILES {
                open.remove(0);
            }
            open.push((number, Arc::clone(&file)));
        }
        Ok(file)
    }

    fn open(&self) -> MutexGuard<'_, Vec<(u64, Arc<File>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
