//! The table of live runs: what the store knows without asking the database.
//!
//! Owns the rules of the contract for runs in memory (order, fencing, finality), judged at
//! the moment of queuing, and the committed part that readers see. Never touches the
//! database, never waits.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::id_map::IdMap;
use crate::ids::RunId;
use crate::store::{Epoch, RunHeader, RunPosition, RunState, StoreError, StoreResult};

/// A run whose frames in memory exceed this gets a segment: memory per run stays bounded.
pub(super) const MAX_TAIL_BYTES: usize = 4 * 1024;

/// A committed frame that is in no segment yet.
#[derive(Debug, Clone)]
pub(super) struct TailFrame {
    pub(super) bytes: Bytes,
    /// The commit whose block holds it.
    pub(super) commit: u64,
}

/// The entry of a run under `l`.
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveEntry {
    pub(super) as_of: u64,
    pub(super) archived: u64,
    pub(super) pieces: u16,
}

/// A run that has not left memory.
#[derive(Debug)]
pub(super) struct Live {
    /// The committed header.
    pub(super) header: RunHeader,
    pub(super) epoch: Epoch,
    /// The next sequence number, queued frames included.
    pub(super) next_seq: u64,
    /// Whether its end is queued or committed.
    pub(super) ending: bool,
    /// How many frames are in segments.
    pub(super) archived: u64,
    /// The committed frames after those.
    pub(super) tail: Vec<TailFrame>,
    pub(super) tail_bytes: usize,
    /// Blocks with changes of parking that no `l` entry has yet.
    pub(super) parked_in: Vec<u64>,
    pub(super) entry: Option<LiveEntry>,
    /// Whether it is in line to be archived.
    pub(super) due: bool,
}

impl Live {
    pub(super) fn new(header: RunHeader) -> Self {
        Self {
            header,
            epoch: Epoch::FIRST,
            next_seq: 0,
            ending: false,
            archived: 0,
            tail: Vec::new(),
            tail_bytes: 0,
            parked_in: Vec::new(),
            entry: None,
            due: false,
        }
    }

    /// Adds a committed frame.
    pub(super) fn push(&mut self, bytes: Bytes, commit: u64) {
        self.tail_bytes += bytes.len();
        // By half at a time: most runs that wait have a frame or two, and there are many.
        if self.tail.len() == self.tail.capacity() {
            self.tail.reserve_exact((self.tail.len() / 2).max(1));
        }
        self.tail.push(TailFrame { bytes, commit });
    }

    /// Says whether the run has ended, as far as committed.
    pub(super) fn ended(&self) -> bool {
        matches!(self.header.state, RunState::Ended(_))
    }

    /// Says whether a block before this one still holds something of the run.
    pub(super) fn needs_before(&self, commit: u64) -> bool {
        let oldest = self.tail.first().map(|frame| frame.commit);
        let parked = self.parked_in.first().copied();
        oldest
            .into_iter()
            .chain(parked)
            .any(|oldest| oldest < commit)
    }

    /// Says whether the run should be archived by itself.
    pub(super) fn wants_archiving(&self) -> bool {
        self.ended() || self.tail_bytes > MAX_TAIL_BYTES || !self.parked_in.is_empty()
    }
}

/// The runs in memory.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Boxed: a map keeps room for more entries than it has.
    pub(super) runs: IdMap<RunId, Box<Live>>,
    /// The listing order of them.
    pub(super) order: BTreeMap<RunPosition, RunId>,
}

impl Table {
    pub(super) fn insert(&mut self, live: Live) {
        self.order.insert(live.header.position(), live.header.run);
        self.runs.insert(live.header.run, Box::new(live));
    }

    pub(super) fn remove(&mut self, run: RunId) -> Option<Box<Live>> {
        let live = self.runs.remove(&run)?;
        self.order.remove(&live.header.position());
        Some(live)
    }

    /// Accepts an append for the queue, or says why not. `None`: the run is not in memory.
    pub(super) fn accept_append(
        &mut self,
        run: RunId,
        epoch: Epoch,
        first_seq: u64,
        frames: usize,
        ends: bool,
    ) -> Option<StoreResult<()>> {
        let live = self.runs.get_mut(&run)?;
        if let Err(error) = live.owned(epoch) {
            return Some(Err(error));
        }
        if first_seq != live.next_seq {
            return Some(Err(StoreError::OutOfOrder {
                run,
                expected: live.next_seq,
                got: first_seq,
            }));
        }
        live.next_seq += frames as u64;
        live.ending = ends;
        Some(Ok(()))
    }

    /// Accepts a change of parking for the queue. `None`: the run is not in memory.
    pub(super) fn accept_park(&mut self, run: RunId, epoch: Epoch) -> Option<StoreResult<()>> {
        Some(self.runs.get(&run)?.owned(epoch))
    }
}

impl Live {
    fn owned(&self, epoch: Epoch) -> StoreResult<()> {
        let run = self.header.run;
        if self.ending {
            Err(StoreError::Ended { run })
        } else if self.epoch != epoch {
            Err(StoreError::StaleEpoch { run })
        } else {
            Ok(())
        }
    }
}
