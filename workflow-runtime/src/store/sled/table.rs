//! The table of live runs: what the store knows without asking the database.
//!
//! Owns the rules of the contract for runs in memory (order, fencing, finality), judged at
//! the moment of queuing, and the committed part that readers see. Never touches the
//! database, never waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::doze::{self, Dozing};
use super::layout::{ALWAYS_KEPT, Layout};
use super::mailbox::Mailbox;
use super::op::Appending;
use super::segment::Stored;
use crate::clock::Timestamp;
use crate::id_map::{IdMap, IdSet};
use crate::ids::RunId;
use crate::store::{Epoch, RunHeader, RunPosition, RunState, StoreError, StoreResult};

/// A run whose frames in memory exceed this gets segments before it ends or sleeps. All frames in memory
/// are in the log too, so the limit on that bounds their sum; this one bounds what one run takes of it.
/// Far above what most runs ever have: those are archived once, at their end, with a third fewer writes.
pub(super) const MAX_TAIL_BYTES: usize = 16 * 1024;

/// The same for a run that forgets: most of what it has in memory will be forgotten before it has to be archived.
pub(super) const MAX_FORGETFUL_TAIL_BYTES: usize = 64 * 1024;

/// Up to so many frames, a run has room for no more than it has; from then on for four times as many, up to
/// [`MANY_FRAMES`]. To grow is to move all of them.
const FEW_FRAMES: usize = 4;

/// From so many frames on, a run has room for twice as many when it grows.
const MANY_FRAMES: usize = 64;

/// A committed frame that is in no segment yet.
#[derive(Debug, Clone)]
pub(super) struct TailFrame {
    pub(super) bytes: Bytes,
    /// The commit whose block holds it.
    pub(super) commit: u64,
}

/// What the database has of a run in memory, beside segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) as_of: u64,
    pub(super) archived: u64,
    /// Records from 2 up to this number were forgotten.
    pub(super) kept_from: u64,
    /// The letters that lie under `m`: from this number on, and before that one.
    pub(super) letters: (u64, u64),
    pub(super) place: Place,
    pub(super) pieces: u16,
}

/// Where a run's header lies in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Under `l`.
    Live,
    /// Under `h`: it slept when that was written, and is under `w` with this time.
    Asleep(Option<Timestamp>),
    /// Under `h`: it had ended when that was written.
    Ended,
}

/// Frames that an archive moves to segments.
#[derive(Debug)]
pub(super) struct Departing {
    pub(super) frames: Arc<Vec<TailFrame>>,
    layout: Layout,
}

/// What a run has forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// Records from 2 up to this number.
    kept_from: u64,
    /// The commit whose block says so, if the database does not know yet.
    commit: Option<u64>,
    /// Whether no block was found yet that says so.
    supposed: bool,
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
    /// Whether its owner's wish to let it sleep is queued.
    pub(super) releasing: bool,
    /// The number behind the last frame in segments.
    pub(super) archived: u64,
    /// The committed frames after those that an archive moves to segments just now.
    pub(super) moving: Option<Box<Departing>>,
    /// The committed frames after those.
    pub(super) tail: Vec<TailFrame>,
    pub(super) tail_bytes: usize,
    /// Boxed: most runs forget nothing.
    gap: Option<Box<Gap>>,
    /// Blocks with changes of state that the database does not know of yet.
    pub(super) changed_in: Vec<u64>,
    /// `None`: it never got a letter.
    pub(super) mailbox: Option<Box<Mailbox>>,
    /// Boxed: most runs that wait have none.
    pub(super) entry: Option<Box<Entry>>,
    /// Whether it is in line to be archived.
    pub(super) due: bool,
    /// How many queued operations need it to stay in memory.
    pub(super) pins: u32,
}

impl Live {
    pub(super) fn new(header: RunHeader) -> Self {
        Self {
            header,
            epoch: Epoch::FIRST,
            next_seq: 0,
            ending: false,
            releasing: false,
            archived: 0,
            moving: None,
            tail: Vec::new(),
            tail_bytes: 0,
            gap: None,
            changed_in: Vec::new(),
            mailbox: None,
            entry: None,
            due: false,
            pins: 0,
        }
    }

