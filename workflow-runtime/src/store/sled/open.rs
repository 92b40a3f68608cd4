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

use super::again;
use super::block::{Draft, Facts, GENESIS};
use super::committer::{Beginning, Committer};
use super::database::{Database, Settings, corrupt, io_error};
use super::files::{self, Lock, Mark, MarkFile, Place};
use super::keepsake::{self, Keepsake};
use super::keys::Key;
use super::ledger::Ledger;
use super::log::{self, Log};
use super::plan::put;
use super::recover::{LogEnd, Recovered, recover};
use super::segment::Archive;
use super::shared::Shared;
use super::table::Table;
use crate::id_map::IdMap;
use crate::store::{StoreError, StoreResult};

/// How long sled's threads may take to let go of the file after this process closed it.
pub(super) const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait between looks at whether they did.
pub(super) const RELEASE_STEP: Duration = Duration::from_millis(1);

/// Opens or makes the store at `path` and starts its threads.
pub(super) fn open(path: &Path, settings: &Settings) -> StoreResult<(Arc<Shared>, JoinHandle<()>)> {
    if files::look(path)? == Place::Empty {
        files::make_directory(path)?;
    }
    let lock = Lock::take(path)?;
    // Under the lock: another process may have been faster.
    let fresh = files::look(path)? != Place::Store;
    let clean = fresh || files::is_clean(path);
    if settings.write_again && !fresh {
        again::write_again(path)?;
    }
    let (database, recovered, log) = if fresh {
        make(path, settings)?
    } else {
        resume(path, settings)?
    };
    files::sync_file(&path.join("conf"))?;
    files::sync_directory(path)?;
    let mut mark_file = MarkFile::open(path)?;
    mark_file.write(&Mark {
        commit: recovered.commit,
        chain: recovered.chain,
        archive: recovered.archive.number,
        db_len: database.file_len()?,
    })?;
    if fresh {
        files::sync_directory(path)?;
        files::write_format(path)?;
    }
    files::end_making(path)?;
    files::unmark_clean(path)?;
    let log = log.in_files_of(settings.log_file_bytes);
    start(path, clean, database, recovered, log, (mark_file, lock))
}

fn start(
    path: &Path,
    clean: bool,
    database: Database,
    mut recovered: Recovered,
    log: Log,
    (mark_file, lock): (MarkFile, Lock),
) -> StoreResult<(Arc<Shared>, JoinHandle<()>)> {
    let archive = recovered.archive;
    recovered.ledger.limit_log(4 * log.file_size());
    let shared = Arc::new(Shared::new(
        path.to_path_buf(),
        clean,
        (recovered.table, recovered.ledger),
        log.file().clone(),
        database,
        archive.number,
    ));
    let beginning = Beginning {
        log,
        commit: recovered.commit,
        chain: recovered.chain,
        archive,
        deleted: recovered.deleted,
        mark_file,
        lock,
    };
    let committer = Committer::new(Arc::clone(&shared), beginning)?;
    let started = std::thread::Builder::new()
        .name("workflow-committer".to_owned())
        .spawn(move || committer.run());
    match started {
        Ok(thread) => Ok((shared, thread)),
        Err(error) => {
            shared.stop_archiver();
            Err(io_error("starting the committer of", path, &error))
        }
    }
}

/// Makes a store: an empty database, and a log with an empty block 0, so that there always
/// is a newest block.
fn make(path: &Path, settings: &Settings) -> StoreResult<(Database, Recovered, Log)> {
    files::begin_making(path)?;
    make_files(path, settings)
}

/// Makes the files of an empty store, but for those that say that it is one.
pub(super) fn make_files(
    path: &Path,
    settings: &Settings,
) -> StoreResult<(Database, Recovered, Log)> {
    log::make_directory(path)?;
    let database = open_released(path, settings)?;
    let archive = Archive::default();
    let mut writes = Vec::new();
    put(&mut writes, &Key::archive(), &archive.encode());
    database.commit(writes)?;
    let directory = log::directory(path);
    let mut log = Log::begin(&directory, settings.skip_fdatasync)?;
    let mut draft = Draft::default();
    let (block, chain) = draft.seal(&GENESIS, 0, Facts::default());
    log.append(block)?;
    log.sync()?;
    files::sync_directory(&directory)?;
    let mut ledger = Ledger::new(0);
    ledger.enter_block(0, 0, block.len());
    let end = LogEnd {
        file: 0,
        position: block.len() as u64,
        torn: false,
        stale: Vec::new(),
    };
    let recovered = Recovered {
        table: Table::default(),
        ledger,
        archive,
        deleted: IdMap::default(),
        commit: 0,
        chain,
        end,
    };
    Ok((database, recovered, log))
}

/// Opens a store that is there. Nothing is changed before everything is checked.
fn resume(path: &Path, settings: &Settings) -> StoreResult<(Database, Recovered, Log)> {
    let mark = MarkFile::read(path)?.ok_or_else(|| {
        let place = path.join("mark").display().to_string();
        corrupt(place, "the file is missing")
    })?;
    if !settings.skip_fdatasync {
        sync_before_opening(path)?;
    }
    let (database, recovered) = open_checked(path, settings, &mark)?;
    database.put_down()?;
    let directory = log::directory(path);
    let end = &recovered.end;
    log::remove(&directory, &end.stale)?;
    log::remove_spare(&directory)?;
    let skip = settings.skip_fdatasync;
    let mut log = Log::resume(&directory, end.file, end.position, skip)?;
    if end.torn {
        log.cut()?;
    }
    log.sync()?;
    files::sync_directory(&directory)?;
    Ok((database, recovered, log))
}

/// Puts on the disk what a process left to the system that was killed: sled takes all that it reads for stable, and
/// wipes what it does not need any more by that.
fn sync_before_opening(path: &Path) -> StoreResult<()> {
    match path.join("db") {
        db if db.exists() => files::sync_file(&db),
        _ => Ok(()),
    }
}

/// Opens sled and checks what it gives back. If it is not sound, sled gets a second chance
/// without its snapshot; if that does not help, everything is put back as it was.
fn open_checked(
    path: &Path,
    settings: &Settings,
    mark: &Mark,
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

fn attempt(path: &Path, settings: &Settings, mark: &Mark) -> StoreResult<(Database, Recovered)> {
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
pub(super) fn wait_for_release(path: &Path) {
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
