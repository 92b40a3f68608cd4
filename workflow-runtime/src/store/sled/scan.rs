//! Reading the log back: which files count, where it ends, and whether it is whole.
//!
//! Owns the judgement of what a damaged end is: a block that was being written when the
//! power went, or one that somebody was told of. Never writes, never looks into items.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::block::{Block, Chain, Facts, GENESIS};
use super::database::{corrupt, io_error};
use super::files::Mark;
use super::log;
use super::segment::Archive;
use crate::store::{StoreError, StoreResult};

/// How many commits a stray block may be ahead of a damaged one to be taken into account:
/// far more than one file holds.
const MAX_AHEAD: u64 = 1 << 20;

/// One file of the log, checked.
#[derive(Debug)]
pub(super) struct Scanned {
    /// The commit it begins with.
    pub(super) first: u64,
    /// Bytes that are blocks.
    pub(super) end: usize,
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The whole log, checked.
#[derive(Debug)]
pub(super) struct Scan {
    /// The files that count, oldest first; there is at least one.
    pub(super) files: Vec<Scanned>,
    /// Files that are older than what counts.
    pub(super) stale: Vec<u64>,
    /// The newest commit.
    pub(super) commit: u64,
    pub(super) chain: Chain,
    pub(super) facts: Facts,
    /// Whether something follows the last block that is to be cut off.
    pub(super) torn: bool,
}

impl Scanned {
    /// Walks over the blocks, which were all checked before.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        let mut rest = &self.bytes[..self.end];
        std::iter::from_fn(move || {
            let block = Block::parse(rest).ok().flatten()?;
            rest = &rest[block.len..];
            Some(block)
        })
    }

    /// Names a block in this file.
    pub(super) fn place(&self, commit: u64) -> String {
        format!("block {commit} in {}", self.path.display())
    }
}

/// Where the walk over the files is.
struct Walk<'a> {
    store: &'a Path,
    mark: &'a Mark,
    /// A commit that was synced.
    expected: u64,
    /// The last block that was read: number, chain value, facts.
    last: Option<(u64, Chain, Facts)>,
    next: u64,
    torn: bool,
}

/// Reads and checks the log from the file on that the newest archive names.
pub(super) fn scan(store: &Path, archive: &Archive, mark: &Mark) -> StoreResult<Scan> {
    let log_from = archive.log_from;
    let directory = log::directory(store);
    let mut firsts = list(&directory)?;
    firsts.sort_unstable();
    let counting = firsts.split_off(firsts.partition_point(|first| *first < log_from));
    let mut walk = Walk {
        store,
        mark,
        expected: mark.commit.max(archive.as_of),
        last: None,
        next: log_from,
        torn: false,
    };
    let mut files = Vec::with_capacity(counting.len());
    for (index, first) in counting.iter().enumerate() {
        let is_last = index + 1 == counting.len();
        files.push(walk.file(&directory, *first, is_last)?);
    }
    let (commit, chain, facts) = match walk.last {
        Some(last) if last.0 >= walk.expected => last,
        _ => return Err(walk.lost()),
    };
    Ok(Scan {
        files,
        stale: firsts,
        commit,
        chain,
        facts,
        torn: walk.torn,
    })
}

/// Lists with which commits the files of the log begin.
fn list(directory: &Path) -> StoreResult<Vec<u64>> {
    let failed = |error: std::io::Error| io_error("reading", directory, &error);
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let place = directory.display().to_string();
            return Err(corrupt(place, "the directory is missing"));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut firsts = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        firsts.extend(log::first_commit(&name.to_string_lossy()));
    }
    Ok(firsts)
}

impl Walk<'_> {
    /// Reads one file and checks its blocks.
    fn file(&mut self, directory: &Path, first: u64, is_last: bool) -> StoreResult<Scanned> {
        let path = log::file_path(directory, first);
        let bytes = fs::read(&path).map_err(|error| io_error("reading", &path, &error))?;
        let mut file = Scanned {
            first,
            end: 0,
            path,
            bytes,
        };
        if first != self.next {
            let place = log::file_path(directory, self.next).display().to_string();
            return Err(corrupt(place, "it is missing, but a later one is there"));
        }
        let wrong = loop {
            match Block::read(&file.bytes[file.end..]) {
                Ok(Some(block)) => match self.follow(&block) {
                    Ok(()) => file.end += block.len,
                    Err(wrong) => break wrong,
                },
                Ok(None) if file.bytes[file.end..].iter().all(|byte| *byte == 0) => {
                    return Ok(file);
                }
                Ok(None) => break "its beginning is missing",
                Err(wrong) => break wrong,
            }
        };
        let rest = &file.bytes[file.end..];
        if !is_last || self.was_acknowledged(rest) {
            return Err(corrupt(file.place(self.next), wrong));
        }
        self.torn = true;
        Ok(file)
    }

    /// Takes the next block, if it is the next one.
    fn follow(&mut self, block: &Block<'_>) -> Result<(), &'static str> {
        if block.commit != self.next {
            return Err("it has another number");
        }
        let follows = match self.last {
            Some((_, chain, _)) => block.previous == chain,
            // What came before the oldest file is gone, unless it is the first of all.
            None => block.commit > 0 || block.previous == GENESIS,
        };
        if !follows {
            return Err("it does not follow the block before it");
        }
        if block.commit == self.mark.commit && block.chain != self.mark.chain {
            return Err("its chain value is not the one in the high-water mark");
        }
        self.last = Some((block.commit, block.chain, block.facts));
        self.next += 1;
        Ok(())
    }

    /// Says whether the damaged block that should be the next one was synced: the mark or
    /// any later block that is still readable knows that.
    fn was_acknowledged(&self, rest: &[u8]) -> bool {
        if self.next <= self.expected {
            return true;
        }
        let later = self.next + 1..self.next + MAX_AHEAD;
        (1..rest.len()).any(|at| {
            let rest = &rest[at..];
            Block::claimed_commit(rest).is_some_and(|commit| later.contains(&commit))
                && matches!(Block::read(rest), Ok(Some(block)) if block.facts.synced >= self.next)
        })
    }

    fn lost(&self) -> StoreError {
        StoreError::LostCommits {
            path: self.store.to_path_buf(),
            found: self.next.saturating_sub(1),
            expected: self.expected,
        }
    }
}