    /// Takes a run back into memory that left it. Its frames stay where they are.
    pub(super) fn from_shelf(stored: Stored, pieces: u16) -> Self {
        let place = match stored.header.state {
            RunState::Asleep { wake_at } => Place::Asleep(wake_at),
            _ => Place::Ended,
        };
        let mut live = Self::from_stored(stored, place, pieces);
        live.next_seq = live.archived;
        live.ending = live.ended();
        live
    }

    /// Takes what the database has of a run, without the letters that wait for it.
    pub(super) fn from_stored(stored: Stored, place: Place, pieces: u16) -> Self {
        let mut live = Self::new(stored.header);
        live.archived = stored.frames;
        if stored.kept_from > 0 {
            let gap = Gap {
                kept_from: stored.kept_from,
                commit: None,
                supposed: false,
            };
            live.gap = Some(Box::new(gap));
        }
        if stored.next_letter > 0 {
            let mailbox = Mailbox::new(stored.taken, stored.next_letter);
            live.mailbox = Some(Box::new(mailbox));
        }
        live.entry = Some(Box::new(Entry {
            as_of: stored.as_of,
            archived: stored.frames,
            kept_from: stored.kept_from,
            letters: (stored.taken, stored.next_letter),
            place,
            pieces,
        }));
        live
    }

    /// Adds a committed frame.
    pub(super) fn push(&mut self, bytes: Bytes, commit: u64) {
        self.tail_bytes += bytes.len();
        // One by one at first: most runs that wait have a frame or two, and there are many.
        let len = self.tail.len();
        if len == self.tail.capacity() && len < MANY_FRAMES {
            let more = if len < FEW_FRAMES { 1 } else { 3 * len };
            self.tail.reserve_exact(more);
        }
        self.tail.push(TailFrame { bytes, commit });
    }

    /// The committed frames that are in no segment yet.
    pub(super) fn frames(&self) -> impl Iterator<Item = &TailFrame> {
        let moving = self.moving.as_ref();
        let moving = moving.map_or(&[][..], |moving| moving.frames.as_slice());
        moving.iter().chain(&self.tail)
    }

