//! Reading a log that is damaged: every block that is still readable, and which commits are missing.
//!
//! Owns the search for the next readable block behind a damaged one, and the mending of a single flipped bit: a block's
//! chain value proves that it is what was written. Never writes, never judges what a missing commit held.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::super::block::{Block, Chain, Item};
use super::super::database::io_error;
use super::super::log;
use super::carve::read_file;
use crate::store::StoreResult;

/// How many commits a block may be ahead of a damaged one: far more than the log ever holds.
const MAX_AHEAD: u64 = 1 << 20;

/// Blocks up to this many bytes are searched for a single flipped bit. It takes one hash of all of it for each of its bits:
/// nine gigabytes, a few seconds, for the longest.
const MAX_MENDED: usize = 32 * 1024;

/// A block that is what was written.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) commit: u64,
    pub(super) items: Vec<Item>,
    /// The newest archive that it knew to be on the disk.
    pub(super) archive: u64,
    synced: u64,
}

/// Commits that are missing, from the first one on and before the second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) from: u64,
    pub(super) until: u64,
    /// The file in which they should be.
    pub(super) file: PathBuf,
}

/// What can be read of a log.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) found: Vec<Found>,
    pub(super) missing: Vec<Missing>,
    /// How many flipped bits were put right.
    pub(super) mended: u64,
    /// Damage in the newest file that may be a write which was torn, and where its later blocks begin.
    torn: Option<(u64, usize, usize)>,
    last: Option<(u64, Chain)>,
}

