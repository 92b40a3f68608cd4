//! The commit log: the files to which every group commit is appended.
//!
//! Owns their names, how they are made, written, synced, changed for the next one and
//! removed. Never reads one back: that is `scan`.
//!
//! A file is filled with zeros and synced before it is used where that can be done ahead of
//! need: overwriting zeros changes nothing but data, while a file that grows has its new
//! length journaled by the file system with every sync, which takes half as long again or
//! more. What follows the last block is therefore zero, or nothing.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::database::io_error;
use super::files::sync_directory;
use crate::store::StoreResult;

/// The directory of the log, inside the store's.
const DIRECTORY: &str = "log";

/// The file that is prepared to be the next one.
const SPARE: &str = "next";

/// What the names of files end with, after 20 digits.
const ENDING: &str = ".log";

/// How large a file gets, unless one block alone is larger: large enough that changing
/// files costs nothing, small enough that little stays behind for one record that is
/// still needed, and that a spare one is quickly prepared.
pub(super) const FILE_SIZE: u64 = 4 * 1024 * 1024;

/// Returns the log's directory.
pub(super) fn directory(store: &Path) -> PathBuf {
    store.join(DIRECTORY)
}

/// Returns the path of the file that begins with a commit.
pub(super) fn file_path(directory: &Path, first: u64) -> PathBuf {
    directory.join(format!("{first:020}{ENDING}"))
}

/// Reads from a name with which commit the file begins. `None`: it is no file of the log.
pub(super) fn first_commit(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING)?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok())?
}

/// Makes the directory of the log, private to its owner, in a store that is being made.
/// What an earlier attempt left there is removed.
pub(super) fn make_directory(store: &Path) -> StoreResult<()> {
    let path = directory(store);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("removing", &path, &error));
        }
        _ => {}
    }
    DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(|error| io_error("making", &path, &error))?;
    sync_directory(store)
}

/// Removes files of which nothing is needed any more, oldest first. If the removal is
/// forgotten in a power cut, the next open passes over them and removes them again.
pub(super) fn remove(directory: &Path, firsts: &[u64]) -> StoreResult<()> {
    for first in firsts {
        remove_file(&file_path(directory, *first))?;
    }
    Ok(())
}

fn remove_file(path: &Path) -> StoreResult<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(io_error("removing", path, &error))
        }
        _ => Ok(()),
    }
}

/// Removes a spare file that an earlier process left.
pub(super) fn remove_spare(directory: &Path) -> StoreResult<()> {
    remove_file(&directory.join(SPARE))
}

/// Prepares the next file ahead of need: zeros up to its size, on the disk.
pub(super) fn prepare(directory: &Path, size: u64) -> StoreResult<File> {
    const CHUNK: usize = 256 * 1024;
    let path = directory.join(SPARE);
    let failed = |error: io::Error| io_error("preparing", &path, &error);
    let file = create(&path).map_err(failed)?;
    let zeros = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let chunk = CHUNK.min(usize::try_from(size - at).unwrap_or(CHUNK));
        file.write_all_at(&zeros[..chunk], at).map_err(failed)?;
        at += chunk as u64;
    }
    file.sync_all().map_err(failed)?;
    Ok(file)
}

fn create(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// The file that is written to.
#[derive(Debug)]
pub(super) struct Log {
    directory: PathBuf,
    handle: LogFile,
    /// How large a file gets.
    size: u64,
    /// The commit the file begins with.
    first: u64,
    /// Where the next block goes.
    position: u64,
    /// Up to where the file is filled with zeros on the disk.
    prepared: u64,
    /// Whether something was written since the last sync.
    unsynced: bool,
}

/// A file of the log that any thread may sync.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    file: Arc<File>,
    path: Arc<Path>,
    skip_fdatasync: bool,
}

impl LogFile {
    /// Puts everything that was written before on the disk.
    pub(super) fn sync(&self) -> StoreResult<()> {
        if self.skip_fdatasync {
            return Ok(());
        }
        self.file
            .sync_data()
            .map_err(|error| io_error("syncing", &self.path, &error))
    }
}

impl Log {
    /// Makes the first file.
    pub(super) fn begin(directory: &Path, skip_fdatasync: bool) -> StoreResult<Self> {
        let path = file_path(directory, 0);
        let file = create(&path).map_err(|error| io_error("making", &path, &error))?;
        Ok(Self::new(directory, path, file, 0, 0, skip_fdatasync))
    }

    /// Goes on after the last block of an existing file.
    pub(super) fn resume(
        directory: &Path,
        first: u64,
        position: u64,
        skip_fdatasync: bool,
    ) -> StoreResult<Self> {
        let path = file_path(directory, first);
        let failed = |error: io::Error| io_error("opening", &path, &error);
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let prepared = file.metadata().map_err(failed)?.len();
        let mut log = Self::new(directory, path, file, first, prepared, skip_fdatasync);
        log.position = position;
        // A killed process may have written it without a sync.
        log.unsynced = true;
        Ok(log)
    }

    fn new(
        directory: &Path,
        path: PathBuf,
        file: File,
        first: u64,
        prepared: u64,
        skip_fdatasync: bool,
    ) -> Self {
        let handle = LogFile {
            file: Arc::new(file),
            path: path.into(),
            skip_fdatasync,
        };
        Self {
            directory: directory.to_path_buf(),
            handle,
            size: FILE_SIZE,
            first,
            position: 0,
            prepared,
            unsynced: true,
        }
    }

