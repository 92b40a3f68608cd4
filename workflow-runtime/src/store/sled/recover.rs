//! Rebuilding memory from the database: blocks, `l` entries, and what they must add up to.
//!
//! Owns every check that opening makes of what sled gives back: the chain, the census, the
//! high-water mark. Never reads `h`, `s` or `r` as a whole, so that a million finished runs
//! cost nothing. Never writes.

use std::collections::HashSet;
use std::path::Path;

use super::block::{Block, GENESIS, Item, Totals};
use super::bytes::Census;
use super::database::{Database, Scanned, Write, corrupt, describe};
use super::files::Mark;
use super::keys::{self, Key};
use super::ledger::{BlockInfo, Ledger};
use super::reads::is_ended;
use super::segment::{LiveRun, live_member};
use super::table::{Live, LiveEntry, Table};
use crate::ids::RunId;
use crate::store::{RunState, StoreError, StoreResult};

/// What opening found.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) table: Table,
    pub(super) ledger: Ledger,
    /// The removal of a commit that was torn, if there is one.
    pub(super) torn: Vec<Write>,
}

struct Found {
    commit: u64,
    block: Block,
    pieces: u16,
    bytes: usize,
}

/// Reads the whole log and checks it.
pub(super) fn recover(
    database: &Database,
    directory: &Path,
    mark: Option<&Mark>,
) -> StoreResult<Recovered> {
    let (blocks, torn) = read_blocks(database, mark)?;
    check_chain(&blocks)?;
    check_mark(&blocks, directory, mark)?;
    let mut recovery = Recovery {
        database,
        table: Table::default(),
        ledger: Ledger::default(),
        gone: HashSet::new(),
        live: Census::default(),
        totals: blocks.last().map(|last| last.block.totals),
    };
    recovery.read_live()?;
    for found in blocks {
        recovery.replay(found)?;
    }
    recovery.check_totals()?;
    let (mut table, mut ledger) = (recovery.table, recovery.ledger);
    for live in table.runs.values_mut() {
        live.next_seq = live.archived + live.tail.len() as u64;
        live.ending = live.ended();
        if live.wants_archiving() {
            ledger.enqueue(live);
        }
    }
    Ok(Recovered {
        table,
        ledger,
        torn,
    })
}

/// Reads all blocks. The last one may be torn if nobody was ever told of it.
fn read_blocks(database: &Database, mark: Option<&Mark>) -> StoreResult<(Vec<Found>, Vec<Write>)> {
    let mut blocks: Vec<Found> = Vec::new();
    let mut torn: Option<(u64, Vec<u16>, String)> = None;
    for scanned in database.scan(&[keys::BLOCK], &[keys::BLOCK]) {
        if let Some((commit, _, wrong)) = torn {
            // It was not the last one after all.
            return Err(corrupt(format!("block {commit}"), &wrong));
        }
        let (name, whole, numbers) = match scanned? {
            Scanned::Whole {
                name,
                record,
                pieces,
            } => (name, Some((record, pieces)), (0..pieces).collect()),
            Scanned::Broken { name, pieces } => (name, None, pieces),
        };
        let commit = keys::block_commit(&name)
            .ok_or_else(|| corrupt(describe(&name), "its key has the wrong length"))?;
        let Some((record, pieces)) = whole else {
            torn = Some((commit, numbers, "pieces of it are missing".to_owned()));
            continue;
        };
        let bytes = record.len();
        match Block::open(commit, record) {
            Ok(block) => blocks.push(Found {
                commit,
                block,
                pieces,
                bytes,
            }),
            Err(wrong) => torn = Some((commit, numbers, wrong.to_owned())),
        }
    }
    let Some((commit, numbers, wrong)) = torn else {
        return Ok((blocks, Vec::new()));
    };
    let acknowledged = mark.is_some_and(|mark| commit <= mark.commit);
    let next = blocks.last().map_or(0, |last| last.commit + 1);
    if acknowledged || commit != next {
        return Err(corrupt(format!("block {commit}"), &wrong));
    }
    let key = Key::block(commit);
    let removals = numbers.into_iter().map(|number| (key.piece(number), None));
    Ok((blocks, removals.collect()))
}

/// Checks that neighbours in the log are neighbours in the chain.
fn check_chain(blocks: &[Found]) -> StoreResult<()> {
    for pair in blocks.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        if before.commit + 1 == after.commit && before.block.chain != after.block.previous {
            return Err(corrupt(
                format!("block {}", after.commit),
                "it does not follow the block before it",
            ));
        }
    }
    match blocks.first() {
        Some(first) if first.commit == 0 && first.block.previous != GENESIS => {
            Err(corrupt("block 0".to_owned(), "it does not begin the chain"))
        }
        _ => Ok(()),
    }
}

/// Checks that the log reaches at least as far as was known to be synced.
fn check_mark(blocks: &[Found], directory: &Path, mark: Option<&Mark>) -> StoreResult<()> {
    let newest = blocks.last();
    // Only a store that is just being made has none.
    let Some(mark) = mark else {
        return Ok(());
    };
    let found = newest.map_or(0, |newest| newest.commit);
    if newest.is_none() || found < mark.commit {
        return Err(StoreError::LostCommits {
            path: directory.to_path_buf(),
            found,
            expected: mark.commit,
        });
    }
    let marked = blocks.iter().find(|found| found.commit == mark.commit);
    match marked {
        Some(marked) if marked.block.chain != mark.chain => Err(corrupt(
            format!("block {}", mark.commit),
            "its chain value is not the one in the high-water mark",
        )),
        _ => Ok(()),
    }
}

