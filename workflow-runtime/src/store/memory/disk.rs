//! The simulated disk of a [`MemoryStore`](super::MemoryStore): a log of writes, and the
//! table of runs that the log adds up to.
//!
//! Owns the rules of the contract (order, fencing, finality) as pure functions over the
//! table, and what of the log a restart finds. Never waits, and knows nothing of futures.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::faults::Surviving;
use crate::ids::RunId;
use crate::store::{
    Append, Claim, Creation, Durability, Epoch, NewRun, Parking, RunHeader, RunPosition, RunQuery,
    RunState, StoreError, StoreResult,
};

/// One write as it lies on the disk.
#[derive(Debug, Clone)]
pub(super) enum Write {
    /// A run and its first frame.
    Create(NewRun),
    /// Frames at the end of a journal.
    Append(Append),
    /// A change of parking.
    Park(RunId, Option<Parking>),
    /// The mark of a clean stop.
    Close,
}

impl Write {
    fn durability(&self) -> Durability {
        match self {
            Self::Create(run) => run.durability,
            Self::Append(append) => append.durability,
            Self::Park(..) | Self::Close => Durability::Synced,
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
    epoch: Epoch,
}

impl Run {
    fn ended(&self) -> bool {
        matches!(self.header.state, RunState::Ended(_))
    }
}

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Table {
    runs: HashMap<RunId, Run>,
    /// The listing order.
    order: BTreeMap<RunPosition, RunId>,
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
        if run.ended() {
            Err(StoreError::Ended { run: id })
        } else if run.epoch != epoch {
            Err(StoreError::StaleEpoch { run: id })
        } else {
            Ok(run)
        }
    }

    /// Makes a write visible. It was accepted before.
    pub(super) fn apply(&mut self, write: &Write) {
        match write {
            Write::Create(new) => {
                self.order.insert(new.header.position(), new.header.run);
                self.runs.insert(
                    new.header.run,
                    Run {
                        header: new.header.clone(),
                        frames: vec![new.first.clone()],
                        epoch: Epoch::FIRST,
                    },
                );
            }
            Write::Append(append) => {
                let run = self.known(append.run);
                run.frames.extend(append.frames.iter().cloned());
                if let Some(end) = append.end {
                    run.header.state = RunState::Ended(end);
                }
            }
            Write::Park(run, parking) => {
                self.known(*run).header.state = match parking {
                    Some(parking) => RunState::Parked(parking.clone()),
                    None => RunState::Active,
                };
            }
            Write::Close => {}
        }
    }

    fn known(&mut self, run: RunId) -> &mut Run {
        self.runs
            .get_mut(&run)
            .expect("a write is accepted only for a run that is there")
    }

    /// Hands a run to a new owner.
    pub(super) fn claim(&mut self, run: RunId) -> Option<Claim> {
        let run = self.runs.get_mut(&run)?;
        run.epoch = run.epoch.next();
        Some(Claim {
            epoch: run.epoch,
            header: run.header.clone(),
            frames: run.frames.clone(),
        })
    }

    pub(super) fn header(&self, run: RunId) -> Option<RunHeader> {
        self.runs.get(&run).map(|run| run.header.clone())
    }

    pub(super) fn frames(&self, run: RunId, from: u64, limit: usize) -> Vec<Bytes> {
        let Some(run) = self.runs.get(&run) else {
            return Vec::new();
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        run.frames.iter().skip(from).take(limit).cloned().collect()
    }

    pub(super) fn unfinished(&self) -> Vec<RunHeader> {
        self.order
            .values()
            .map(|run| &self.runs[run])
            .filter(|run| !run.ended())
            .map(|run| run.header.clone())
            .collect()
    }

    pub(super) fn list(&self, query: &RunQuery) -> Vec<RunHeader> {
        let end = match query.after {
            Some(after) => std::ops::Bound::Excluded(after),
            None => std::ops::Bound::Unbounded,
        };
        self.order
            .range((std::ops::Bound::Unbounded, end))
            .rev()
            .map(|(_, run)| &self.runs[run].header)
            .filter(|header| query.matches(header))
            .take(query.limit)
            .cloned()
            .collect()
    }
}
