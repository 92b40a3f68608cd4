//! Writing what was salvaged as a new store.
//!
//! Owns the order: all of it is on the disk before the directory says that it is a store. If that is cut short, what is there
//! is refused as none. It is written as an archive is, by the same code. Never reads the damaged store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::super::SledOptions;
use super::super::annex::Keeper;
use super::super::archiver::{ANNEX_TO_LOG, hand_over};
use super::super::database::Database;
use super::super::files::{self, Lock, Mark, MarkFile, Place};
use super::super::layout::Layout;
use super::super::ledger::{Batch, Moving};
use super::super::log;
use super::super::open;
use super::super::overlay::MovingNote;
use super::super::plan::Plan;
use super::super::segment::Archive;
use super::super::table::TailFrame;
use crate::store::{Mail, NoteKey, RunHeader, RunState, StoreError, StoreResult};

/// How many runs or notes are written at once: all of their headers change in one batch.
const AT_ONCE: usize = 64;

/// A run to be written.
#[derive(Debug, Clone)]
pub(crate) struct Saved {
    pub(crate) header: RunHeader,
    pub(crate) frames: Vec<Bytes>,
    /// Records from 2 up to this number are not among them.
    pub(crate) kept_from: u64,
    /// How many letters were taken, and those that wait.
    pub(crate) taken: u64,
    pub(crate) letters: Vec<Bytes>,
}

/// A store in the making.
#[derive(Debug)]
pub(crate) struct Building {
    path: PathBuf,
    lock: Lock,
}

impl Building {
    /// Begins a store in a directory that is empty or not there.
    pub(crate) fn begin(path: &Path) -> StoreResult<Self> {
        let refused = |found: &str| {
            Err(StoreError::NotADatabase {
                path: path.to_path_buf(),
                found: found.to_owned(),
            })
        };
        match files::look(path) {
            Ok(Place::Empty) => {}
            Ok(Place::Store) => {
                return refused("it holds a store already, and nothing is overwritten");
            }
            _ => return refused("it is not empty, and nothing is overwritten"),
        }
        files::make_directory(path)?;
        let lock = Lock::take(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            lock,
        })
    }

    /// Writes everything, durably. `clean`: whether the store is one that was closed.
    pub(crate) fn write(
        self,
        runs: Vec<Saved>,
        notes: Vec<(NoteKey, Bytes)>,
        clean: bool,
    ) -> StoreResult<()> {
        let path = &self.path;
        let settings = SledOptions::default().settings();
        let (database, made, log) = open::make_files(path, &settings)?;
        let mut archive = made.archive;
        let mut keeper = Keeper::open(&database, ANNEX_TO_LOG * settings.log_file_bytes)?;
        let mut runs = runs.into_iter().map(moving).peekable();
        while runs.peek().is_some() {
            let moving = runs.by_ref().take(AT_ONCE).collect();
            write(&database, &mut keeper, &mut archive, moving, Vec::new())?;
        }
        let mut notes = notes.into_iter().map(moving_note).peekable();
        while notes.peek().is_some() {
            let notes = notes.by_ref().take(AT_ONCE).collect();
            write(&database, &mut keeper, &mut archive, Vec::new(), notes)?;
        }
        let db_len = database.file_len()?;
        database.close()?;
        open::wait_for_release(path);
        drop(log);
        files::sync_file(&path.join("db"))?;
        files::sync_file(&path.join("conf"))?;
        files::sync_directory(&log::directory(path))?;
        MarkFile::open(path)?.write(&Mark {
            commit: made.commit,
            chain: made.chain,
            archive: archive.number,
            db_len,
        })?;
        if clean {
            files::mark_clean(path)?;
        }
        files::sync_directory(path)?;
        files::write_format(path)?;
        drop(self.lock);
        Ok(())
    }
}

/// Makes one archive of it.
fn write(
    database: &Database,
    keeper: &mut Keeper,
    archive: &mut Archive,
    moving: Vec<Moving>,
    notes: Vec<MovingNote>,
) -> StoreResult<()> {
    let olds = vec![None; notes.len()];
    let mut batch = Batch {
        moving,
        notes,
        as_of: 0,
        log_from: 0,
    };
    let plan = Plan::new(&mut batch, &olds, archive);
    hand_over(database, keeper, archive, plan)
}

fn moving(saved: Saved) -> Moving {
    let frames = saved.frames.into_iter();
    let frames = frames.map(|bytes| TailFrame { bytes, commit: 0 });
    let letters: Vec<Mail> = (saved.taken..)
        .zip(saved.letters)
        .map(|(number, body)| Mail { number, body })
        .collect();
    let next = saved.taken + letters.len() as u64;
    let leaves = match saved.header.state {
        RunState::Ended(_) => true,
        RunState::Asleep { .. } => letters.is_empty(),
        RunState::Active | RunState::Parked(_) => false,
    };
    Moving {
        header: saved.header,
        leaves,
        frames: Arc::new(frames.collect()),
        layout: Layout {
            start: 0,
            kept_from: saved.kept_from,
        },
        letters,
        mailbox: (saved.taken, next),
        changes: 0,
        entry: None,
    }
}

fn moving_note((key, value): (NoteKey, Bytes)) -> MovingNote {
    MovingNote {
        key,
        value: Some(value),
        commit: 0,
    }
}
