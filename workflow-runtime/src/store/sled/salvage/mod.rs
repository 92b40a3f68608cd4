//! Reading a store that may be damaged, and writing what is left of it as a new one.
//!
//! Owns what `docs/repair.md` tells of files: `blocks` reads the log, `carve` and `message` a `db` that sled refuses, `annexes` the annex,
//! `assemble` puts runs and notes together from both, `build` writes a new store. Whether a journal is whole is judged above the
//! store, in `repair`. Nothing here ever writes to the damaged store.

mod annexes;
mod assemble;
mod blocks;
mod build;
mod carve;
#[cfg(test)]
mod certain;
mod message;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use self::annexes::Annexes;
use self::blocks::Blocks;
use self::carve::{Carved, Entry};
use super::SledOptions;
use super::database::{Database, Settings, io_error};
use super::files::{self, Lock, Mark, MarkFile, Place};
use super::open;
use crate::store::{StoreError, StoreResult};

#[cfg(feature = "testing")]
pub(super) use annexes::hostile_annex;
pub(crate) use assemble::{Found, FoundRun};
pub(crate) use build::{Building, Saved};

/// The directory inside the new store in which a copy of `db` is tried.
const COPY: &str = "copy";

/// A damaged store that nobody else has open.
#[derive(Debug)]
pub(crate) struct Salvage {
    _lock: Lock,
    pub(crate) was_clean: bool,
}

impl Salvage {
    /// Takes the lock of a store, sound or not.
    pub(crate) fn begin(from: &Path) -> StoreResult<Self> {
        match files::look(from) {
            Ok(Place::Store) => {}
            // Its marker may be what is damaged.
            Ok(Place::Unfinished | Place::Empty) | Err(StoreError::NotADatabase { .. })
                if from.join("db").is_file() || super::log::directory(from).is_dir() => {}
            Ok(Place::Unfinished | Place::Empty) => {
                return Err(StoreError::NotADatabase {
                    path: from.to_path_buf(),
                    found: "there is neither a database nor a log".to_owned(),
                });
            }
            Err(error) => return Err(error),
        }
        Ok(Self {
            _lock: Lock::take_existing(from)?,
            was_clean: files::is_clean(from),
        })
    }

    /// Reads everything that can be read. `scratch`: an empty directory for a copy.
    pub(crate) fn read(&self, from: &Path, scratch: &Path) -> StoreResult<Found> {
        let mark = MarkFile::read(from).ok().flatten();
        let mut log = Blocks::read(from)?;
        let known = log.found.iter().map(|block| block.archive);
        let known = known.chain(mark.map(|mark| mark.archive)).max();
        let known = known.unwrap_or(0);
        let mut database = read_database(from, scratch, known)?;
        let mut annexes = Annexes::read(from)?;
        annexes.resolve(&mut database.carved, database.is_sound);
        let mut found = assemble::assemble(from, database, &mut log, mark, known);
        found.damage.append(&mut annexes.damage);
        found.mended += annexes.mended;
        Ok(found)
    }
}

/// What `db` says.
struct Contents {
    carved: Carved,
    /// Whether sled itself opened a copy, and everything is there that the newest archive counts.
    is_sound: bool,
}

/// Asks sled first, on a copy. If it refuses or lost something, reads the file without it.
fn read_database(from: &Path, scratch: &Path, known: u64) -> StoreResult<Contents> {
    let path = from.join("db");
    if !path.is_file() {
        return Ok(Contents {
            carved: Carved::default(),
            is_sound: false,
        });
    }
    if let Some(entries) = ask_sled(&path, &scratch.join(COPY))? {
        let carved = Carved {
            entries,
            ..Carved::default()
        };
        if assemble::is_complete(&carved, known) {
            return Ok(Contents {
                carved,
                is_sound: true,
            });
        }
    }
    let carved = carve::carve(&path)?;
    let is_sound = carved.holes.is_empty() && assemble::is_complete(&carved, known);
    Ok(Contents { carved, is_sound })
}

/// Lets sled read a copy of its file. `None`: it does not.
fn ask_sled(path: &Path, copy: &Path) -> StoreResult<Option<BTreeMap<Vec<u8>, Entry>>> {
    files::make_directory(copy)?;
    let target = copy.join("db");
    fs::copy(path, &target).map_err(|error| io_error("copying", path, &error))?;
    let settings = SledOptions::default().settings();
    let read = read_all(copy, &settings);
    open::wait_for_release(copy);
    fs::remove_dir_all(copy).map_err(|error| io_error("removing", copy, &error))?;
    Ok(read.ok())
}

fn read_all(copy: &Path, settings: &Settings) -> StoreResult<BTreeMap<Vec<u8>, Entry>> {
    let database = Database::open(copy, settings)?;
    let entries = database.entries().map(|entries| {
        let entries = entries.into_iter();
        entries
            .map(|(key, value)| (key, Entry { value, at: 0 }))
            .collect()
    });
    let _ = database.close();
    entries
}

/// The newest commit that is known to have been synced.
fn synced(mark: Option<Mark>) -> u64 {
    mark.map_or(0, |mark| mark.commit)
}
