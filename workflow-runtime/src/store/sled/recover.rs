//! Rebuilding memory from the log and the database, and what they must add up to.
//!
//! Owns every check that opening makes across the two: that the database is not older than
//! the log says, that the log is not older than the database says, and that what it holds
//! goes on where segments end. What a block tells of a run may be in both: it is skipped if the
//! database has the run as of that commit or a later one. Never reads `h`, `s`, `r`, `w` or `n`
//! as a whole, so that a million finished or sleeping runs cost nothing. Never writes.

use std::path::Path;

use super::annex;
use super::block::{Block, Chain, Item};
use super::bytes::Census;
use super::change::{Dozed, Written, doze, rouse};
use super::database::{Database, corrupt, describe};
use super::doze::{self, Slumber};
use super::files::Mark;
use super::judge::take_back;
use super::keys::{self, Key};
use super::layout::ALWAYS_KEPT;
use super::ledger::Ledger;
use super::reads;
use super::scan::{self, Scan};
use super::segment::{Archive, Stored, Tombstone, deleted_member, live_member};
use super::table::{Live, Place, Table};
use super::walk::Scanned;
use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{RunState, StoreError, StoreResult};

/// What opening found.
#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) table: Table,
    pub(super) ledger: Ledger,
    pub(super) archive: Archive,
    /// Deleted runs of which the log may still tell.
    pub(super) deleted: IdMap<RunId, Tombstone>,
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
        store,
        table: Table::default(),
        ledger: Ledger::new(log.commit),
        shelved: IdMap::default(),
        deleted: IdMap::default(),
        supposed: IdMap::default(),
        orphans: IdMap::default(),
    };
    recovery.read_deleted(&archive)?;
    count_annex(database, &archive)?;
    recovery.read_live(&archive)?;
    recovery.replay(&log)?;
    let supposed = recovery.supposed.into_values().map(|(_, wrong)| wrong);
    if let Some(wrong) = supposed.chain(recovery.orphans.into_values()).next() {
        return Err(wrong);
    }
    let Recovery {
        mut table,
        mut ledger,
        deleted,
        ..
    } = recovery;
    for live in table.runs.values_mut() {
        live.next_seq = live.committed();
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
        deleted,
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

/// Compares what was found with what the archive counts.
fn counted(what: &str, found: &Census, counted: &Census, archive: &Archive) -> StoreResult<()> {
    if found == counted {
        return Ok(());
    }
    let detail = format!(
        "{} are there, but archive {} counts {} others",
        found.count(),
        archive.number,
        counted.count()
    );
    Err(corrupt(what.to_owned(), &detail))
}

/// Checks that all files of the annex are counted that should be: one that is not would be removed.
fn count_annex(database: &Database, archive: &Archive) -> StoreResult<()> {
    let mut census = Census::default();
    for (number, tally) in &annex::tallies(database)? {
        census.add(annex::tally_member(*number, tally));
    }
    counted("the counts of the annex", &census, &archive.annex, archive)
}

struct Recovery<'a> {
    database: &'a Database,
    store: &'a Path,
    table: Table,
    ledger: Ledger,
    /// Runs that left memory, and as of which commit the database has them.
    shelved: IdMap<RunId, u64>,
    deleted: IdMap<RunId, Tombstone>,
    /// Runs of which the log begins too late, unless it says that they forgot what came before: from which record on.
    supposed: IdMap<RunId, (u64, StoreError)>,
    /// Runs of which nobody knows the beginning, unless they fall asleep later in the log.
    orphans: IdMap<RunId, StoreError>,
}

/// What a block tells of a run.
enum Told {
    /// Something that the database does not know: the run is in memory.
    News,
    /// What the database knows, or what was deleted.
    Old,
    /// Of a run that nobody knows.
    Unknown,
}

