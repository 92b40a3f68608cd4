//! Rebuilding memory from the log and the database, and what they must add up to.
//!
//! Owns every check that opening makes across the two: that the database is not older than
//! the log says, that the log is not older than the database says, and that what it holds
//! goes on where segments end. A record may be in both: it is skipped in the log. Never
//! reads `h`, `s` or `r` as a whole, so that a million finished runs cost nothing. Never
//! writes.

use std::path::Path;

use super::block::{Block, Chain, Item};
use super::bytes::Census;
use super::database::{Database, Scanned, corrupt, describe};
use super::files::Mark;
use super::keys;
use super::ledger::Ledger;
use super::reads::{self, is_ended};
use super::scan::{self, Scan};
use super::segment::{Archive, LiveRun, live_member};
use super::table::{Live, LiveEntry, Table};
use crate::id_map::IdSet;
use crate::ids::RunId;
use crate::store::{RunState, StoreResult};

/// What opening found.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) table: Table,
    pub(super) ledger: Ledger,
    pub(super) archive: Archive,
    /// The newest commit and its chain value.
    pub(super) commit: u64,
    pub(super) chain: Chain,
    pub(super) end: LogEnd,
}

/// Where the log ends, and what is to be tidied up there.
#[derive(Debug)]
pub(super) struct LogEnd {
    /// The file to go on with, by its first commit.
    pub(super) file: u64,
    /// Where its last block ends.
    pub(super) position: u64,
    /// Whether something follows it that is to be cut off.
    pub(super) torn: bool,
    /// Files that are older than what counts.
    pub(super) stale: Vec<u64>,
}

/// Reads the whole log and checks it.
pub(super) fn recover(database: &Database, store: &Path, mark: &Mark) -> StoreResult<Recovered> {
    let archive = reads::archive(database)?;
    let log = scan::scan(store, &archive, mark)?;
    let known = log.facts.archive.max(mark.archive);
    if archive.number < known {
        return Err(corrupt(
            store.join("db").display().to_string(),
            &format!(
                "it ends at archive {}, but archive {known} was synced: it lost finished runs; \
                 restore the directory from a backup",
                archive.number
            ),
        ));
    }
    let mut recovery = Recovery {
        database,
        table: Table::default(),
        ledger: Ledger::new(log.commit),
        gone: IdSet::default(),
        live: Census::default(),
    };
    recovery.read_live(&archive)?;
    recovery.replay(&log)?;
    let (mut table, mut ledger) = (recovery.table, recovery.ledger);
    for live in table.runs.values_mut() {
        live.next_seq = live.archived + live.tail.len() as u64;
        live.ending = live.ended();
        if live.wants_archiving() {
            ledger.enqueue(live);
        }
    }
    let last = log.files.last().expect("there is at least one");
    Ok(Recovered {
        table,
        ledger,
        archive,
        commit: log.commit,
        chain: log.chain,
        end: LogEnd {
            file: last.first,
            position: last.end as u64,
            torn: log.torn,
            stale: log.stale,
        },
    })
}

struct Recovery<'a> {
    database: &'a Database,
    table: Table,
    ledger: Ledger,
    /// Runs that have ended and left memory, though blocks still tell of them.
    gone: IdSet<RunId>,
    live: Census,
}

impl Recovery<'_> {
    /// Reads the unfinished runs that have segments: those that the archive counts.
    fn read_live(&mut self, archive: &Archive) -> StoreResult<()> {
        for scanned in self.database.scan(&[keys::LIVE], &[keys::LIVE]) {
            let (name, record, pieces) = match scanned? {
                Scanned::Whole {
                    name,
                    record,
                    pieces,
                } => (name, record, pieces),
                Scanned::Broken { name } => {
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
        if archive.live == self.live {
            return Ok(());
        }
        Err(corrupt(
            "the live entries".to_owned(),
            &format!(
                "{} are there, but archive {} counts {} others",
                self.live.count(),
                archive.number,
                archive.live.count()
            ),
        ))
    }

    /// Applies all blocks to the table.
    fn replay(&mut self, log: &Scan) -> StoreResult<()> {
        for file in &log.files {
            self.ledger.enter_file(file.first);
            for block in file.blocks() {
                let place = file.place(block.commit);
                self.ledger.enter_block(block.commit, file.first, block.len);
                self.replay_block(&block, &place)?;
            }
        }
        Ok(())
    }

    fn replay_block(&mut self, block: &Block<'_>, place: &str) -> StoreResult<()> {
        let items = block
            .items()
            .map_err(|wrong| corrupt(place.to_owned(), wrong))?;
        for item in items {
            self.replay_item(block.commit, place, item)?;
        }
        Ok(())
    }

    fn replay_item(&mut self, commit: u64, place: &str, item: Item) -> StoreResult<()> {
        match item {
            Item::Created(header, first) => {
                let run = header.run;
                if !self.table.runs.contains_key(&run) {
                    if is_ended(self.database, run)? {
                        self.gone.insert(run);
                        return Ok(());
                    }
                    self.table.insert(Live::new(*header));
                }
                self.push_frame(run, 0, first, commit, place)
            }
            Item::Appended {
                run,
                first_seq,
                frames,
                end,
            } => {
                if !self.known(run, place)? {
                    return Ok(());
                }
                for (seq, frame) in (first_seq..).zip(frames) {
                    self.push_frame(run, seq, frame, commit, place)?;
                }
                if let Some(end) = end {
                    let live = self.table.runs.get_mut(&run).expect("known");
                    live.header.state = RunState::Ended(end);
                }
                Ok(())
            }
            Item::Parked(run, parking) => {
                if !self.known(run, place)? {
                    return Ok(());
                }
                let live = self.table.runs.get_mut(&run).expect("known");
                if live.entry.is_none_or(|entry| commit > entry.as_of) {
                    if live.ended() {
                        return Err(corrupt(place.to_owned(), "it parks a run that has ended"));
                    }
                    live.header.state = parking.map_or(RunState::Active, RunState::Parked);
                    live.parked_in.push(commit);
                    self.ledger.count(run, 1);
                }
                Ok(())
            }
        }
    }

    /// Says whether a run is in memory; if not, it must have ended and left it.
    fn known(&mut self, run: RunId, place: &str) -> StoreResult<bool> {
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
            place.to_owned(),
            &format!("it tells of {run}, whose beginning is missing"),
        ))
    }

    fn push_frame(
        &mut self,
        run: RunId,
        seq: u64,
        frame: bytes::Bytes,
        commit: u64,
        place: &str,
    ) -> StoreResult<()> {
        let live = self.table.runs.get_mut(&run).expect("known");
        if seq < live.archived {
            return Ok(());
        }
        let expected = live.archived + live.tail.len() as u64;
        if seq != expected || live.ended() {
            return Err(corrupt(
                place.to_owned(),
                &format!("it holds record {seq} of {run}, but record {expected} is next"),
            ));
        }
        live.push(frame, commit);
        self.ledger.count(run, 1);
        Ok(())
    }
}
