//! Opening a directory: every decision about what is there, before anything is changed.
//!
//! Owns the order of things: look, lock, read the mark, let sled open, check what it gave,
//! and only then change something. Never repairs: a store that is not sound is refused with
//! what is wrong.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::block::Items;
use super::committer::Committer;
use super::database::{Database, Settings, corrupt, io_error};
use super::files::{self, Lock, Mark, MarkFile, Place};
use super::keepsake::{self, Keepsake};
use super::keys::Key;
use super::ledger::{BlockInfo, Ledger, put};
use super::recover::{Recovered, recover};
use super::shared::Shared;
use crate::store::{StoreError, StoreResult};

/// How long sled's threads may take to let go of the file after this process closed it.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait between looks at whether they did.
const RELEASE_STEP: Duration = Duration::from_millis(1);

/// Opens or makes the store at `path` and starts its committer.
pub(super) fn open(path: &Path, settings: &Settings) -> StoreResult<(Arc<Shared>, JoinHandle<()>)> {
    if files::look(path)? == Place::Empty {
        files::make_directory(path)?;
    }
    let lock = Lock::take(path)?;
    // Under the lock: another process may have been faster.
    let fresh = files::look(path)? != Place::Store;
    if fresh {
        files::begin_making(path)?;
    }
    let mark = MarkFile::read(path)?;
    if mark.is_none() && !fresh {
        let place = path.join("mark").display().to_string();
        return Err(corrupt(place, "the file is missing"));
    }
    let (database, recovered) = open_checked(path, settings, mark.as_ref())?;
    let clean = fresh || files::is_clean(path);
    let Recovered {
        table,
        mut ledger,
        torn,
    } = recovered;
    if !torn.is_empty() {
        database.apply(torn)?;
    }
    if ledger.next_commit == 0 {
        begin_log(&database, &mut ledger)?;
    }
    database.flush()?;
    database.sync()?;
    files::sync_file(&path.join("conf"))?;
    files::sync_directory(path)?;
    let mut mark_file = MarkFile::open(path)?;
    mark_file.write(&Mark {
        commit: ledger.next_commit - 1,
        chain: ledger.chain,
        db_len: database.file_len()?,
    })?;
    if fresh {
        files::sync_directory(path)?;
        files::write_format(path)?;
    }
    files::end_making(path)?;
    files::unmark_clean(path)?;
    let shared = Arc::new(Shared::new(path.to_path_buf(), clean, table, database));
    let committer = Committer::new(Arc::clone(&shared), ledger, mark_file, lock);
    let thread = std::thread::Builder::new()
        .name("workflow-committer".to_owned())
        .spawn(move || committer.run())
        .map_err(|error| io_error("starting the committer of", path, &error))?;
    Ok((shared, thread))
}

/// Opens sled and checks what it gives back. If it is not sound, sled gets a second chance
/// without its snapshot; if that does not help, everything is put back as it was.
fn open_checked(
    path: &Path,
    settings: &Settings,
    mark: Option<&Mark>,
) -> StoreResult<(Database, Recovered)> {
    let keepsake = Keepsake::take(path)?;
    keepsake::remove_unfinished_snapshots(path)?;
    let first = attempt(path, settings, mark);
    let Err(error) = first else {
        return first;
    };
    keepsake.restore()?;
    if !matches!(
        error,
        StoreError::Corrupt { .. } | StoreError::LostCommits { .. }
    ) {
        return Err(error);
    }
    if keepsake.set_snapshots_aside()? {
        let second = attempt(path, settings, mark);
        keepsake.forget_snapshots()?;
        if second.is_ok() {
            return second;
        }
        keepsake.restore()?;
    }
    Err(error)
}

fn attempt(
    path: &Path,
    settings: &Settings,
    mark: Option<&Mark>,
) -> StoreResult<(Database, Recovered)> {
    let database = open_released(path, settings).inspect_err(|_| wait_for_release(path))?;
    match recover(&database, path, mark) {
        Ok(recovered) => Ok((database, recovered)),
        Err(error) => {
            // What is wrong is known; whether closing works too adds nothing.
            let _ = database.close();
            wait_for_release(path);
            Err(error)
        }
    }
}

/// Waits until sled's threads let go of its file, so that nothing changes it any more.
fn wait_for_release(path: &Path) {
    let begun = Instant::now();
    let Ok(file) = File::open(path.join("db")) else {
        return;
    };
    while file.try_lock().is_err() && begun.elapsed() < RELEASE_WITHIN {
        std::thread::sleep(RELEASE_STEP);
    }
}

/// Opens sled, waiting for threads of an earlier handle of this process: our own lock says
/// that nobody else can be in there.
fn open_released(path: &Path, settings: &Settings) -> StoreResult<Database> {
    let begun = Instant::now();
    loop {
        let opened = Database::open(path, settings);
        match opened {
            Err(StoreError::Io { message, .. })
                if message.contains("could not acquire lock")
                    && begun.elapsed() < RELEASE_WITHIN =>
            {
                std::thread::sleep(RELEASE_STEP);
            }
            other => return other,
        }
    }
}

/// Writes block 0, so that there always is a newest block.
fn begin_log(database: &Database, ledger: &mut Ledger) -> StoreResult<()> {
    ledger.totals.blocks.add(0);
    let (block, chain) = Items::default().seal(&ledger.chain, 0, &ledger.totals);
    let mut writes = Vec::new();
    let pieces = put(&mut writes, &Key::block(0), &block);
    database.apply(writes)?;
    let info = BlockInfo {
        pieces,
        bytes: block.len(),
        ..BlockInfo::default()
    };
    ledger.enter(0, info);
    ledger.chain = chain;
    ledger.next_commit = 1;
    Ok(())
}