impl Blocks {
    /// Reads the log of a store. Nothing is an error but an operating system that does not read.
    pub(super) fn read(store: &Path) -> StoreResult<Self> {
        let directory = log::directory(store);
        let mut firsts = match fs::read_dir(&directory) {
            Ok(entries) => entries
                .filter_map(|entry| log::first_commit(&entry.ok()?.file_name().to_string_lossy()))
                .collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_error("reading", &directory, &error)),
        };
        firsts.sort_unstable();
        let mut blocks = Self::default();
        for (index, first) in firsts.iter().enumerate() {
            let path = log::file_path(&directory, *first);
            let bytes = read_file(&path)?;
            blocks.file(*first, &path, bytes, index + 1 == firsts.len());
        }
        Ok(blocks)
    }

    /// Reads one file.
    fn file(&mut self, first: u64, path: &Path, mut bytes: Vec<u8>, is_newest: bool) {
        let mut at = 0;
        // Files follow each other without a gap; what an earlier one should have held is missing there.
        let mut next = self.last.map_or(first, |(commit, _)| commit + 1);
        while at < bytes.len() {
            let block = match Block::read(&bytes[at..]) {
                Ok(None) if bytes[at..].iter().all(|byte| *byte == 0) => return,
                Ok(Some(block)) if self.follows(&block) => Some(block.len),
                _ => self.mend(&mut bytes[at..], next),
            };
            let len = match block {
                Some(len) => len,
                None => {
                    let Some(later) = self.search(&bytes[at + 1..], next) else {
                        return;
                    };
                    if is_newest && self.torn.is_none() {
                        self.torn = Some((next, self.found.len(), self.missing.len()));
                    }
                    at += 1 + later;
                    continue;
                }
            };
            let block = Block::parse(&bytes[at..at + len]).ok().flatten();
            next = self.take(&block.expect("it was just read"), path);
            at += len;
        }
    }

    /// Says whether a block can be the next one, or a later one.
    fn follows(&self, block: &Block<'_>) -> bool {
        match self.last {
            None => true,
            Some((commit, chain)) if block.commit == commit + 1 => block.previous == chain,
            Some((commit, _)) => block.commit > commit && block.commit - commit < MAX_AHEAD,
        }
    }

    /// Takes a block, and returns the number of the next one.
    fn take(&mut self, block: &Block<'_>, path: &Path) -> u64 {
        let next = block.commit + 1;
        if let Some((last, _)) = self.last
            && last + 1 < block.commit
        {
            self.missing.push(Missing {
                from: last + 1,
                until: block.commit,
                file: path.to_path_buf(),
            });
        }
        self.last = Some((block.commit, block.chain));
        match block.items() {
            Ok(items) => self.found.push(Found {
                commit: block.commit,
                items,
                archive: block.facts.archive,
                synced: block.facts.synced,
            }),
            // What was written is what is there, and yet nobody understands it.
            Err(_) => self.missing.push(Missing {
                from: block.commit,
                until: next,
                file: path.to_path_buf(),
            }),
        }
        next
    }

    /// Finds where the next readable block begins.
    fn search(&self, bytes: &[u8], next: u64) -> Option<usize> {
        let later = next..next + MAX_AHEAD;
        (0..bytes.len()).find(|at| {
            let rest = &bytes[*at..];
            Block::claimed_commit(rest).is_some_and(|commit| later.contains(&commit))
                && matches!(Block::read(rest), Ok(Some(block)) if self.follows(&block))
        })
    }

    /// Puts the block right that `bytes` should begin with, if a single flipped bit is what is wrong. Returns its length.
    fn mend(&mut self, bytes: &mut [u8], next: u64) -> Option<usize> {
        /// Length, number, two chain values.
        const HEADER: usize = 4 + 8 + 32 + 32;
        let len = match Block::parse(bytes) {
            Ok(Some(block)) if block.len <= MAX_MENDED => block.len,
            // Its length may be what is wrong.
            _ => HEADER.min(bytes.len()),
        };
        for bit in 0..8 * len {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mended = match Block::read(bytes) {
                Ok(Some(block)) if block.commit == next && self.follows(&block) => Some(block.len),
                _ => None,
            };
            if mended.is_some() {
                self.mended += 1;
                return mended;
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// Decides about damage at the end: a write that was torn is no loss, one that was synced is. `expected`: a commit that is
    /// known to have been synced.
    pub(super) fn settle(&mut self, expected: u64, store: &Path) {
        if let Some((next, found, missing)) = self.torn.take() {
            let later = &self.found[found..];
            if next > expected && later.iter().all(|block| block.synced < next) {
                self.found.truncate(found);
                self.missing.truncate(missing);
            }
        }
        let last = self.found.last().map(|block| block.commit);
        let next = last.map_or(0, |last| last + 1);
        let synced = self.found.iter().map(|block| block.synced).max();
        let expected = expected.max(synced.unwrap_or(0));
        if next <= expected && !self.missing.iter().any(|missing| missing.until > expected) {
            self.missing.push(Missing {
                from: next,
                until: expected + 1,
                file: log::directory(store),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::block::{Draft, Facts, GENESIS};
    use super::*;
    use crate::ids::RunId;

    /// Blocks 0 to 4 of a log, one after the other, and where each ends.
    fn log() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let mut previous = GENESIS;
        for commit in 0..5 {
            let mut draft = Draft::default();
            draft.woken(RunId::from_bytes([7; 16]));
            let facts = Facts {
                archive: 0,
                synced: commit.max(1) - 1,
            };
            let (block, chain) = draft.seal(&previous, commit, facts);
            bytes.extend_from_slice(block);
            ends.push(bytes.len());
            previous = chain;
        }
        (bytes, ends)
    }

    fn read(bytes: &[u8], expected: u64) -> Blocks {
        let mut blocks = Blocks::default();
        blocks.file(0, Path::new("x"), bytes.to_vec(), true);
        blocks.settle(expected, Path::new("x"));
        blocks
    }

    fn commits(blocks: &Blocks) -> Vec<u64> {
        blocks.found.iter().map(|block| block.commit).collect()
    }

    #[test]
    fn any_single_flipped_bit_is_put_right() {
        let (sound, _) = log();
        for bit in 0..8 * sound.len() {
            let mut bytes = sound.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let blocks = read(&bytes, 4);
            assert_eq!(commits(&blocks), [0, 1, 2, 3, 4], "bit {bit}");
            assert_eq!((blocks.mended, blocks.missing.len()), (1, 0), "bit {bit}");
        }
    }

    #[test]
    fn a_block_in_the_middle_that_is_lost_is_named_and_the_later_ones_are_read() {
        let (mut bytes, ends) = log();
        bytes[ends[1] + 6..ends[2] - 3].fill(0);
        let blocks = read(&bytes, 0);
        assert_eq!(commits(&blocks), [0, 1, 3, 4]);
        let missing: Vec<_> = blocks.missing.iter().map(|m| (m.from, m.until)).collect();
        assert_eq!(missing, [(2, 3)]);
    }

    #[test]
    fn a_torn_end_is_no_loss_unless_it_was_synced() {
        let (mut bytes, ends) = log();
        bytes.truncate(ends[3] + 9);
        assert_eq!(commits(&read(&bytes, 3)), [0, 1, 2, 3]);
        assert!(read(&bytes, 3).missing.is_empty());
        let missing = read(&bytes, 4).missing;
        assert_eq!((missing[0].from, missing[0].until), (4, 5));
        // Block 4 says that block 3 was synced; nobody says that of the last one.
        let (mut bytes, ends) = log();
        bytes[ends[2] + 6..ends[3]].fill(0);
        assert_eq!(commits(&read(&bytes, 0)), [0, 1, 2, 4]);
    }
}
