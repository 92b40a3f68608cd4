//! The simulated disk of a [`MemoryStore`](super::MemoryStore): a log of writes, and the
//! table of runs that the log adds up to.
//!
//! Owns the rules of the contract (order, fencing, finality) as pure functions over the
//! table, and what of the log a restart finds. Never waits, and knows nothing of futures.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use super::faults::Surviving;
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::store::{
    Append, Changes, Claim, Commit, Creation, Durability, EndKind, Epoch, Guard, KeptJournal, Mail,
    NewRun, Newest, NoteChange, NoteKey, Parking, Refusal, Reopening, RunHeader, RunOrder,
    RunPosition, RunQuery, RunState, Sleeper, StoreError, StoreResult, Unread,
};

/// Records below this number are never forgotten.
const ALWAYS_KEPT: u64 = 2;

/// One write as it lies on the disk.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// A run and its first frames.
    Create(NewRun),
    /// Frames at the end of a journal.
    Append(Append),
    /// Changes that no owner of a run made.
    Commit(Changes),
    /// A change of parking.
    Park(RunId, Option<Parking>),
    /// A run was put to sleep.
    Sleep(RunId, Option<Timestamp>),
    /// A run was woken.
    Wake(RunId),
    /// A run forgot its records from 2 up to this number.
    Forget(RunId, u64),
    /// A failed run was taken up again.
    Reopen(Box<Reopening>),
    /// Runs were deleted.
    Delete(Vec<RunId>),
    /// The mark of a clean stop.
    Close,
}

impl Write {
    fn durability(&self) -> Durability {
        match self {
            Self::Create(run) => run.durability,
            Self::Append(append) => append.durability,
            Self::Sleep(..) | Self::Wake(_) | Self::Forget(..) => Durability::Buffered,
            Self::Commit(_) | Self::Park(..) | Self::Reopen(_) | Self::Delete(_) | Self::Close => {
                Durability::Synced
            }
        }
    }
}

/// Everything that was written, and how much of it was synced.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The writes in order. A torn one is `None`: it is there, and unreadable.
    entries: Vec<Option<Write>>,
    /// How many of them a power cut cannot take.
    synced: usize,
}

impl Log {
    /// Adds a write without syncing it.
    pub(super) fn push(&mut self, write: Write) {
        self.entries.push(Some(write));
    }

    /// Adds a write of which only a part reached the disk.
    pub(super) fn push_torn(&mut self) {
        self.entries.push(None);
    }

    /// Syncs all there is. One file, one sync: earlier buffered writes come along.
    pub(super) fn sync(&mut self) {
        self.synced = self.entries.len();
    }

