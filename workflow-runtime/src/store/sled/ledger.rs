//! The ledger of blocks: which are on the disk, what of them is still needed, and what is
//! to be moved into segments so that they can go.
//!
//! Owns the committer's bookkeeping and the plan of what to archive with the next commit.
//! Never touches the database: it says what to write, the committer writes it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::block::{Chain, Totals};
use super::database::{Write, cost};
use super::keys::{Key, cut};
use super::segment::{EndedRun, LiveRun, live_member, pack};
use super::table::{Live, LiveEntry, Table};
use crate::ids::RunId;

/// Blocks beyond this number have what is live in them moved to segments, oldest first:
/// opening reads all blocks, and one long run must not pin them.
const MAX_BLOCKS: usize = 4_096;

/// The same for the bytes of all blocks together.
const MAX_LOG_BYTES: usize = 16 * 1024 * 1024;

/// A block is emptied once less than one part in this many of it is live.
const LIVE_PART: u32 = 4;

/// How many bytes one commit archives and drops beside its own block: what must change in
/// one batch has to stay below what may be unsynced.
const ARCHIVE_BUDGET: usize = 384 * 1024;

/// With more runs than this in line to be archived, new commits wait: what is in line is
/// memory, and work for the next open.
const MAX_DUE: usize = 4_096;

/// How many old blocks one commit sweeps: more than it adds.
const SWEPT_PER_COMMIT: usize = 8;

/// How many dead blocks are left alone while nothing else happens.
const IDLE_DEAD_BLOCKS: usize = 16;

/// What the ledger knows of a block.
#[derive(Debug, Default)]
pub(super) struct BlockInfo {
    /// How many pieces it has in the database.
    pub(super) pieces: u16,
    pub(super) bytes: usize,
    /// How many of its frames and parkings are in no segment or `l` entry yet.
    pub(super) live: u32,
    /// How many it had.
    pub(super) total: u32,
    /// The runs it tells of.
    pub(super) runs: Vec<RunId>,
    /// Whether its runs are in line to be archived.
    pub(super) swept: bool,
}

/// What the committer knows of the log.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) next_commit: u64,
    pub(super) chain: Chain,
    pub(super) totals: Totals,
    blocks: BTreeMap<u64, BlockInfo>,
    log_bytes: usize,
    due: VecDeque<RunId>,
    /// Blocks with nothing live in them.
    dead: Vec<u64>,
    /// Runs in blocks that should be emptied, with the block.
    to_empty: Vec<(u64, Vec<RunId>)>,
    /// Blocks before this one were emptied because of their age.
    swept_to: u64,
}

/// What the next commit archives.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Segments: they may be written before the rest, and twice.
    pub(super) segments: Vec<Write>,
    /// All that must change in one batch with the block.
    pub(super) atomic: Vec<Write>,
    moved: Vec<Moved>,
}

/// One run whose frames move to segments.
#[derive(Debug)]
struct Moved {
    run: RunId,
    frames: usize,
    parkings: usize,
    /// Its new `l` entry; `None` if it has ended.
    entry: Option<LiveEntry>,
}

impl Ledger {
    /// Enters a block that is on the disk.
    pub(super) fn enter(&mut self, commit: u64, info: BlockInfo) {
        self.log_bytes += info.bytes;
        if info.live == 0 {
            self.dead.push(commit);
        }
        self.blocks.insert(commit, info);
    }

    /// Puts a run in line to be archived.
    pub(super) fn enqueue(&mut self, live: &mut Live) {
        if !live.due {
            live.due = true;
            self.due.push_back(live.header.run);
        }
    }

    /// Says whether there is something to do when nobody asks for anything.
    pub(super) fn has_idle_work(&self) -> bool {
        !self.due.is_empty() || self.dead.len() > IDLE_DEAD_BLOCKS
    }

    /// Says whether so much waits to be archived that commits must wait for it.
    pub(super) fn is_behind(&self) -> bool {
        self.due.len() > MAX_DUE || (self.log_bytes > 2 * MAX_LOG_BYTES && self.has_idle_work())
    }

    /// Plans what the next commit archives and drops. The totals are those after it.
    pub(super) fn plan(&mut self, table: &Table) -> Plan {
        let mut plan = Plan::default();
        let as_of = self.next_commit.saturating_sub(1);
        let mut spent = 0;
        // What is dead goes first: archiving makes more of it.
        while spent < ARCHIVE_BUDGET {
            let Some(commit) = self.dead.pop() else {
                break;
            };
            let info = self
                .blocks
                .remove(&commit)
                .expect("a dead block is entered");
            self.log_bytes -= info.bytes;
            self.totals.blocks.remove(commit);
            let key = Key::block(commit);
            for number in 0..info.pieces {
                let removal = (key.piece(number), None);
                spent += cost(&removal);
                plan.atomic.push(removal);
            }
        }
        while spent < ARCHIVE_BUDGET {
            let Some(run) = self.due.pop_front() else {
                break;
            };
            // A run that ended and was archived meanwhile is in nobody's way.
            if let Some(live) = table.runs.get(&run) {
                spent += self.archive(live, as_of, &mut plan);
            }
        }
        self.totals.blocks.add(self.next_commit);
        plan
    }

