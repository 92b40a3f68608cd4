//! Runs and notes, put together from what is left of the database and of the log.
//!
//! Owns what is certain: what the database says of a run is the newest if nothing that is missing could be newer, and
//! what the log says is complete if no commit behind it is missing. Pure: it reads no file, and decodes no frame.

mod replaying;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;

use super::super::annex::{Tally, tally_member};
use super::super::bytes::Census;
use super::super::database::describe;
use super::super::files::Mark;
use super::super::keys::{self, Key};
use super::super::log;
use super::super::segment::{
    Archive, Stored, Tombstone, deleted_member, live_member, note_member, sleeper_member, unpack,
};
use super::super::table::{Live, Place};
use super::blocks::Blocks;
use super::carve::Carved;
use super::{Contents, synced};
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{NoteKey, RunHeader, RunState};

/// The letters to a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Letters {
    /// Those below this number were taken.
    pub(crate) taken: u64,
    /// The number of the next one.
    pub(crate) next: u64,
    /// Those that wait, as far as they are there.
    pub(crate) waiting: BTreeMap<u64, Bytes>,
}

/// A run, as far as it was found.
#[derive(Debug, Clone, Default)]
pub(crate) struct FoundRun {
    /// `None`: only parts of its journal are there, or only its name.
    pub(crate) header: Option<RunHeader>,
    /// When it was created, from the key of its segments.
    pub(crate) created_at: Option<Timestamp>,
    /// Its frames, by number.
    pub(crate) frames: BTreeMap<u64, Bytes>,
    /// Records from 2 up to this number were forgotten.
    pub(crate) kept_from: u64,
    /// The number behind its last record, as far as anything says.
    pub(crate) until: u64,
    pub(crate) letters: Letters,
    /// Whether something that is missing could have told more of it.
    pub(crate) may_be_older: bool,
    as_of: u64,
    /// The newest commit of which it is known.
    seen: u64,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) runs: BTreeMap<RunId, FoundRun>,
    pub(crate) notes: BTreeMap<NoteKey, Bytes>,
    /// Notes that may say something older than they did, or may have been removed.
    pub(crate) doubtful_notes: BTreeSet<NoteKey>,
    /// Whether notes may be missing altogether.
    pub(crate) notes_may_be_missing: bool,
    /// How many runs that left memory are missing without a trace, as far as that is counted.
    pub(crate) nameless: u64,
    /// What could not be read, by place.
    pub(crate) damage: Vec<String>,
    /// How many flipped bits were put right.
    pub(crate) mended: u64,
}

/// Records of the database, put together from their pieces.
struct Records<'a> {
    whole: BTreeMap<&'a [u8], (Vec<u8>, u64)>,
    broken: Vec<&'a [u8]>,
}

/// The pieces of one record, by number, and where each was written.
type Pieces<'a> = BTreeMap<u16, (&'a [u8], u64)>;

fn records(carved: &Carved) -> Records<'_> {
    let mut whole = BTreeMap::new();
    let mut broken = Vec::new();
    let mut names: BTreeMap<&[u8], Pieces<'_>> = BTreeMap::new();
    for (key, entry) in &carved.entries {
        if let Some((name, piece)) = keys::split_piece(key) {
            let pieces = names.entry(name).or_default();
            pieces.insert(piece, (&entry.value, entry.at));
        }
    }
    for (name, pieces) in names {
        let join = || {
            let (count, head) = keys::first_piece(pieces.get(&0)?.0)?;
            let mut record = head.to_vec();
            for number in 1..count {
                record.extend_from_slice(pieces.get(&number)?.0);
            }
            // The oldest of its pieces says how old it may be.
            let at = pieces.range(..count).map(|(_, (_, at))| *at).min();
            Some((record, at.unwrap_or(0)))
        };
        match join() {
            Some(record) => {
                whole.insert(name, record);
            }
            None => broken.push(name),
        }
    }
    Records { whole, broken }
}

impl Records<'_> {
    fn with(&self, prefix: u8) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let (first, end) = ([prefix], [prefix + 1]);
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&end[..]));
        let range = self.whole.range::<[u8], _>(bounds);
        range.map(|(name, (record, at))| (*name, record.as_slice(), *at))
    }

    fn archive(&self) -> Option<Archive> {
        let (record, _) = self.whole.get(Key::archive().as_bytes())?;
        Archive::decode(record).ok()
    }
}

/// What is there, counted as an archive counts it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    live: Census,
    shelved: u64,
    asleep: Census,
    sleeping: Census,
    notes: Census,
    deleted: Census,
    annex: Census,
}

