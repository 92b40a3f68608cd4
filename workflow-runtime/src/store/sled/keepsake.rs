//! What sled may change while it opens, kept so that a refused store is left as it was.
//!
//! sled repairs in place, without asking: it zeroes the unused rest of its newest segment,
//! whole segments it cannot read, and free ones; it cuts free segments off the end of the
//! file, replaces its snapshot, and fills in a missing `conf`. If the store then turns out
//! to be damaged, all that is put back. Never decides whether a store is sound.
//!
//! A file of up to [`MAX_KEPT`] bytes is kept whole. Of a longer one only what comes first
//! in sled's way is kept: see `docs/store-format.md`.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::database::{SLED_SEGMENT, io_error};
use crate::store::StoreResult;

/// The most bytes of sled's file that are kept in memory while it opens: a moment's work to
/// read, and far more than most stores have.
const MAX_KEPT: u64 = 64 * 1024 * 1024;

/// Room is made for at least this much where much is kept, although most of it may never be touched. What the usual allocator of
/// Linux gives out above 32 MiB is the system's and goes back to it at once. From anything smaller that is freed it learns to
/// keep twice as much, in the heap of every thread, for as long as the process lives.
const NOT_THE_HEAP: usize = 33 * 1024 * 1024;

/// From how many bytes on that matters.
const MUCH: usize = 64 * 1024;

/// What a snapshot that sled could not use is called until the store is open.
const ASIDE: &str = "aside.";

/// The files of sled as they were.
#[derive(Debug)]
pub(super) struct Keepsake {
    directory: PathBuf,
    small: Vec<(PathBuf, Vec<u8>)>,
    db: Option<KeptFile>,
}

#[derive(Debug)]
struct KeptFile {
    path: PathBuf,
    len: u64,
    /// Where parts of the file begin, and how long they are.
    parts: Vec<(u64, usize)>,
    /// The parts, one after the other.
    bytes: Vec<u8>,
}

impl Keepsake {
    /// Reads what may be changed.
    pub(super) fn take(directory: &Path) -> StoreResult<Self> {
        let mut small = Vec::new();
        for path in snapshots(directory)? {
            let bytes = read(&path).map_err(|error| io_error("reading", &path, &error))?;
            small.push((path, bytes));
        }
        let conf = directory.join("conf");
        match fs::read(&conf) {
            Ok(bytes) => small.push((conf, bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("reading", &conf, &error)),
        }
        let db = KeptFile::read(directory.join("db"))?;
        Ok(Self {
            directory: directory.to_path_buf(),
            small,
            db,
        })
    }

    /// Puts everything back.
    pub(super) fn restore(&self) -> StoreResult<()> {
        let kept = |path: &PathBuf| self.small.iter().any(|(kept, _)| kept == path);
        for path in snapshots(&self.directory)? {
            if !kept(&path) {
                fs::remove_file(&path).map_err(|error| io_error("removing", &path, &error))?;
            }
        }
        for (path, bytes) in &self.small {
            if fs::read(path).ok().as_ref() != Some(bytes) {
                fs::write(path, bytes).map_err(|error| io_error("restoring", path, &error))?;
            }
        }
        match &self.db {
            Some(db) => db.restore(),
            None => remove_if_there(&self.directory.join("db")),
        }
    }

    /// Moves the snapshots out of sled's way: the log alone is enough for it. Says whether
    /// there were any.
    pub(super) fn set_snapshots_aside(&self) -> StoreResult<bool> {
        let mut any = false;
        for path in snapshots(&self.directory)? {
            fs::rename(&path, aside(&path)).map_err(|error| io_error("moving", &path, &error))?;
            any = true;
        }
        Ok(any)
    }

    /// Removes the snapshots that were set aside.
    pub(super) fn forget_snapshots(&self) -> StoreResult<()> {
        for (path, _) in &self.small {
            remove_if_there(&aside(path))?;
        }
        Ok(())
    }
}

/// Removes a snapshot that sled did not finish writing: it would take it for a real one.
pub(super) fn remove_unfinished_snapshots(directory: &Path) -> StoreResult<()> {
    for path in snapshots(directory)? {
        if path.extension().is_some_and(|ext| ext == "generating") {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> StoreResult<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(io_error("removing", path, &error))
        }
        _ => Ok(()),
    }
}

fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{ASIDE}{name}"))
}

fn snapshots(directory: &Path) -> StoreResult<Vec<PathBuf>> {
    let failed = |error: std::io::Error| io_error("reading", directory, &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with("snap.") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Makes room for so many bytes that are kept for a moment.
fn room_for(len: u64) -> Vec<u8> {
    let len = usize::try_from(len).unwrap_or_default();
    Vec::with_capacity(match len < MUCH {
        true => len,
        false => len.max(NOT_THE_HEAP),
    })
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = room_for(file.metadata()?.len());
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl KeptFile {
    fn read(path: PathBuf) -> StoreResult<Option<Self>> {
        let failed = |error: std::io::Error| io_error("reading", &path, &error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let len = file.metadata().map_err(failed)?.len();
        let starts = match len <= MAX_KEPT {
            true => (0..len).step_by(SLED_SEGMENT).collect(),
            false => newest_segments(&file, len).map_err(failed)?,
        };
        let mut parts = Vec::with_capacity(starts.len());
        let mut bytes = room_for(len.min(MAX_KEPT));
        for start in starts {
            let size = (len - start).min(SLED_SEGMENT as u64);
            let size = usize::try_from(size).expect("at most a segment");
            let begin = bytes.len();
            bytes.resize(begin + size, 0);
            file.read_exact_at(&mut bytes[begin..], start)
                .map_err(failed)?;
            parts.push((start, size));
        }
        Ok(Some(Self {
            path,
            len,
            parts,
            bytes,
        }))
    }

    fn restore(&self) -> StoreResult<()> {
        let failed = |error: std::io::Error| io_error("restoring", &self.path, &error);
        let file = File::options()
            .read(true)
            .write(true)
            .open(&self.path)
            .map_err(failed)?;
        let mut rest = self.bytes.as_slice();
        for (start, size) in &self.parts {
            let (bytes, behind) = rest.split_at(*size);
            rest = behind;
            let mut now = vec![0; bytes.len()];
            let same = file.read_exact_at(&mut now, *start).is_ok() && now == *bytes;
            if !same {
                file.write_all_at(bytes, *start).map_err(failed)?;
            }
        }
        if file.metadata().map_err(failed)?.len() != self.len {
            file.set_len(self.len).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }
}

/// Finds the segments with the highest log sequence numbers: those whose rest sled zeroes,
/// or which it zeroes whole if it cannot read up to them.
fn newest_segments(file: &File, len: u64) -> std::io::Result<Vec<u64>> {
    /// Bytes of a segment's header: check, sequence number, stable sequence number.
    const HEADER: usize = 20;
    const KEPT: usize = (MAX_KEPT / SLED_SEGMENT as u64) as usize;
    let mut found = Vec::new();
    let mut start = 0;
    while start + HEADER as u64 <= len {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, start)?;
        let number: [u8; 8] = header[4..12].try_into().expect("eight bytes");
        // sled stores it inverted but for the sign.
        let number = i64::from_le_bytes(number) ^ i64::MAX;
        if header != [0; HEADER] {
            found.push((number, start));
        }
        start += SLED_SEGMENT as u64;
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found
        .into_iter()
        .take(KEPT)
        .map(|(_, start)| start)
        .collect())
}