    /// The committed frames that are in no segment yet and were not forgotten, with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u64, &Bytes)> {
        let kept_from = self.kept_from();
        let moving = self.moving.iter().flat_map(|moving| {
            let frames = moving.frames.iter().enumerate();
            frames.map(|(index, frame)| (moving.layout.seq(index), &frame.bytes))
        });
        let layout = self.layout();
        let tail = self.tail.iter().enumerate();
        let tail = tail.map(move |(index, frame)| (layout.seq(index), &frame.bytes));
        let kept = move |seq: u64| seq < ALWAYS_KEPT || seq >= kept_from;
        moving.chain(tail).filter(move |(seq, _)| kept(*seq))
    }

    /// Records from 2 up to this number were forgotten, as far as committed.
    pub(super) fn kept_from(&self) -> u64 {
        self.gap.as_ref().map_or(0, |gap| gap.kept_from)
    }

    /// The commit whose block says what was forgotten, if the database does not know yet.
    pub(super) fn forgot_in(&self) -> Option<u64> {
        self.gap.as_ref()?.commit
    }

    /// The database is about to know what was forgotten. Returns the commit that is not needed for it any more.
    pub(super) fn gap_is_archived(&mut self) -> Option<u64> {
        self.gap.as_mut()?.commit.take()
    }

    fn layout(&self) -> Layout {
        let moved = self.moving.as_ref();
        Layout {
            start: moved.map_or(self.archived, |moved| moved.until()),
            kept_from: self.kept_from(),
        }
    }

    /// The number behind the last committed frame.
    pub(super) fn committed(&self) -> u64 {
        self.layout().end(self.tail.len())
    }

    /// Forgets records from 2 up to a number, as a commit says. Returns the commits that frames of the run do not need any
    /// more, and that of the block that told of less; `None` if there is nothing to forget.
    pub(super) fn forget(&mut self, below: u64, commit: u64) -> Option<(Vec<u64>, Option<u64>)> {
        let layout = self.layout();
        let known = match self.gap.as_deref() {
            Some(gap) if gap.supposed => gap.kept_from - 1,
            gap => gap.map_or(ALWAYS_KEPT, |gap| gap.kept_from),
        };
        if below <= known || below >= self.committed() {
            return None;
        }
        let lead = layout.lead();
        let count = usize::try_from(below.saturating_sub(layout.behind())).unwrap_or(usize::MAX);
        let rest = self.tail.len().saturating_sub(lead);
        let gone = match count.min(rest) {
            0 => Vec::new(),
            count => self.tail.drain(lead..lead + count).collect(),
        };
        self.tail_bytes -= gone.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        let older = self.gap_is_archived();
        self.gap = Some(Box::new(Gap {
            kept_from: below,
            commit: Some(commit),
            supposed: false,
        }));
        let commits = gone.into_iter().map(|frame| frame.commit);
        Some((commits.collect(), older))
    }

    /// Supposes that records behind those in segments were forgotten up to a number: the log begins later, and has to
    /// say so in what follows.
    pub(super) fn suppose_forgotten(&mut self, below: u64) {
        self.gap = Some(Box::new(Gap {
            kept_from: below,
            commit: None,
            supposed: true,
        }));
    }

    /// Gives an archive the frames that it moves. Readers have them as well, until they are there.
    pub(super) fn begin_move(&mut self) -> (Arc<Vec<TailFrame>>, Layout) {
        debug_assert!(self.moving.is_none(), "one archive at a time");
        let layout = self.layout();
        let frames = Arc::new(std::mem::take(&mut self.tail));
        self.tail_bytes = 0;
        self.moving = Some(Box::new(Departing {
            frames: Arc::clone(&frames),
            layout,
        }));
        (frames, layout)
    }

    /// What an archive moved is in segments. It has the frames still: they are not freed here.
    pub(super) fn end_move(&mut self) {
        if let Some(moved) = self.moving.take() {
            self.archived = moved.until();
        }
    }

    /// Says whether the run has ended, as far as committed.
    pub(super) fn ended(&self) -> bool {
        matches!(self.header.state, RunState::Ended(_))
    }

    /// Says whether the run sleeps, as far as committed.
    pub(super) fn asleep(&self) -> bool {
        matches!(self.header.state, RunState::Asleep { .. })
    }

    /// Says whether letters wait for it, as far as committed.
    pub(super) fn has_mail(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|mail| !mail.is_empty())
    }

    /// Says whether the run needs no memory once it is archived.
    pub(super) fn leaves(&self) -> bool {
        self.ended() || (self.asleep() && !self.has_mail())
    }

    /// Takes letters, and returns the commits that they no longer need.
    pub(super) fn take_letters(&mut self, below: u64) -> Vec<u64> {
        self.mailbox.get_or_insert_default().take(below)
    }

    /// Drops the letters that wait for a run that has ended. Their blocks are needed until it
    /// is archived: until then nothing else knows how many there were.
    pub(super) fn drop_letters(&mut self) {
        if let Some(mailbox) = &mut self.mailbox {
            let dropped = mailbox.take(mailbox.next);
            self.changed_in.extend(dropped);
        }
    }

    /// Says whether a block before this one still holds something of the run.
    pub(super) fn needs_before(&self, commit: u64) -> bool {
        let oldest = self.frames().next().map(|frame| frame.commit);
        let changed = self.changed_in.first().copied();
        let letter = self.mailbox.as_ref().and_then(|mail| mail.oldest());
        [oldest, changed, letter, self.forgot_in()]
            .into_iter()
            .flatten()
            .any(|oldest| oldest < commit)
    }

    /// Says whether it has so many frames in memory that some have to go.
    pub(super) fn is_long(&self) -> bool {
        let limit = match self.gap {
            None => MAX_TAIL_BYTES,
            Some(_) => MAX_FORGETFUL_TAIL_BYTES,
        };
        self.tail_bytes > limit
    }

    /// Says whether all there is of the run is in the log, and so little of it that it may sleep there.
    pub(super) fn may_doze(&self) -> bool {
        let is_active = matches!(
            self.header.state,
            RunState::Active | RunState::Asleep { .. }
        );
        let is_in_log = self.entry.is_none() && self.gap.is_none() && self.moving.is_none();
        is_active
            && is_in_log
            && !self.due
            && self.pins == 0
            && !self.has_mail()
            && self.tail_bytes <= doze::MAX_BYTES
    }

    /// Says whether the run should be archived by itself.
    pub(super) fn wants_archiving(&self) -> bool {
        let is_parked = matches!(self.header.state, RunState::Parked(_));
        self.is_long() || self.leaves() || (is_parked && !self.changed_in.is_empty())
    }
}

impl Departing {
    /// The number behind the last of them.
    fn until(&self) -> u64 {
        self.layout.end(self.frames.len())
    }
}