fn count(records: &Records<'_>) -> Counted {
    let mut counted = Counted::default();
    for (_, record, _) in records.with(keys::LIVE) {
        if let Ok(stored) = Stored::decode(record) {
            let run = stored.header.run;
            let live = Live::from_stored(stored, Place::Live, 0);
            if let Some(entry) = &live.entry {
                counted.live.add(live_member(run, entry));
            }
        }
    }
    for (_, record, _) in records.with(keys::HEADER) {
        if let Ok(stored) = Stored::decode(record) {
            counted.shelved += 1;
            if let RunState::Asleep { wake_at } = stored.header.state {
                let member = sleeper_member(stored.header.run, wake_at);
                counted.sleeping.add(member);
            }
        }
    }
    for (name, _, _) in records.with(keys::WAKE) {
        if let Some((wake_at, run)) = keys::wake_of(name) {
            counted.asleep.add(sleeper_member(run, wake_at));
        }
    }
    for (name, record, _) in records.with(keys::NOTE) {
        if let Some(key) = keys::note_of(name) {
            counted.notes.add(note_member(&key, record));
        }
    }
    for (name, record, _) in records.with(keys::DELETED) {
        if let (Some(run), Ok(tombstone)) = (keys::run_of(name), Tombstone::decode(record)) {
            counted.deleted.add(deleted_member(run, tombstone.as_of));
        }
    }
    for (name, record, _) in records.with(keys::ANNEX) {
        if let (Some(number), Ok(tally)) = (keys::annex_of(name), Tally::decode(record)) {
            counted.annex.add(tally_member(number, &tally));
        }
    }
    counted
}

impl Counted {
    fn fits(&self, archive: &Archive) -> bool {
        self.live == archive.live
            && self.shelved == archive.shelved
            && self.asleep == archive.asleep
            && self.sleeping == archive.asleep
            && self.notes == archive.notes
            && self.deleted == archive.deleted
            && self.annex == archive.annex
    }
}

/// Says whether all is there that the newest archive counts, and it is not older than one that is known. Segments are not
/// counted by it: every journal says itself whether it is whole.
pub(super) fn is_complete(carved: &Carved, known: u64) -> bool {
    let records = records(carved);
    records
        .archive()
        .is_some_and(|archive| archive.number >= known && count(&records).fits(&archive))
}

/// Puts everything together.
pub(super) fn assemble(
    store: &Path,
    database: Contents,
    log: &mut Blocks,
    mark: Option<Mark>,
    known: u64,
) -> Found {
    let records = records(&database.carved);
    let archive = records.archive();
    let counted = count(&records);
    let as_of = archive.map_or(0, |archive| archive.as_of);
    log.settle(synced(mark).max(as_of), store);
    // Files that an archive made superfluous may be there still, or in part.
    let log_from = archive.map_or(0, |archive| archive.log_from);
    log.missing.retain(|missing| missing.until > log_from);
    let first = log.found.first().map(|block| block.commit);
    let is_newest = archive.is_some_and(|archive| archive.number >= known);
    let mut assembling = Assembling {
        found: Found::default(),
        certain_from: match database.is_sound {
            true => 0,
            false => database.carved.certain_from().max(1),
        },
        is_sound: database.is_sound,
        live_fits: is_newest && archive.is_some_and(|archive| archive.live == counted.live),
        notes_fit: is_newest && archive.is_some_and(|archive| archive.notes == counted.notes),
        log_from,
        first: first.unwrap_or(u64::MAX),
        missing: log.missing.iter().map(|m| (m.from, m.until)).collect(),
        deleted: BTreeMap::new(),
    };
    // The log must begin where the database ends.
    if first.is_none_or(|first| first > log_from) {
        assembling.missing.push((log_from, assembling.first));
        let what = match first {
            Some(first) => commits(log_from, first),
            None => "nothing in it can be read".to_owned(),
        };
        let log = log::directory(store);
        assembling
            .found
            .damage
            .push(format!("{}: {what}", log.display()));
    }
    assembling.found.mended = database.carved.mended + log.mended;
    assembling.damage(store, &database, &records, log);
    assembling.read_entries(&records);
    assembling.read_segments(&records);
    assembling.read_letters(&records);
    assembling.read_notes(&records);
    assembling.replay(log);
    assembling.conclude();
    let mut found = assembling.found;
    if let Some(archive) = archive
        && !database.is_sound
    {
        found.nameless = archive.shelved.saturating_sub(counted.shelved);
    }
    found
}

/// Names commits that are missing, from the first one on and before the second one.
fn commits(from: u64, until: u64) -> String {
    match until - 1 {
        last if last == from => format!("commit {last} is missing"),
        last => format!("commits {from} to {last} are missing"),
    }
}

struct Assembling {
    found: Found,
    /// Entries that were written behind this place of sled's log are the newest.
    certain_from: u64,
    is_sound: bool,
    /// Whether all runs in memory are there as the newest archive has them.
    live_fits: bool,
    notes_fit: bool,
    log_from: u64,
    /// The first commit of the log that can be read.
    first: u64,
    /// Commits that are missing.
    missing: Vec<(u64, u64)>,
    deleted: BTreeMap<RunId, u64>,
}

impl Assembling {
    /// Says what could not be read, by place.
    fn damage(&mut self, store: &Path, database: &Contents, records: &Records<'_>, log: &Blocks) {
        let damage = &mut self.found.damage;
        let db = store.join("db");
        for hole in &database.carved.holes {
            damage.push(format!(
                "{}: {} bytes at {} cannot be read",
                db.display(),
                hole.len,
                hole.offset
            ));
        }
        if !database.is_sound && database.carved.entries.is_empty() {
            damage.push(format!("{}: nothing in it can be read", db.display()));
        }
        for name in &records.broken {
            damage.push(format!("{}: pieces of it are missing", describe(name)));
        }
        for missing in &log.missing {
            let what = commits(missing.from, missing.until);
            damage.push(format!("{}: {what}", missing.file.display()));
        }
    }

