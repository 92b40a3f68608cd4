//! The files beside sled's own: `FORMAT`, `lock`, `mark` and `clean`.
//!
//! Owns how they are written (synced, in an order in which a crash at any point leaves
//! something that the next open understands) and read. Never opens sled.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::block::Chain;
use super::bytes::Reader;
use super::database::{corrupt, io_error};
use crate::store::{StoreError, StoreResult};

/// The format this release writes, and the newest it reads. It reads format 1 too, which has no annex, and format 2, in whose log
/// no run sleeps.
pub(super) const FORMAT: u32 = 3;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const MAKING_FILE: &str = "making";
const LOCK_FILE: &str = "lock";
const MARK_FILE: &str = "mark";
const CLEAN_FILE: &str = "clean";

/// What the marker file begins with.
const NAME: &str = "workflow-runtime store, format ";

/// Bytes of one slot of the mark file: one disk sector, so that writing one slot cannot
/// tear the other.
const SLOT: usize = 512;

/// Bytes of a slot that mean something: number, archive, length, chain, check.
const SLOT_USED: usize = 8 + 8 + 8 + 32 + 16;

/// What is at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing, or an empty directory.
    Empty,
    /// A store whose making was cut short: nobody was ever told of anything in it.
    Unfinished,
    /// A store of this format.
    Store,
}

/// Looks at a path without changing it.
pub(super) fn look(path: &Path) -> StoreResult<Place> {
    let not_ours = |found: &str| StoreError::NotADatabase {
        path: path.to_path_buf(),
        found: found.to_owned(),
    };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Place::Empty),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(not_ours("it is a file"));
        }
        Err(error) => return Err(io_error("reading", path, &error)),
    };
    let marker = path.join(FORMAT_FILE);
    let text = match fs::read(&marker) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if path.join(MAKING_FILE).exists() {
                return Ok(Place::Unfinished);
            }
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", path, &error))?;
                // The lock is taken before anything else is made.
                if entry.file_name() != LOCK_FILE {
                    return Err(not_ours("a directory with other files in it"));
                }
            }
            return Ok(Place::Empty);
        }
        Err(error) => return Err(io_error("reading", &marker, &error)),
    };
    let number = format_of(&text).ok_or_else(|| not_ours("its FORMAT file is not one of ours"))?;
    if number > FORMAT {
        return Err(StoreError::NewerFormat {
            path: path.to_path_buf(),
            found: number,
            supported: FORMAT,
        });
    }
    Ok(Place::Store)
}

fn format_of(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    let number = text.strip_prefix(NAME)?.strip_suffix('\n')?;
    number.parse().ok()
}

/// Makes a store of an older format one of this format, durably: before anything is in it that older releases do not
/// understand. One that is still being made gets its format at the end.
pub(super) fn raise_format(directory: &Path) -> StoreResult<()> {
    let path = directory.join(FORMAT_FILE);
    match fs::read(&path) {
        Ok(text) if format_of(&text) == Some(FORMAT) => Ok(()),
        Ok(_) => write_format(directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("reading", &path, &error)),
    }
}

/// Makes the directory, private to its owner, if it is not there.
pub(super) fn make_directory(path: &Path) -> StoreResult<()> {
    let failed = |error: io::Error| io_error("making", path, &error);
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(path)
                .map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
    }
    sync_directory(path)?;
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_directory(Path::new(".")),
        Some(parent) => sync_directory(parent),
        None => Ok(()),
    }
}

/// Makes the content of a file durable that sled wrote and did not sync.
pub(super) fn sync_file(path: &Path) -> StoreResult<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(|error| io_error("syncing", path, &error))
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> StoreResult<()> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| io_error("syncing", path, &error))
}

fn private(path: &Path) -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true).write(true).create(true).mode(0o600);
    debug_assert!(!path.as_os_str().is_empty());
    options
}

/// Holds the directory for this process until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// How long the lock is waited for. A process that forks at the moment at which a store is closed has it until the
/// new process executes its program, and so has one that is just being killed.
const LOCK_WITHIN: Duration = Duration::from_millis(500);

/// How often it is tried meanwhile.
const LOCK_STEP: Duration = Duration::from_millis(5);

impl Lock {
    /// Takes the lock, or says who is faster.
    pub(super) fn take(directory: &Path) -> StoreResult<Self> {
        let path = directory.join(LOCK_FILE);
        let file = private(&path)
            .open(&path)
            .map_err(|error| io_error("opening", &path, &error))?;
        Self::hold(file, directory)
    }

    /// Takes the lock of a store in which nothing is to be changed. Without the file nobody can have it: then it is the
    /// directory that is locked, for others who do the same.
    pub(super) fn take_existing(directory: &Path) -> StoreResult<Self> {
        let path = directory.join(LOCK_FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => File::open(directory),
            opened => opened,
        };
        let file = file.map_err(|error| io_error("opening", &path, &error))?;
        Self::hold(file, directory)
    }

    fn hold(file: File, directory: &Path) -> StoreResult<Self> {
        let path = directory.join(LOCK_FILE);
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WITHIN => {
                    std::thread::sleep(LOCK_STEP);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::InUse {
                        path: directory.to_path_buf(),
                    });
                }
                Err(TryLockError::Error(error)) => return Err(io_error("locking", &path, &error)),
            }
        }
    }
}