struct Recovery<'a> {
    database: &'a Database,
    table: Table,
    ledger: Ledger,
    /// Runs that have ended and left memory, though blocks still tell of them.
    gone: HashSet<RunId>,
    live: Census,
    totals: Option<Totals>,
}

impl Recovery<'_> {
    /// Reads the unfinished runs that have segments.
    fn read_live(&mut self) -> StoreResult<()> {
        for scanned in self.database.scan(&[keys::LIVE], &[keys::LIVE]) {
            let (name, record, pieces) = match scanned? {
                Scanned::Whole {
                    name,
                    record,
                    pieces,
                } => (name, record, pieces),
                Scanned::Broken { name, .. } => {
                    return Err(corrupt(describe(&name), "pieces of it are missing"));
                }
            };
            let entry =
                LiveRun::decode(&record).map_err(|wrong| corrupt(describe(&name), wrong))?;
            let run = entry.header.run;
            if keys::run_of(&name) != Some(run) {
                return Err(corrupt(describe(&name), "it is the header of another run"));
            }
            self.live.add(live_member(run, entry.as_of, entry.archived));
            let mut live = Live::new(entry.header);
            live.archived = entry.archived;
            live.entry = Some(LiveEntry {
                as_of: entry.as_of,
                archived: entry.archived,
                pieces,
            });
            self.table.insert(live);
        }
        Ok(())
    }

    /// Applies one block to the table.
    fn replay(&mut self, found: Found) -> StoreResult<()> {
        let Found {
            commit,
            block,
            pieces,
            bytes,
        } = found;
        let place = || format!("block {commit}");
        let items = block.items().map_err(|wrong| corrupt(place(), wrong))?;
        let mut info = BlockInfo {
            pieces,
            bytes,
            ..BlockInfo::default()
        };
        for item in items {
            self.replay_item(commit, item, &mut info)?;
        }
        self.ledger.enter(commit, info);
        self.ledger.totals.blocks.add(commit);
        self.ledger.next_commit = commit + 1;
        self.ledger.chain = block.chain;
        Ok(())
    }

    fn replay_item(&mut self, commit: u64, item: Item, info: &mut BlockInfo) -> StoreResult<()> {
        let place = || format!("block {commit}");
        match item {
            Item::Created(header, first) => {
                info.total += 1;
                let run = header.run;
                if !self.table.runs.contains_key(&run) {
                    if is_ended(self.database, run)? {
                        self.gone.insert(run);
                        return Ok(());
                    }
                    self.table.insert(Live::new(*header));
                }
                self.push_frame(run, 0, first, commit, info)
            }
            Item::Appended {
                run,
                first_seq,
                frames,
                end,
            } => {
                info.total += u32::try_from(frames.len()).expect("fits: it was counted in u32");
                if !self.known(run, commit)? {
                    return Ok(());
                }
                for (seq, frame) in (first_seq..).zip(frames) {
                    self.push_frame(run, seq, frame, commit, info)?;
                }
                if let Some(end) = end {
                    let live = self.table.runs.get_mut(&run).expect("known");
                    live.header.state = RunState::Ended(end);
                }
                Ok(())
            }
            Item::Parked(run, parking) => {
                info.total += 1;
                if !self.known(run, commit)? {
                    return Ok(());
                }
                let live = self.table.runs.get_mut(&run).expect("known");
                if live.entry.is_none_or(|entry| commit > entry.as_of) {
                    if live.ended() {
                        return Err(corrupt(place(), "it parks a run that has ended"));
                    }
                    live.header.state = parking.map_or(RunState::Active, RunState::Parked);
                    live.parked_in.push(commit);
                    info.live += 1;
                    info.runs.push(run);
                }
                Ok(())
            }
        }
    }

    /// Says whether a run is in memory; if not, it must have ended and left it.
    fn known(&mut self, run: RunId, commit: u64) -> StoreResult<bool> {
        if self.table.runs.contains_key(&run) {
            return Ok(true);
        }
        if self.gone.contains(&run) {
            return Ok(false);
        }
        if is_ended(self.database, run)? {
            self.gone.insert(run);
            return Ok(false);
        }
        Err(corrupt(
            format!("block {commit}"),
            &format!("it tells of {run}, whose beginning is missing"),
        ))
    }

    fn push_frame(
        &mut self,
        run: RunId,
        seq: u64,
        frame: bytes::Bytes,
        commit: u64,
        info: &mut BlockInfo,
    ) -> StoreResult<()> {
        let live = self.table.runs.get_mut(&run).expect("known");
        if seq < live.archived {
            return Ok(());
        }
        let expected = live.archived + live.tail.len() as u64;
        if seq != expected || live.ended() {
            return Err(corrupt(
                format!("block {commit}"),
                &format!("it holds record {seq} of {run}, but record {expected} is next"),
            ));
        }
        live.push(frame, commit);
        info.live += 1;
        if info.runs.last() != Some(&run) {
            info.runs.push(run);
        }
        Ok(())
    }

    /// Checks that what was found is what the newest block says there is.
    fn check_totals(&mut self) -> StoreResult<()> {
        let Some(totals) = self.totals else {
            return Ok(());
        };
        let newest = self.ledger.next_commit - 1;
        if totals.blocks != self.ledger.totals.blocks {
            return Err(corrupt(
                "the blocks".to_owned(),
                &format!(
                    "{} are there, but block {newest} counts {} others",
                    self.ledger.totals.blocks.count(),
                    totals.blocks.count()
                ),
            ));
        }
        if totals.live != self.live {
            return Err(corrupt(
                "the live entries".to_owned(),
                &format!(
                    "{} are there, but block {newest} counts {} others",
                    self.live.count(),
                    totals.live.count()
                ),
            ));
        }
        self.ledger.totals = totals;
        Ok(())
    }
}
