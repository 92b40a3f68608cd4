//! Making sled collect what it does not need any more.
//!
//! Owns when that is due and how much of it goes into a batch. sled moves one page out of a segment that is hardly needed
//! for each page that it writes anew, and it writes a page anew with its tenth change. That is not always enough: then
//! segments pile up of which almost nothing is needed. A batch can have changes that mean nothing, *fillers*, whose
//! only effect is that pages are written anew: beside others while the archiver has much to do, alone when it has not.
//! Never touches sled. See `docs/decisions/0055-sled-collects.md`.

use super::database::Write;
use super::keys;

/// How long sled's file may be for each entry in it. Its pages need about 120 bytes for one, and twice that is where sled by
/// itself begins to collect.
const BYTES_AN_ENTRY: u64 = 320;

/// How long it may be besides, in files of the log: 8 MiB. Two segments are being written, and some are free.
const FREE_TO_LOG: u64 = 2;

/// How many fillers go with each change of a batch, so that sled moves more pages than the batch leaves behind. At most one in
/// ten has a page written anew.
const FILLERS_A_CHANGE: usize = 8;

/// The fewest fillers of a batch: so many that rounds come to an end.
const FEWEST: usize = 512;

/// The most fillers of a batch: readers wait some milliseconds for them.
const MOST: usize = 1_536;

/// How many fillers a round has for each mebibyte of the file. A segment speaks of some 700 pages when it is full, of about
/// half of them when sled begins to empty it, and every tenth filler has it look at one.
const FILLERS_A_MEBIBYTE: u64 = 4_000;

/// How much sled writes from one round to the next, in quarters of its file. This bounds what rounds cost, whether they
/// help or not: as many fillers for each mebibyte that is written as a round has for one of the file.
const QUARTERS_APART: u64 = 4;

/// The same for the first round of a process. Processes that do not live long must come to it too.
const QUARTERS_BEFORE: u64 = 1;

const MEBIBYTE: u64 = 1024 * 1024;

/// When sled is to collect, and with how many fillers.
#[derive(Debug)]
pub(super) struct Collector {
    free: u64,
    /// Fillers of this round that are still to be written; 0: none is under way.
    left: u64,
    /// How long the file may be, as of the last batch.
    limit: u64,
    /// What sled wrote since the last round.
    written: u64,
    /// How much it writes before the next one, in quarters of its file.
    quarters: u64,
    turn: u8,
}

impl Collector {
    pub(super) fn new(log_file_bytes: u64) -> Self {
        Self {
            free: FREE_TO_LOG * log_file_bytes,
            left: 0,
            limit: 0,
            written: 0,
            quarters: QUARTERS_BEFORE,
            turn: 0,
        }
    }

    /// Takes note of what sled wrote.
    pub(super) fn wrote(&mut self, bytes: u64) {
        if self.left == 0 {
            self.written += bytes;
        }
    }

    /// Returns the fillers of a batch with so many changes, if the file is this long and has so many entries.
    pub(super) fn fillers(&mut self, len: u64, entries: u64, changes: usize) -> Vec<Write> {
        self.limit = self.free + entries * BYTES_AN_ENTRY;
        // Not by whether the last round made the file shorter: what it freed may lie before what is needed.
        let enough = len / 4 * self.quarters;
        if self.left == 0 && len > self.limit && self.written >= enough {
            self.left = len.div_ceil(MEBIBYTE) * FILLERS_A_MEBIBYTE;
        }
        match self.left {
            0 => Vec::new(),
            _ => self.some(len, (changes * FILLERS_A_CHANGE).clamp(FEWEST, MOST)),
        }
    }

    /// Returns the fillers of a batch that has nothing else; none if no round is under way.
    pub(super) fn fillers_alone(&mut self, len: u64) -> Vec<Write> {
        match self.left {
            0 => Vec::new(),
            _ => self.some(len, MOST),
        }
    }

    fn some(&mut self, len: u64, count: usize) -> Vec<Write> {
        self.left = self.left.saturating_sub(count as u64);
        if len < self.limit / 4 * 3 {
            self.left = 0;
        }
        if self.left == 0 {
            self.written = 0;
            self.quarters = QUARTERS_APART;
        }
        // sled passes over what changes nothing.
        self.turn = self.turn.wrapping_add(1);
        let count = u16::try_from(count).expect("a small number");
        let filler = |number| (keys::filler(number), Some(vec![self.turn]));
        (0..count).map(filler).collect()
    }
}

#[cfg(test)]
mod tests;