    /// Moves all committed frames of one run to segments.
    fn archive(&mut self, live: &Live, as_of: u64, plan: &mut Plan) -> usize {
        let run = live.header.run;
        let before = (plan.segments.len(), plan.atomic.len());
        let frames: Vec<Bytes> = live.tail.iter().map(|frame| frame.bytes.clone()).collect();
        let archived = live.archived + frames.len() as u64;
        for (key, record) in pack(live.header.position(), live.archived, &frames) {
            put(&mut plan.segments, &key, &record);
        }
        if let Some(old) = live.entry {
            self.totals
                .live
                .remove(live_member(run, old.as_of, old.archived));
        }
        let mut entry = None;
        let mut pieces = 0;
        if live.ended() {
            self.totals.ended += 1;
            let ended = EndedRun::encode(&live.header, archived);
            put(
                &mut plan.atomic,
                &Key::header(live.header.position()),
                &ended,
            );
            let created = live.header.created_at.as_micros().to_le_bytes();
            put(&mut plan.atomic, &Key::run(run), &created);
        } else {
            self.totals.live.add(live_member(run, as_of, archived));
            let record = LiveRun::encode(&live.header, as_of, archived);
            pieces = put(&mut plan.atomic, &Key::live(run), &record);
            entry = Some(LiveEntry {
                as_of,
                archived,
                pieces,
            });
        }
        for number in pieces..live.entry.map_or(0, |old| old.pieces) {
            plan.atomic.push((Key::live(run).piece(number), None));
        }
        for frame in &live.tail {
            self.release(frame.commit);
        }
        for commit in &live.parked_in {
            self.release(*commit);
        }
        plan.moved.push(Moved {
            run,
            frames: live.tail.len(),
            parkings: live.parked_in.len(),
            entry,
        });
        let segments = plan.segments[before.0..].iter();
        segments.chain(&plan.atomic[before.1..]).map(cost).sum()
    }

    fn release(&mut self, commit: u64) {
        let info = self
            .blocks
            .get_mut(&commit)
            .expect("a block with something live in it is never dropped");
        info.live -= 1;
        if info.live == 0 {
            self.dead.push(commit);
        } else if info.live < info.total / LIVE_PART && !info.swept {
            info.swept = true;
            let runs = std::mem::take(&mut info.runs);
            self.to_empty.push((commit, runs));
        }
    }

    /// Makes the plan's outcome visible in the table, after it was written.
    pub(super) fn archived(plan: Plan, table: &mut Table) {
        for moved in plan.moved {
            if moved.entry.is_none() {
                table.remove(moved.run);
                continue;
            }
            let live = table
                .runs
                .get_mut(&moved.run)
                .expect("a run leaves the table only here");
            live.due = false;
            live.entry = moved.entry;
            live.archived += moved.frames as u64;
            live.tail.drain(..moved.frames);
            live.tail_bytes = live.tail.iter().map(|frame| frame.bytes.len()).sum();
            live.parked_in.drain(..moved.parkings);
        }
    }

    /// Puts the runs of blocks that are old or hardly live in line to be archived.
    pub(super) fn sweep(&mut self, table: &mut Table) {
        let too_many = self.blocks.len() > MAX_BLOCKS || self.log_bytes > MAX_LOG_BYTES;
        if too_many {
            let newest = self.next_commit.saturating_sub(1);
            let oldest = self.blocks.range_mut(self.swept_to..newest);
            for (commit, info) in oldest.take(SWEPT_PER_COMMIT) {
                self.swept_to = commit + 1;
                info.swept = true;
                let runs = std::mem::take(&mut info.runs);
                self.to_empty.push((*commit, runs));
            }
        }
        for (commit, runs) in std::mem::take(&mut self.to_empty) {
            for run in runs {
                match table.runs.get_mut(&run) {
                    Some(live) if live.needs(commit) => self.enqueue(live),
                    _ => {}
                }
            }
        }
    }
}

/// Adds the pieces of a record to some writes, and returns how many there are.
pub(super) fn put(writes: &mut Vec<Write>, key: &Key, record: &[u8]) -> u16 {
    let mut count = 0;
    for piece in cut(record) {
        writes.push((key.piece(count), Some(piece)));
        count += 1;
    }
    count
}