/// Begins to make a store: what is in the directory until [`write_format`] is of no worth,
/// and what an earlier attempt left there is removed.
pub(super) fn begin_making(directory: &Path) -> StoreResult<()> {
    let making = directory.join(MAKING_FILE);
    let failed = |error: io::Error| io_error("writing", &making, &error);
    let file = private(&making).open(&making).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    sync_directory(directory)?;
    let entries =
        fs::read_dir(directory).map_err(|error| io_error("reading", directory, &error))?;
    for entry in entries {
        let path = entry
            .map_err(|error| io_error("reading", directory, &error))?
            .path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let removed = match name.as_str() {
            "db" | "conf" | MARK_FILE | FORMAT_NEW => fs::remove_file(&path),
            snapshot if snapshot.starts_with("snap.") => fs::remove_file(&path),
            _ => Ok(()),
        };
        removed.map_err(|error| io_error("removing", &path, &error))?;
    }
    sync_directory(directory)
}

/// Ends the making of a store: what [`write_format`] did is on the disk.
pub(super) fn end_making(directory: &Path) -> StoreResult<()> {
    let path = directory.join(MAKING_FILE);
    match fs::remove_file(&path) {
        Ok(()) => sync_directory(directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("removing", &path, &error)),
    }
}

/// Writes the marker file: from here on the directory is a store.
pub(super) fn write_format(directory: &Path) -> StoreResult<()> {
    let new = directory.join(FORMAT_NEW);
    let failed = |error: io::Error| io_error("writing", &new, &error);
    let mut file = private(&new).truncate(true).open(&new).map_err(failed)?;
    file.write_all(format!("{NAME}{FORMAT}\n").as_bytes())
        .map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&new, directory.join(FORMAT_FILE)).map_err(failed)?;
    sync_directory(directory)
}

/// The newest commit that was known to be synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) commit: u64,
    pub(super) chain: Chain,
    /// The newest archive that was known to be synced.
    pub(super) archive: u64,
    /// How long sled's file was.
    pub(super) db_len: u64,
}

/// The file of the high-water mark: two slots, written in turn.
#[derive(Debug)]
pub(super) struct MarkFile {
    file: File,
    path: PathBuf,
    next_slot: u64,
}

impl MarkFile {
    /// Reads the mark. `None` if the file is not there.
    pub(super) fn read(directory: &Path) -> StoreResult<Option<Mark>> {
        let path = directory.join(MARK_FILE);
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("reading", &path, &error)),
        }
        let newest = bytes.chunks(SLOT).filter_map(Mark::decode);
        let newest = newest.max_by_key(|mark| (mark.commit, mark.archive));
        newest.map(Some).ok_or_else(|| {
            corrupt(
                path.display().to_string(),
                "neither of its two slots is readable",
            )
        })
    }

    /// Opens the file for writing, making it if it is not there.
    pub(super) fn open(directory: &Path) -> StoreResult<Self> {
        let path = directory.join(MARK_FILE);
        let failed = |error: io::Error| io_error("opening", &path, &error);
        let mut file = private(&path).open(&path).map_err(failed)?;
        // The slot that holds the newest mark is not the one to write next.
        let mut first = [0; SLOT];
        let mut second = [0; SLOT];
        let _ = file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let age = |slot: &[u8]| Mark::decode(slot).map(|mark| (mark.commit, mark.archive));
        let _ = file.read(&mut first).map_err(failed)?;
        let _ = file.read(&mut second).map_err(failed)?;
        let next_slot = u64::from(age(&first) > age(&second));
        Ok(Self {
            file,
            path,
            next_slot,
        })
    }

    /// Writes a mark and syncs it.
    pub(super) fn write(&mut self, mark: &Mark) -> StoreResult<()> {
        let failed = |error: io::Error| io_error("writing", &self.path, &error);
        let offset = self.next_slot * SLOT as u64;
        self.file
            .write_all_at(&mark.encode(), offset)
            .map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }
}

impl Mark {
    fn encode(&self) -> Vec<u8> {
        let mut slot = Vec::with_capacity(SLOT);
        slot.extend_from_slice(&self.commit.to_le_bytes());
        slot.extend_from_slice(&self.archive.to_le_bytes());
        slot.extend_from_slice(&self.db_len.to_le_bytes());
        slot.extend_from_slice(&self.chain);
        let check = blake3::hash(&slot);
        slot.extend_from_slice(&check.as_bytes()[..16]);
        slot.resize(SLOT, 0);
        slot
    }

    fn decode(slot: &[u8]) -> Option<Self> {
        let used = slot.get(..SLOT_USED)?;
        let (body, check) = used.split_at(SLOT_USED - 16);
        if blake3::hash(body).as_bytes()[..16] != *check {
            return None;
        }
        let mut reader = Reader::new(body);
        let commit = reader.u64().ok()?;
        let archive = reader.u64().ok()?;
        let db_len = reader.u64().ok()?;
        let chain = reader.array().ok()?;
        Some(Self {
            commit,
            chain,
            archive,
            db_len,
        })
    }
}

/// Says whether the last owner closed the store.
pub(super) fn is_clean(directory: &Path) -> bool {
    directory.join(CLEAN_FILE).exists()
}

/// Marks the store as closed.
pub(super) fn mark_clean(directory: &Path) -> StoreResult<()> {
    let path = directory.join(CLEAN_FILE);
    let failed = |error: io::Error| io_error("writing", &path, &error);
    let file = private(&path).open(&path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    sync_directory(directory)
}

/// Takes the mark of a clean stop away, durably: it speaks for one stop only.
pub(super) fn unmark_clean(directory: &Path) -> StoreResult<()> {
    let path = directory.join(CLEAN_FILE);
    match fs::remove_file(&path) {
        Ok(()) => sync_directory(directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("removing", &path, &error)),
    }
}