    fn run(&mut self, run: RunId) -> &mut FoundRun {
        self.found.runs.entry(run).or_default()
    }

    /// Reads what the database says of runs: `l` and `h`, and their names from `r`, `w` and `x`.
    fn read_entries(&mut self, records: &Records<'_>) {
        for (name, record, _) in records.with(keys::DELETED) {
            if let (Some(run), Ok(tombstone)) = (keys::run_of(name), Tombstone::decode(record)) {
                self.deleted.insert(run, tombstone.as_of);
            }
        }
        for prefix in [keys::HEADER, keys::LIVE] {
            for (name, record, at) in records.with(prefix) {
                let Ok(stored) = Stored::decode(record) else {
                    let damage = format!("{}: it cannot be read", describe(name));
                    self.found.damage.push(damage);
                    continue;
                };
                let certain = self.is_sound
                    || at >= self.certain_from
                    || (prefix == keys::LIVE && self.live_fits);
                self.entry(stored, certain);
            }
        }
        let names = records
            .with(keys::RUN)
            .filter_map(|(name, _, _)| keys::run_of(name));
        let asleep = records
            .with(keys::WAKE)
            .filter_map(|(name, _, _)| keys::wake_of(name));
        for run in names.chain(asleep.map(|(_, run)| run)) {
            self.run(run);
        }
        let broken = records.broken.iter().filter_map(|name| match name.first() {
            Some(&keys::LIVE) => keys::run_of(name),
            Some(&keys::HEADER) => keys::position_of(name).map(|position| position.run),
            _ => None,
        });
        for run in broken.collect::<Vec<_>>() {
            self.run(run);
        }
    }

    fn entry(&mut self, stored: Stored, certain: bool) {
        let first = self.first;
        let run = self.run(stored.header.run);
        if run.header.is_some() && run.as_of >= stored.as_of {
            return;
        }
        // What came after it is in the log, if the log goes back as far.
        run.may_be_older = !certain && first > stored.as_of + 1;
        run.as_of = stored.as_of;
        run.seen = stored.as_of;
        run.until = stored.frames;
        run.kept_from = stored.kept_from;
        run.created_at = Some(stored.header.created_at);
        run.letters.taken = stored.taken;
        run.letters.next = stored.next_letter;
        run.header = Some(stored.header);
    }

    fn read_segments(&mut self, records: &Records<'_>) {
        for (name, record, _) in records.with(keys::SEGMENT) {
            let Some((run, first)) = keys::segment_of(name) else {
                continue;
            };
            let time = name.get(1..9).and_then(|time| time.try_into().ok());
            let created_at = time.map(|time| Timestamp::from_micros(u64::from_be_bytes(time)));
            let is_deleted = self.deleted.contains_key(&run);
            if is_deleted
                && self
                    .found
                    .runs
                    .get(&run)
                    .is_none_or(|run| run.header.is_none())
            {
                continue; // left to be removed
            }
            let found = self.run(run);
            // Another run of the same id was there before.
            if found.created_at.is_some() && found.created_at != created_at {
                continue;
            }
            found.created_at = created_at;
            match unpack(&Bytes::copy_from_slice(record)) {
                Ok(frames) => {
                    for (seq, frame) in (first..).zip(frames) {
                        found.frames.insert(seq, frame);
                    }
                }
                Err(wrong) => {
                    let damage = format!("{}: {wrong}", describe(name));
                    self.found.damage.push(damage);
                }
            }
        }
    }

    fn read_letters(&mut self, records: &Records<'_>) {
        for (name, record, _) in records.with(keys::MAIL) {
            let Some((run, number)) = keys::letter_of(name) else {
                continue;
            };
            if let Some(found) = self.found.runs.get_mut(&run)
                && number >= found.letters.taken
                && number < found.letters.next
            {
                let body = Bytes::copy_from_slice(record);
                found.letters.waiting.insert(number, body);
            }
        }
    }

    fn read_notes(&mut self, records: &Records<'_>) {
        let certain = self.is_sound || self.notes_fit;
        self.found.notes_may_be_missing = !certain;
        for (name, record, at) in records.with(keys::NOTE) {
            let Some(key) = keys::note_of(name) else {
                continue;
            };
            if !certain && at < self.certain_from {
                self.found.doubtful_notes.insert(key.clone());
            }
            self.found.notes.insert(key, Bytes::copy_from_slice(record));
        }
    }

    /// Says of each run whether a missing commit could have told more of it.
    fn conclude(&mut self) {
        for run in self.found.runs.values_mut() {
            let missing = self.missing.iter();
            let newest = missing.map(|(_, until)| *until).max().unwrap_or(0);
            run.may_be_older |= run.seen + 1 < newest;
        }
    }
}