    /// Syncs if one of the writes from `from` on asked for it.
    pub(super) fn sync_as_asked(&mut self, from: usize) {
        let asked = self.entries[from..]
            .iter()
            .flatten()
            .any(|write| write.durability() == Durability::Synced);
        if asked {
            self.sync();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns what a restart finds: all synced writes, and a prefix of the others that
    /// ends before the first torn one.
    pub(super) fn surviving(&self, surviving: Surviving) -> Vec<Write> {
        let kept = self.synced + surviving.count(self.entries.len() - self.synced);
        self.entries[..kept]
            .iter()
            .map_while(Clone::clone)
            .collect()
    }
}

/// One run as the store sees it.
#[derive(Debug)]
struct Run {
    header: RunHeader,
    frames: Vec<Bytes>,
    /// Records from 2 up to this number were forgotten: their frames are empty.
    kept_from: u64,
    epoch: Epoch,
    mail: Vec<Mail>,
    next_letter: u64,
}

impl Run {
    fn new(new: &NewRun) -> Self {
        let header = new.header.clone();
        Self {
            // Nobody owns a run that is created asleep.
            epoch: match header.state {
                RunState::Asleep { .. } => Epoch::FIRST.next(),
                _ => Epoch::FIRST,
            },
            header,
            frames: [&new.first].into_iter().chain(&new.rest).cloned().collect(),
            kept_from: 0,
            mail: Vec::new(),
            next_letter: 0,
        }
    }

    fn ended(&self) -> bool {
        matches!(self.header.state, RunState::Ended(_))
    }

    fn forget(&mut self, below: u64) {
        if below <= self.kept_from.max(ALWAYS_KEPT) || below >= self.frames.len() as u64 {
            return;
        }
        self.kept_from = below;
        let below = usize::try_from(below).expect("there are more frames than that");
        for frame in &mut self.frames[ALWAYS_KEPT as usize..below] {
            *frame = Bytes::new();
        }
    }

    /// Refuses to read frames of which some were forgotten.
    fn has(&self, from: u64, limit: usize) -> StoreResult<()> {
        let end = from.saturating_add(limit as u64);
        if from.max(ALWAYS_KEPT) < end.min(self.kept_from) {
            return Err(StoreError::Forgotten {
                run: self.header.run,
                kept_from: self.kept_from,
            });
        }
        Ok(())
    }
}

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Table {
    runs: BTreeMap<RunId, Run>,
    /// The listing order.
    order: BTreeMap<RunPosition, RunId>,
    notes: BTreeMap<NoteKey, Bytes>,
}

impl Table {
    /// Rebuilds the table from writes that were accepted when they were made.
    pub(super) fn replay(writes: &[Write]) -> Self {
        let mut table = Self::default();
        for write in writes {
            table.apply(write);
        }
        table
    }

    /// Returns the header of the run that has the id already.
    pub(super) fn existing(&self, run: RunId) -> Option<Creation> {
        let run = self.runs.get(&run)?;
        Some(Creation::Exists(Box::new(run.header.clone())))
    }

    /// Says whether an append may be made.
    pub(super) fn accept(&self, append: &Append) -> StoreResult<()> {
        let run = self.owned(append.run, append.epoch)?;
        let expected = run.frames.len() as u64;
        if append.first_seq == expected {
            Ok(())
        } else {
            Err(StoreError::OutOfOrder {
                run: append.run,
                expected,
                got: append.first_seq,
            })
        }
    }

    /// Says whether the owner under `epoch` may change the run's parking.
    pub(super) fn accept_park(&self, run: RunId, epoch: Epoch) -> StoreResult<()> {
        self.owned(run, epoch).map(|_| ())
    }

    fn owned(&self, id: RunId, epoch: Epoch) -> StoreResult<&Run> {
        let run = self
            .runs
            .get(&id)
            .ok_or(StoreError::UnknownRun { run: id })?;
        if run.ended() && !seeded!(TerminalReopened) {
            Err(StoreError::Ended { run: id })
        } else if run.epoch != epoch && !seeded!(SkippedFencing) {
            Err(StoreError::StaleEpoch { run: id })
        } else {
            Ok(run)
        }
    }

    /// Makes a write visible. It was accepted before.
    pub(super) fn apply(&mut self, write: &Write) {
        match write {
            Write::Create(new) => self.insert(new),
            Write::Append(append) => {
                let run = self.known(append.run);
                if seeded!(OutcomeOverwritten) {
                    run.frames.truncate(append.first_seq as usize);
                }
                let dropped = usize::from(seeded!(JournalGap) && append.frames.len() > 1);
                run.frames
                    .extend(append.frames.iter().skip(dropped).cloned());
                run.mail.retain(|mail| mail.number >= append.taken);
                let mut left = Vec::new();
                if let Some(end) = append.end {
                    run.header.state = RunState::Ended(end);
                    left = std::mem::take(&mut run.mail);
                }
                if let Some(changes) = &append.changes {
                    self.change(changes);
                }
                let left = left.into_iter().map(|mail| mail.body);
                if append.end.is_some_and(|end| end.kind == EndKind::Failed) {
                    self.note_all(&Unread::keep(append.run, left));
                } else {
                    // Only if it went on as a new run does anybody get them.
                    left.for_each(|body| self.post(append.run, body));
                }
            }
            Write::Commit(changes) => self.change(changes),
            Write::Park(run, parking) => {
                self.known(*run).header.state = match parking {
                    Some(parking) => RunState::Parked(parking.clone()),
                    None => RunState::Active,
                };
            }
            Write::Sleep(run, wake_at) => {
                self.known(*run).header.state = RunState::Asleep { wake_at: *wake_at };
            }
            Write::Wake(run) => self.known(*run).header.state = RunState::Active,
            Write::Forget(run, below) => self.known(*run).forget(*below),
            Write::Reopen(reopening) => {
                let run = self.known(reopening.run);
                run.frames.push(reopening.frame.clone());
                run.header.state = RunState::Active;
                self.note_all(&reopening.notes);
                for letter in &reopening.letters {
                    self.post(reopening.run, letter.clone());
                }
            }
            Write::Delete(runs) => runs.iter().for_each(|run| self.remove(*run)),
            Write::Close => {}
        }
    }

    fn insert(&mut self, new: &NewRun) {
        self.order.insert(new.header.position(), new.header.run);
        self.runs.insert(new.header.run, Run::new(new));
    }

    /// Makes changes as far as they fit.
    fn change(&mut self, changes: &Changes) {
        for new in &changes.create {
            if !self.runs.contains_key(&new.header.run) {
                self.insert(new);
            }
        }
        for letter in &changes.post {
            self.post(letter.to, letter.body.clone());
        }
        self.note_all(&changes.notes);
    }

    fn note_all(&mut self, notes: &[NoteChange]) {
        for change in notes {
            match &change.value {
                Some(value) => self.notes.insert(change.key.clone(), value.clone()),
                None => self.notes.remove(&change.key),
            };
        }
    }

    /// Puts a letter into the mailbox of whoever takes it, if there is anybody.
    fn post(&mut self, to: RunId, body: Bytes) {
        let to = self.addressee(to);
        if let Some(run) = self.runs.get_mut(&to).filter(|run| !run.ended()) {
            run.mail.push(Mail {
                number: run.next_letter,
                body,
            });
            run.next_letter += 1;
        }
    }

    /// Who takes the letters to a run: itself, or the newest of its line if it went on.
    fn addressee(&self, to: RunId) -> RunId {
        let went_on = self.runs.get(&to).filter(|run| run.header.went_on());
        let newest = went_on.and_then(|run| {
            let note = self.notes.get(&Newest::key(run.header.first_of_line()))?;
            Newest::decode(note)
        });
        newest.map_or(to, |newest| newest.run)
    }

    /// Says what keeps a commit from being made.
    pub(super) fn refuses(&self, commit: &Commit) -> Option<Refusal> {
        for (guard, Guard { key, expected }) in commit.guards.iter().enumerate() {
            let found = self.notes.get(key);
            if found != expected.as_ref() {
                let found = found.cloned();
                return Some(Refusal::Note { guard, found });
            }
        }
        let mut created = HashSet::new();
        for new in &commit.changes.create {
            if let Some(run) = self.runs.get(&new.header.run) {
                return Some(Refusal::Exists(Box::new(run.header.clone())));
            }
            if !created.insert(new.header.run) {
                return Some(Refusal::Exists(Box::new(new.header.clone())));
            }
        }
        for letter in &commit.changes.post {
            match self.runs.get(&self.addressee(letter.to)) {
                Some(run) if run.ended() => return Some(Refusal::Ended(letter.to)),
                None if !created.contains(&letter.to) => {
                    return Some(Refusal::Unknown(letter.to));
                }
                Some(_) | None => {}
            }
        }
        None
    }

    /// Flips a bit of a record.
    #[cfg(feature = "testing")]
    pub(super) fn damage(&mut self, run: RunId, seq: u64) -> bool {
        let place = usize::try_from(seq).unwrap_or(usize::MAX);
        let frames = self.runs.get_mut(&run).map(|run| &mut run.frames);
        let Some(frame) = frames.and_then(|frames| frames.get_mut(place)) else {
            return false;
        };
        let mut bytes = frame.to_vec();
        // In the last byte of the chain value: what the record says can be read as before.
        let Some(last) = bytes.last_mut() else {
            return false;
        };
        *last ^= 1;
        *frame = bytes.into();
        true
    }

    fn remove(&mut self, id: RunId) {
        if let Some(run) = self.runs.remove(&id) {
            self.order.remove(&run.header.position());
        }
        let prefix = NoteKey::of_run(id, &[]);
        self.notes
            .retain(|key, _| !key.as_bytes().starts_with(prefix.as_bytes()));
    }

    /// Says which of some runs can be deleted.
    pub(super) fn deletable(&self, runs: Vec<RunId>) -> Vec<RunId> {
        let mut seen = HashSet::new();
        let may_go = |run: &Run| run.ended() || seeded!(RetentionRemovesLive);
        let ended = |run: &RunId| self.runs.get(run).is_some_and(may_go);
        runs.into_iter()
            .filter(|run| ended(run) && seen.insert(*run))
            .collect()
    }

    /// Says whether a run can be taken up again.
    pub(super) fn accept_reopen(&self, reopening: &Reopening) -> StoreResult<()> {
        let run = reopening.run;
        let found = self.runs.get(&run).ok_or(StoreError::UnknownRun { run })?;
        let failed =
            matches!(found.header.state, RunState::Ended(end) if end.kind == EndKind::Failed);
        let expected = found.frames.len() as u64;
        let says = |guard: &Guard| self.notes.get(&guard.key) == guard.expected.as_ref();
        if !reopening.guards.iter().all(says) {
            Err(StoreError::Guarded { run })
        } else if !failed {
            Err(StoreError::Ended { run })
        } else if reopening.seq != expected {
            let got = reopening.seq;
            Err(StoreError::OutOfOrder { run, expected, got })
        } else {
            Ok(())
        }
    }

    /// Gives a run to a new owner and returns the epoch.
    pub(super) fn next_epoch(&mut self, run: RunId) -> Epoch {
        let run = self.known(run);
        run.epoch = run.epoch.next();
        run.epoch
    }

    /// Says whether a run may be put to sleep; `false` if letters wait for it.
    pub(super) fn accept_release(&mut self, run: RunId, epoch: Epoch) -> StoreResult<bool> {
        let may = self.owned(run, epoch)?.mail.is_empty();
        if may {
            self.next_epoch(run);
        }
        Ok(may)
    }

    pub(super) fn is_asleep(&self, run: RunId) -> bool {
        self.runs
            .get(&run)
            .is_some_and(|run| matches!(run.header.state, RunState::Asleep { .. }))
    }

    pub(super) fn asleep(&self, after: Option<&Sleeper>, limit: usize) -> Vec<Sleeper> {
        let place = |sleeper: &Sleeper| {
            let wake_at = sleeper.wake_at;
            (wake_at.is_none(), wake_at.unwrap_or_default(), sleeper.run)
        };
        let mut found: Vec<_> = self
            .runs
            .values()
            .filter_map(|run| match run.header.state {
                RunState::Asleep { wake_at } => Some(Sleeper {
                    wake_at: match run.mail.is_empty() {
                        true => wake_at,
                        false => Some(Timestamp::default()),
                    },
                    run: run.header.run,
                    namespace: run.header.namespace.clone(),
                }),
                _ => None,
            })
            .filter(|sleeper| after.is_none_or(|after| place(sleeper) > place(after)))
            .collect();
        found.sort_by_key(place);
        found.truncate(limit);
        found
    }

    pub(super) fn mail(&self, run: RunId, from: u64) -> Vec<Mail> {
        let Some(run) = self.runs.get(&run) else {
            return Vec::new();
        };
        let waiting = run.mail.iter().filter(|mail| mail.number >= from);
        waiting.cloned().collect()
    }

    pub(super) fn note(&self, key: &NoteKey) -> Option<Bytes> {
        self.notes.get(key).cloned()
    }

    pub(super) fn notes(
        &self,
        prefix: &NoteKey,
        after: Option<&NoteKey>,
        limit: usize,
    ) -> Vec<(NoteKey, Bytes)> {
        let start = match after {
            Some(after) if after >= prefix => std::ops::Bound::Excluded(after),
            _ => std::ops::Bound::Included(prefix),
        };
        self.notes
            .range((start, std::ops::Bound::Unbounded))
            .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
            .take(limit)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    fn known(&mut self, run: RunId) -> &mut Run {
        self.runs
            .get_mut(&run)
            .expect("a write is accepted only for a run that is there")
    }

    /// Hands a run to a new owner.
    pub(super) fn claim(&mut self, run: RunId, from: u64) -> StoreResult<Option<Claim>> {
        let Some(run) = self.runs.get_mut(&run) else {
            return Ok(None);
        };
        run.epoch = run.epoch.next();
        if seeded!(OutcomeOverwritten) && !run.ended() && run.frames.len() > 1 {
            run.frames.pop();
        }
        run.has(from, usize::MAX)?;
        Ok(Some(Claim {
            epoch: run.epoch,
            header: run.header.clone(),
            frames: frames_from(&run.frames, from),
            mail: run.mail.clone(),
            next_letter: run.next_letter,
        }))
    }

    pub(super) fn header(&self, run: RunId) -> Option<RunHeader> {
        self.runs.get(&run).map(|run| run.header.clone())
    }

    pub(super) fn frames(&self, run: RunId, from: u64, limit: usize) -> StoreResult<Vec<Bytes>> {
        let Some(run) = self.runs.get(&run) else {
            return Ok(Vec::new());
        };
        run.has(from, limit)?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let frames = run.frames.iter().skip(from).take(limit);
        Ok(frames.cloned().collect())
    }

    pub(super) fn journal(&self, run: RunId) -> KeptJournal {
        let Some(run) = self.runs.get(&run) else {
            return KeptJournal::default();
        };
        let forgotten = ALWAYS_KEPT..run.kept_from;
        let frames = (0..).zip(&run.frames);
        let kept = frames.filter(|(seq, _)| !forgotten.contains(seq));
        KeptJournal {
            frames: kept.map(|(_, frame)| frame.clone()).collect(),
            kept_from: run.kept_from,
        }
    }

    pub(super) fn unfinished(&self) -> Vec<RunHeader> {
        self.order
            .values()
            .map(|run| &self.runs[run])
            .filter(|run| matches!(run.header.state, RunState::Active | RunState::Parked(_)))
            .map(|run| run.header.clone())
            .collect()
    }

    pub(super) fn list(&self, query: &RunQuery) -> Vec<RunHeader> {
        let newest_first = self.order.values().rev();
        let oldest_first = self.order.values();
        let matching = |runs: &mut dyn Iterator<Item = &RunId>| {
            runs.map(|run| &self.runs[run].header)
                .filter(|header| query.matches(header))
                .take(query.limit)
                .cloned()
                .collect()
        };
        match query.order {
            RunOrder::NewestFirst => matching(&mut { newest_first }),
            RunOrder::OldestFirst => matching(&mut { oldest_first }),
        }
    }
}

/// The first frame, and those from a sequence number on.
fn frames_from(frames: &[Bytes], from: u64) -> Vec<Bytes> {
    let skipped = usize::try_from(from).unwrap_or(usize::MAX).max(1);
    let first = frames.iter().take(1);
    first.chain(frames.iter().skip(skipped)).cloned().collect()
}