impl Recovery<'_> {
    /// Reads what is left of deleted runs.
    fn read_deleted(&mut self, archive: &Archive) -> StoreResult<()> {
        let mut census = Census::default();
        for scanned in self.database.scan(&[keys::DELETED], &[keys::DELETED]) {
            let (name, record) = reads::whole(scanned?)?;
            let wrong = |wrong| corrupt(describe(&name), wrong);
            let tombstone = Tombstone::decode(&record).map_err(wrong)?;
            let run = keys::run_of(&name);
            let run = run.ok_or_else(|| wrong("its key has the wrong length"))?;
            census.add(deleted_member(run, tombstone.as_of));
            self.deleted.insert(run, tombstone);
        }
        counted("the tombstones", &census, &archive.deleted, archive)
    }

    /// Reads the runs in memory that have something in the database: those that the archive
    /// counts.
    fn read_live(&mut self, archive: &Archive) -> StoreResult<()> {
        let mut census = Census::default();
        for scanned in self.database.scan(&[keys::LIVE], &[keys::LIVE]) {
            let (name, record, pieces) = match scanned? {
                Scanned::Whole {
                    name,
                    record,
                    pieces,
                } => (name, record, pieces),
                Scanned::Broken { name, wrong } => {
                    return Err(corrupt(describe(&name), &wrong));
                }
            };
            let stored =
                Stored::decode(&record).map_err(|wrong| corrupt(describe(&name), wrong))?;
            let run = stored.header.run;
            if keys::run_of(&name) != Some(run) {
                return Err(corrupt(describe(&name), "it is the header of another run"));
            }
            let (taken, next) = (stored.taken, stored.next_letter);
            let mut live = Live::from_stored(stored, Place::Live, pieces);
            let entry = live.entry.as_ref().expect("it was just made");
            census.add(live_member(run, entry));
            for number in taken..next {
                let body = self.database.get(&Key::letter(run, number))?;
                let body = body.ok_or_else(|| {
                    let place = format!("letter {number} to {run}");
                    corrupt(place, "it is missing")
                })?;
                live.mailbox.get_or_insert_default().restore(number, body);
            }
            self.table.insert(live);
        }
        counted("the live entries", &census, &archive.live, archive)
    }

    /// Applies all blocks to the table.
    fn replay(&mut self, log: &Scan) -> StoreResult<()> {
        // A file without a block is not entered: a process died when it had begun it. If the log were needed from there on
        // only, the next open would find no block at all, and take that for a loss.
        for file in &log.files {
            let mut at = 0;
            for block in file.blocks() {
                let place = file.place(block.commit);
                self.ledger.enter_block(block.commit, file.first, block.len);
                self.replay_block(&block, at, &place)?;
                at += block.len as u64;
            }
        }
        Ok(())
    }

    fn replay_block(&mut self, block: &Block<'_>, at: u64, place: &str) -> StoreResult<()> {
        let items = block
            .items()
            .map_err(|wrong| corrupt(place.to_owned(), wrong))?;
        let commit = block.commit;
        for item in items {
            match item {
                Item::Slept(begins, record) => {
                    let slumber = Slumber::decode(&record);
                    let slumber = slumber.map_err(|wrong| corrupt(place.to_owned(), wrong))?;
                    let dozed = Dozed {
                        at: begins,
                        len: record.len(),
                        frames: slumber.stored.frames,
                    };
                    self.replay_sleep(Written { commit, at }, dozed, slumber)?;
                }
                item => self.replay_item(commit, place, item)?,
            }
        }
        Ok(())
    }

    /// Has a run sleep in the log again.
    fn replay_sleep(&mut self, block: Written, dozed: Dozed, slumber: Slumber) -> StoreResult<()> {
        let (run, wake_at) = (slumber.run(), slumber.wake_at());
        match self.told(run, block.commit)? {
            Told::Old => return Ok(()),
            Told::News => {
                let state = RunState::Asleep { wake_at };
                self.table.set_state(run, state).expect("in memory");
            }
            // What was before it in the log was not needed any more, and is gone, or the beginning of it.
            Told::Unknown => {
                self.orphans.remove(&run);
                let live = slumber.into_live(block.commit);
                self.ledger.count(run, live.tail.len());
                self.table.insert(live);
            }
        }
        if let Some(place) = dozed.place(block) {
            let (table, ledger) = (&mut self.table, &mut self.ledger);
            doze(table, ledger, run, wake_at, (place, dozed));
        }
        Ok(())
    }

    /// Takes a run back into memory that slept in the log up to here.
    fn rouse(&mut self, run: RunId) -> StoreResult<()> {
        let Some(place) = self.table.dozing.place(run) else {
            return Ok(());
        };
        let first = self.ledger.file_of(place.commit);
        let slumber = doze::read(self.store, first, place, run)?;
        let missing = || corrupt(format!("the record of {run}"), "its file is missing");
        let slumber = slumber.ok_or_else(missing)?;
        rouse(&mut self.table, &mut self.ledger, place, slumber);
        Ok(())
    }

    fn replay_item(&mut self, commit: u64, place: &str, item: Item) -> StoreResult<()> {
        match item {
            Item::Created(header, first) => match self.told(header.run, commit)? {
                Told::Old => Ok(()),
                Told::News => {
                    let what = format!("it creates {} again", header.run);
                    Err(corrupt(place.to_owned(), &what))
                }
                Told::Unknown => {
                    let run = header.run;
                    self.table.insert(Live::new(*header));
                    self.push_frame(run, 0, first, commit, place)
                }
            },
            Item::Slept(..) => unreachable!("it needs to know where it lies"),
            Item::Noted(key, value) => {
                let deleted = key.run().and_then(|run| self.deleted.get(&run));
                if deleted.is_none_or(|tombstone| commit > tombstone.as_of) {
                    self.ledger.note(key, value, commit);
                }
                Ok(())
            }
            Item::Appended { run, .. }
            | Item::Parked(run, _)
            | Item::Taken(run, _)
            | Item::Posted(run, ..)
            | Item::Woken(run)
            | Item::Forgotten(run, _)
            | Item::Revived(run, ..) => match self.told(run, commit)? {
                Told::Old => Ok(()),
                Told::News => self.replay_news(run, commit, place, item),
                Told::Unknown => {
                    let what = format!("it tells of {run}, whose beginning is missing");
                    let orphan = || corrupt(place.to_owned(), &what);
                    self.orphans.entry(run).or_insert_with(orphan);
                    Ok(())
                }
            },
        }
    }

    /// Applies an item that the database does not know to a run in memory.
    fn replay_news(&mut self, run: RunId, commit: u64, place: &str, item: Item) -> StoreResult<()> {
        match item {
            Item::Appended {
                first_seq,
                frames,
                end,
                ..
            } => {
                for (seq, frame) in (first_seq..).zip(frames) {
                    self.push_frame(run, seq, frame, commit, place)?;
                }
                if let Some(end) = end {
                    let state = RunState::Ended(end);
                    let live = self.table.set_state(run, state).expect("in memory");
                    live.drop_letters();
                }
            }
            Item::Parked(_, parking) => {
                let state = parking.map_or(RunState::Active, RunState::Parked);
                self.change_state(run, state, commit, place)?;
            }
            Item::Woken(_) => self.change_state(run, RunState::Active, commit, place)?,
            Item::Taken(_, below) => {
                let live = self.table.runs.get_mut(&run).expect("in memory");
                for unneeded in live.take_letters(below) {
                    self.ledger.release(unneeded);
                }
                // The frames of the same append keep the block, if there are any.
                live.changed_in.push(commit);
                self.ledger.count(run, 1);
            }
            Item::Posted(_, number, body) => {
                let live = self.table.runs.get_mut(&run).expect("in memory");
                let mailbox = live.mailbox.get_or_insert_default();
                if number < mailbox.next {
                    let what = format!("it holds letter {number} to {run} again");
                    return Err(corrupt(place.to_owned(), &what));
                }
                mailbox.push(number, body, commit);
                self.ledger.count(run, 1);
            }
            Item::Forgotten(_, below) => {
                let live = self.table.runs.get_mut(&run).expect("in memory");
                let forgot = self.ledger.forget(live, below, commit);
                if forgot && self.supposed.get(&run).is_some_and(|(at, _)| *at <= below) {
                    self.supposed.remove(&run);
                }
            }
            Item::Revived(_, seq, frame) => {
                self.table.set_state(run, RunState::Active);
                self.push_frame(run, seq, frame, commit, place)?;
            }
            Item::Created(..) | Item::Noted(..) | Item::Slept(..) => {
                unreachable!("they are no run's news")
            }
        }
        Ok(())
    }

    fn change_state(
        &mut self,
        run: RunId,
        state: RunState,
        commit: u64,
        place: &str,
    ) -> StoreResult<()> {
        if self.table.runs[&run].ended() {
            return Err(corrupt(place.to_owned(), "it changes a run that has ended"));
        }
        let live = self.table.set_state(run, state).expect("in memory");
        live.changed_in.push(commit);
        self.ledger.count(run, 1);
        Ok(())
    }

    /// Says whether what a block tells of a run is news. If so, and the run had left memory, it
    /// is taken back.
    fn told(&mut self, run: RunId, commit: u64) -> StoreResult<Told> {
        if self
            .deleted
            .get(&run)
            .is_some_and(|tombstone| commit <= tombstone.as_of)
        {
            return Ok(Told::Old);
        }
        // Whatever is told of it comes after it fell asleep.
        self.rouse(run)?;
        if let Some(live) = self.table.runs.get(&run) {
            let known = live
                .entry
                .as_ref()
                .is_some_and(|entry| commit <= entry.as_of);
            return Ok(if known { Told::Old } else { Told::News });
        }
        let as_of = match self.shelved.get(&run) {
            Some(as_of) => *as_of,
            None => {
                let Some(pointer) = reads::pointer(self.database, run)? else {
                    return Ok(Told::Unknown);
                };
                self.shelved.insert(run, pointer.as_of);
                pointer.as_of
            }
        };
        if commit <= as_of {
            return Ok(Told::Old);
        }
        let stored = reads::shelved(self.database, run)?;
        let stored =
            stored.ok_or_else(|| corrupt(format!("the header of {run}"), "it is missing"))?;
        take_back(&mut self.table, stored);
        Ok(Told::News)
    }

    fn push_frame(
        &mut self,
        run: RunId,
        seq: u64,
        frame: bytes::Bytes,
        commit: u64,
        place: &str,
    ) -> StoreResult<()> {
        let live = self.table.runs.get_mut(&run).expect("in memory");
        let expected = live.committed();
        if seq != expected || live.ended() {
            let wrong = corrupt(
                place.to_owned(),
                &format!("it holds record {seq} of {run}, but record {expected} is next"),
            );
            let is_next_in_log = live.tail.is_empty() && live.archived >= ALWAYS_KEPT;
            if seq < expected || live.ended() || !is_next_in_log {
                return Err(wrong);
            }
            // The files before may be gone because all that they held of it was forgotten.
            live.suppose_forgotten(seq);
            self.supposed.insert(run, (seq, wrong));
        }
        live.push(frame, commit);
        self.ledger.count(run, 1);
        Ok(())
    }
}