    /// Sets how large a file gets, unless one block alone is larger.
    pub(super) fn in_files_of(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// Returns how large a file gets.
    pub(super) fn file_size(&self) -> u64 {
        self.size
    }

    /// Cuts off what follows the last block.
    pub(super) fn cut(&mut self) -> StoreResult<()> {
        let LogFile { file, path, .. } = &self.handle;
        let cut = file.set_len(self.position).and_then(|()| file.sync_all());
        cut.map_err(|error| io_error("cutting", path, &error))?;
        self.prepared = self.position;
        Ok(())
    }

    pub(super) fn file(&self) -> &LogFile {
        &self.handle
    }

    /// Returns where the last block ends.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the commit that the file begins with.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Says whether a block should go into the next file: one that is ready, or one that
    /// would have to be made.
    pub(super) fn wants_next(&self, block: usize, spare_is_ready: bool) -> bool {
        let end = self.position + block as u64;
        let limit = if spare_is_ready {
            self.prepared.min(self.size)
        } else {
            self.size
        };
        self.position > 0 && end > limit
    }

    /// Begins the next file, with the spare one if there is one. Everything before is on
    /// the disk first, so that a torn block can only be in the last file.
    pub(super) fn begin_next(&mut self, first: u64, spare: Option<File>) -> StoreResult<()> {
        self.sync()?;
        let path = file_path(&self.directory, first);
        let failed = |error: io::Error| io_error("making", &path, &error);
        let (file, prepared) = match spare {
            Some(file) => {
                fs::rename(self.directory.join(SPARE), &path).map_err(failed)?;
                (file, self.size)
            }
            None => {
                let file = create(&path).map_err(failed)?;
                file.sync_all().map_err(failed)?;
                (file, 0)
            }
        };
        sync_directory(&self.directory)?;
        let skip = self.handle.skip_fdatasync;
        let (directory, size) = (std::mem::take(&mut self.directory), self.size);
        *self = Self::new(&directory, path, file, first, prepared, skip).in_files_of(size);
        Ok(())
    }

    /// Appends a block: one write.
    pub(super) fn append(&mut self, block: &[u8]) -> StoreResult<()> {
        let LogFile { file, path, .. } = &self.handle;
        file.write_all_at(block, self.position)
            .map_err(|error| io_error("writing", path, &error))?;
        self.position += block.len() as u64;
        self.unsynced = true;
        Ok(())
    }

    /// Puts everything that was appended on the disk.
    pub(super) fn sync(&mut self) -> StoreResult<()> {
        if self.unsynced {
            self.handle.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_twenty_digits_are_files_of_the_log() {
        let name = |first| {
            let path = file_path(Path::new("x"), first);
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        };
        for first in [0, 7, u64::MAX] {
            assert_eq!(first_commit(&name(first)), Some(first));
        }
        for other in [
            "next",
            "7.log",
            "0000000000000000000x.log",
            "+0000000000000000007.log",
        ] {
            assert_eq!(first_commit(other), None, "{other}");
        }
    }

    fn log(size: u64) -> (tempfile::TempDir, Log) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = Log::begin(directory.path(), false).expect("it can be made");
        (directory, log.in_files_of(size))
    }

    #[test]
    fn a_block_goes_into_the_next_file_if_it_does_not_fit_into_this_one() {
        let (directory, mut log) = log(100);
        assert!(!log.wants_next(1_000, false), "the first one always fits");
        log.append(&[1; 60]).expect("written");
        assert!(!log.wants_next(40, false));
        assert!(log.wants_next(41, false));
        assert!(log.wants_next(1, true), "nothing of this one was prepared");
        let spare = prepare(directory.path(), 100).expect("prepared");
        log.begin_next(1, Some(spare)).expect("begun");
        assert_eq!(log.first(), 1);
        assert!(!log.wants_next(1_000, true), "the first one always fits");
        log.append(&[1; 60]).expect("written");
        assert!(!log.wants_next(40, true));
        assert!(log.wants_next(41, true));
    }

    #[test]
    fn a_spare_file_is_zeros_up_to_its_size() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let size = 2 * 256 * 1024 + 7;
        prepare(directory.path(), size).expect("prepared");
        let bytes = fs::read(directory.path().join(SPARE)).expect("readable");
        assert_eq!(bytes.len() as u64, size);
        assert!(bytes.iter().all(|byte| *byte == 0));
        remove_spare(directory.path()).expect("removed");
        assert!(!directory.path().join(SPARE).exists());
        remove_spare(directory.path()).expect("there is none");
    }

    #[test]
    fn what_cannot_be_removed_is_said() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        remove(directory.path(), &[7]).expect("it is gone already");
        fs::create_dir(file_path(directory.path(), 7)).expect("made");
        let refused = remove(directory.path(), &[7]);
        assert!(refused.is_err(), "a directory is no file of the log");
        fs::write(super::directory(directory.path()), b"").expect("written");
        let refused = make_directory(directory.path());
        assert!(refused.is_err(), "a file is no directory of the log");
    }

    #[test]
    fn what_was_cut_off_or_appended_is_where_it_should_be() {
        let (directory, mut log) = log(100);
        log.append(b"first").expect("written");
        log.append(b"second").expect("written");
        log.sync().expect("synced");
        let mut again = Log::resume(directory.path(), 0, 5, false).expect("it can be opened");
        again.cut().expect("cut");
        again.append(b"third").expect("written");
        let bytes = fs::read(file_path(directory.path(), 0)).expect("readable");
        assert_eq!(bytes, b"firstthird");
    }
}
