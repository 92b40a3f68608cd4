//! Writing files again after a sync of theirs failed.
//!
//! Owns one precaution: when a sync fails, the operating system may take the pages that it could not write for
//! written. They can be read, the next sync succeeds, and they are on no disk. Whoever goes on from what was
//! read then has to write it once more. It changes no byte of any file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::annex;
use super::database::io_error;
use super::log;
use super::open::{RELEASE_STEP, RELEASE_WITHIN};
use crate::store::StoreResult;

/// How much is read and written at a time.
const CHUNK: usize = 1024 * 1024;

/// Writes what a store's directory holds of log and database once more, and syncs it. The caller has the lock.
pub(super) fn write_again(store: &Path) -> StoreResult<()> {
    each_file(store, |name| name == "db" || name.starts_with("snap."))?;
    each_file(&log::directory(store), |_| true)?;
    newest_annex(store)
}

/// Of the annex the newest file: every other one was synced before the next one was begun.
fn newest_annex(store: &Path) -> StoreResult<()> {
    let directory = annex::directory(store);
    match annex::list(&directory)?.last() {
        Some(number) => {
            let newest = annex::file_path(&directory, *number);
            each_file(&directory, |name| newest.ends_with(name))
        }
        None => Ok(()),
    }
}

fn each_file(directory: &Path, is_meant: impl Fn(&str) -> bool) -> StoreResult<()> {
    let failed = |error: io::Error| io_error("writing again", directory, &error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_file = entry.file_type().map_err(failed)?.is_file();
        if is_file && is_meant(&name.to_string_lossy()) {
            let path = entry.path();
            let written = OpenOptions::new().read(true).write(true).open(&path);
            written
                .and_then(|file| one_file(&file))
                .map_err(|error| io_error("writing again", &path, &error))?;
        }
    }
    Ok(())
}

fn one_file(file: &File) -> io::Result<()> {
    wait_for(file)?;
    let len = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while at < len {
        let most = usize::try_from(len - at).map_or(CHUNK, |left| left.min(CHUNK));
        file.read_exact_at(&mut chunk[..most], at)?;
        file.write_all_at(&chunk[..most], at)?;
        at += most as u64;
    }
    file.sync_data()
}

/// Locks the file. sled locks its own, and its threads write to it until they have let go.
fn wait_for(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < RELEASE_WITHIN => {
                std::thread::sleep(RELEASE_STEP);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("somebody else has it open"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_written_again_are_what_they_were() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path();
        fs::create_dir(log::directory(store)).expect("made");
        let bytes: Vec<u8> = (0..CHUNK + 12_345).map(|n| (n % 251) as u8).collect();
        let (db, log) = (store.join("db"), log::file_path(&log::directory(store), 7));
        fs::write(&db, &bytes).expect("written");
        fs::write(&log, &bytes[..CHUNK]).expect("written");
        fs::write(log::directory(store).join("next"), b"").expect("written");
        write_again(store).expect("written again");
        assert!(fs::read(&db).expect("read") == bytes);
        assert!(fs::read(&log).expect("read") == bytes[..CHUNK]);
    }
}