/// The runs in memory.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Boxed: a map keeps room for more entries than it has.
    pub(super) runs: IdMap<RunId, Box<Live>>,
    /// The listing order of them.
    pub(super) order: BTreeMap<RunPosition, RunId>,
    /// Those that sleep: they are about to leave, or letters wait for them.
    pub(super) sleeping: IdSet<RunId>,
    /// Those that left memory and sleep in the log.
    pub(super) dozing: Dozing,
    /// Runs that are about to be deleted, and cannot come back into memory.
    pub(super) deleting: IdSet<RunId>,
    /// How often runs left memory.
    pub(super) departures: u64,
    /// The newest epoch that was given to a claim: one count for all runs, so that none is
    /// given twice to a run that was out of memory in between.
    newest_epoch: Epoch,
}

impl Table {
    /// Returns an epoch that no run ever had.
    pub(super) fn next_epoch(&mut self) -> Epoch {
        self.newest_epoch = self.newest_epoch.max(Epoch::FIRST).next();
        self.newest_epoch
    }

    /// Says whether a run that was found neither in memory nor elsewhere is not there: it has not come back meanwhile, nor
    /// has any left memory since there were so many departures, which could have been it.
    pub(super) fn is_nowhere(&self, run: RunId, departures: u64) -> bool {
        let is_here = self.runs.contains_key(&run) || self.dozing.contains(run);
        !is_here && self.departures == departures
    }

    /// Gives a run to a new owner, and keeps it in memory until that is committed.
    pub(super) fn claim(&mut self, run: RunId) -> Option<Epoch> {
        let epoch = self.next_epoch();
        let live = self.runs.get_mut(&run)?;
        live.epoch = epoch;
        live.pins += 1;
        Some(epoch)
    }

    /// Changes the committed state of a run.
    pub(super) fn set_state(&mut self, run: RunId, state: RunState) -> Option<&mut Live> {
        let live = self.runs.get_mut(&run)?;
        live.header.state = state;
        if live.asleep() {
            self.sleeping.insert(run);
        } else {
            self.sleeping.remove(&run);
        }
        Some(live)
    }

    pub(super) fn insert(&mut self, mut live: Live) {
        if live.asleep() {
            // Nobody owns it.
            live.epoch = self.next_epoch();
            self.sleeping.insert(live.header.run);
        }
        self.order.insert(live.header.position(), live.header.run);
        self.runs.insert(live.header.run, Box::new(live));
    }

    pub(super) fn remove(&mut self, run: RunId) -> Option<Box<Live>> {
        let live = self.runs.remove(&run)?;
        self.order.remove(&live.header.position());
        self.sleeping.remove(&run);
        self.departures += 1;
        Some(live)
    }

    /// Accepts an append for the queue, or says why not. `None`: the run is not in memory.
    ///
    /// What it says to have taken is forgotten if it took that before, so that most appends
    /// say nothing of letters.
    pub(super) fn accept_append(
        &mut self,
        epoch: Epoch,
        append: &mut Appending,
    ) -> Option<StoreResult<()>> {
        let run = append.run;
        let live = self.runs.get_mut(&run)?;
        if let Err(error) = live.owned(epoch) {
            return Some(Err(error));
        }
        if append.first_seq != live.next_seq {
            return Some(Err(StoreError::OutOfOrder {
                run,
                expected: live.next_seq,
                got: append.first_seq,
            }));
        }
        live.next_seq += append.frames.len() as u64;
        live.ending = append.end.is_some();
        let known = live.mailbox.as_ref().map_or(0, |mail| mail.taken);
        if append.taken <= known {
            append.taken = 0;
        }
        Some(Ok(()))
    }

    /// Accepts the wish to let a run sleep for the queue. `None`: the run is not in memory.
    pub(super) fn accept_release(&mut self, run: RunId, epoch: Epoch) -> Option<StoreResult<()>> {
        let live = self.runs.get_mut(&run)?;
        let owned = live.owned(epoch);
        live.releasing |= owned.is_ok();
        Some(owned)
    }

    /// Accepts the wish to forget for the queue. `None`: the run is not in memory.
    pub(super) fn accept_forget(&mut self, run: RunId, epoch: Epoch) -> Option<StoreResult<()>> {
        Some(self.runs.get(&run)?.owned(epoch))
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
        } else if self.epoch != epoch || self.releasing {
            Err(StoreError::StaleEpoch { run })
        } else {
            Ok(())
        }
    }
}
