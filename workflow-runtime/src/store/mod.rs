//! The store: where journals live.
//!
//! Owns the [`Store`] trait, the only door between the engine and a database, and the plain
//! types that cross it. A store keeps *frames* (encoded, chained journal records), *letters* (what
//! others have for a run) and *notes* (small named values). It decodes none of them: it knows a
//! run's [`RunHeader`] and nothing of the user's types.
//!
//! # The contract
//!
//! - **Acknowledged means durable.** A future that resolves to `Ok` says that the write
//!   survives a crash of the process, and with [`Durability::Synced`] a power cut.
//! - **Atomic.** Everything inside one [`NewRun`], one [`Append`] or one [`Commit`] is there or is
//!   not, its [`Changes`] included.
//! - **Append-only and gapless.** `(run, sequence)` never changes its value; an append whose
//!   `first_seq` is not the next one is refused with [`StoreError::OutOfOrder`].
//! - **Forgetting is asked for.** Only the owner of a run says which records it does not need ([`Store::forget`]). They are
//!   never read as something else: a read that would have to hold one is refused with [`StoreError::Forgotten`].
//! - **Fenced.** Every write carries the [`Epoch`] under which its run was claimed; a write
//!   with an older epoch is refused with [`StoreError::StaleEpoch`] and changes nothing. No epoch of
//!   a run is given twice, also not after it slept.
//! - **Fail-stop.** After an I/O error nothing is acknowledged any more: every call answers
//!   [`StoreError::Failed`], with the first error, until the store was [opened again](Store::open_again).
//! - **Terminal is final.** An append to a run that has ended is refused; only [`Store::revive`] takes
//!   a failed run up again.
//! - **Letters are kept until taken.** They are numbered from 0 per run, without gaps and in the order in
//!   which they were acknowledged. Only the run's owner takes them, in the append that puts them into
//!   the journal ([`Append::taken`]).
//! - **Letters follow a line.** With the end of a run that [went on](EndKind::Continued) as a new one, the letters
//!   that wait for it go to the newest run of its line, in their order, and so does every later letter to it: the
//!   one that the note [`Newest`] of the line's first run names.
//! - **Letters outlive a failure.** Those that wait for a run when it [fails](EndKind::Failed) are kept in its notes
//!   ([`Unread`]), in the write that ends it. With any other end they are dropped.
//! - **Sleeping costs no memory.** A run that was [released](Store::put_to_sleep) is found by its id, by
//!   [`Store::asleep`] and in listings, and takes letters; nothing else of it is held in memory.
//!
//! `store::conformance` checks all of this on any implementation.

mod ack;
pub mod conformance;
mod error;
mod frames;
mod lines;
pub mod memory;
mod notes;
mod runs;
pub mod sled;
mod unread;
mod writes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::ids::RunId;

pub(crate) use ack::AckWaiter;
pub use ack::{AckSender, AckSlot};
pub use error::{StoreError, StoreResult};
pub use frames::Frames;
pub use lines::Newest;
pub use notes::{Guard, NoteChange, NoteKey};
pub use runs::{
    Durability, EndKind, Epoch, Origin, ParkReason, Parking, RunEnd, RunHeader, RunOrder,
    RunPosition, RunQuery, RunState, StateKind,
};
pub use unread::Unread;
pub use writes::{
    Append, Changes, Claim, Commit, Committed, Creation, KeptJournal, Letter, Mail, NewRun,
    Refusal, Released, Reopening, Sleeper,
};

/// What a store has done since it was opened; see [`Store::counts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCounts {
    /// Writes that were acknowledged: starts, appends, signals and all else that somebody waited for.
    pub writes: u64,
    /// Groups of them that became durable together.
    pub commits: u64,
    /// Syncs that their durability took.
    pub syncs: u64,
    /// Bytes that they took.
    pub bytes: u64,
}

/// A boxed, sendable future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps runs and their journals.
///
/// See the [module's contract](self). Implementations are shared between all runs of an
/// engine and called from any thread.
pub trait Store: Send + Sync + 'static {
    /// Creates a run with its first frames (from sequence 0), or reports the run that has the id
    /// already, unchanged.
    fn create(&self, run: NewRun) -> BoxFuture<'_, StoreResult<Creation>>;

    /// Appends frames to a run's journal, and ends the run if [`Append::end`] says so.
    ///
    /// Appends of one run are durable in the order in which this was called, even when the
    /// futures are polled in another order or dropped.
    fn append(&self, append: Append) -> BoxFuture<'static, StoreResult<()>>;

    /// Appends as [`append`](Self::append) does, and answers in a slot that the caller has for it. A future is
    /// returned instead if the store does not use the slot, or refuses the append at once.
    ///
    /// Every step is one append. A store that gives each a future of its own allocates for it.
    fn append_into(
        &self,
        append: Append,
        slot: &Arc<AckSlot>,
    ) -> Option<BoxFuture<'static, StoreResult<()>>> {
        let _ = slot;
        Some(self.append(append))
    }

    /// Creates runs, posts letters and changes notes in one atomic write, synced, unless one of its
    /// guards or runs refuses: then nothing is changed.
    ///
    /// A note that is [too large](NoteChange::MAX_VALUE_BYTES) is an error, here and in an append, and
    /// nothing is changed.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, StoreResult<Committed>>;

    /// Parks a run with a reason, or with `None` takes it out of parking. The journal stays
    /// as it is.
    fn park(
        &self,
        run: RunId,
        epoch: Epoch,
        parking: Option<Parking>,
    ) -> BoxFuture<'_, StoreResult<()>>;

    /// Gives up a run that only waits, until `wake_at` or for a letter, so that it needs no
    /// memory. Refused if letters wait for it already.
    ///
    /// Not durable by itself: after a crash the run may be among the [unfinished](Self::unfinished)
    /// ones again, which is where it would be if it had stayed.
    fn put_to_sleep(
        &self,
        run: RunId,
        epoch: Epoch,
        wake_at: Option<Timestamp>,
    ) -> BoxFuture<'_, StoreResult<Released>>;

    /// Takes ownership of an unfinished run: a new epoch, its header, its journal and the letters that wait
    /// for it. A sleeping run is awake from then on. With `from` above 1, of the journal only the
    /// first frame and those from that sequence number on.
    ///
    /// `None` if there is no such run. A run that has ended is returned with its header and
    /// journal too, and no further write to it is accepted.
    fn claim(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Option<Claim>>>;

    /// Says that a run does not need its records from 2 up to `below` any more: the store may forget them, at once, later or
    /// never. The record `below` must have been acknowledged. Nobody has to wait for the answer.
    ///
    /// Not durable by itself: after a crash the records may be there again.
    fn forget(&self, run: RunId, epoch: Epoch, below: u64) -> BoxFuture<'_, StoreResult<()>> {
        let _ = (run, epoch, below);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Takes a failed run up again, with the frame that says so.
    ///
    /// Refused with [`StoreError::Ended`] if it ended otherwise, with [`StoreError::OutOfOrder`] if the
    /// frame is not the next one, with [`StoreError::Guarded`] if a note says something else than it must.
    fn revive(&self, reopening: Reopening) -> BoxFuture<'_, StoreResult<Epoch>>;

    /// Deletes runs that have ended: journals, headers and the notes that belong to them. Returns
    /// how many there were; runs that have not ended or are not there are left out.
    ///
    /// Each run is deleted as a whole. Commits do not wait for it.
    fn delete(&self, runs: Vec<RunId>) -> BoxFuture<'_, StoreResult<u64>>;

    /// Returns the headers of all runs that have neither ended nor sleep, parked ones included,
    /// oldest first.
    fn unfinished(&self) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>>;

    /// Lists sleeping runs: those with a time first, soonest first, then the others by id; from
    /// behind `after` on.
    ///
    /// A sleeping run for which letters wait is due: it is listed with the time 0, whatever its
    /// header says. So whoever opens a store finds the runs that were to be woken when the
    /// process died between the letter and the claim.
    fn asleep(
        &self,
        after: Option<Sleeper>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<Sleeper>>>;

    /// Returns one run's header.
    fn header(&self, run: RunId) -> BoxFuture<'_, StoreResult<Option<RunHeader>>>;

    /// Reads up to `limit` frames of a run's journal, from sequence `from` on.
    ///
    /// Empty past the end, and for a run that does not exist.
    /// [`StoreError::Forgotten`] if one of them was [forgotten](Self::forget).
    fn frames(&self, run: RunId, from: u64, limit: usize)
    -> BoxFuture<'_, StoreResult<Vec<Bytes>>>;

    /// Reads all of a run's journal that is kept: a store that forgets leaves out what it forgot.
    ///
    /// Empty for a run that does not exist.
    fn journal(&self, run: RunId) -> BoxFuture<'_, StoreResult<KeptJournal>> {
        Box::pin(async move {
            let frames = self.frames(run, 0, usize::MAX).await?;
            Ok(KeptJournal {
                frames,
                kept_from: 0,
            })
        })
    }

    /// Returns the letters that wait for a run, from number `from` on.
    fn mail(&self, run: RunId, from: u64) -> BoxFuture<'_, StoreResult<Vec<Mail>>>;

    /// Reads a note.
    fn note(&self, key: NoteKey) -> BoxFuture<'_, StoreResult<Option<Bytes>>>;

    /// Lists notes whose keys begin with `prefix`, in the order of their keys, from behind
    /// `after` on.
    fn notes(
        &self,
        prefix: NoteKey,
        after: Option<NoteKey>,
        limit: usize,
    ) -> BoxFuture<'_, StoreResult<Vec<(NoteKey, Bytes)>>>;

    /// Lists runs in the order that the query asks for; ties are broken by run id the same way.
    fn list(&self, query: RunQuery) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>>;

    /// Says whether nobody else can change what is stored while this value lives: no other process, and no
    /// clone in this one. Then what was read once is known until it is changed through this value.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// Says whether the last owner of this store closed it. Decided when it was opened.
    fn stopped_cleanly(&self) -> bool;

    /// Returns why the store stopped acknowledging, if it did.
    fn failure(&self) -> Option<String>;

    /// Waits until the store has [failed](Self::failure), and returns why. It does not keep the store open, and never
    /// resolves for one that is closed or dropped in good order.
    ///
    /// Of a store that leaves this out the engine learns when a run of its own is refused.
    fn failed(&self) -> BoxFuture<'static, String> {
        Box::pin(std::future::pending())
    }

    /// Opens anew what a store that has stopped keeps: everything that it acknowledged is there, and what it did not may
    /// or may not be. Waits until the stopped one has let go of it.
    fn open_again(&self) -> BoxFuture<'_, StoreResult<Arc<dyn Store>>> {
        let reason =
            "it cannot be opened again from itself: open it anew and give it to `open_with`";
        let reason = reason.to_owned();
        Box::pin(std::future::ready(Err(StoreError::Stopped { reason })))
    }

    /// Returns what was counted since the store was opened.
    fn counts(&self) -> StoreCounts {
        StoreCounts::default()
    }

    /// Checks the store's own structures, beyond what opening it checked.
    ///
    /// The chains of the runs are not its business: the journal verifies them.
    fn check(&self) -> BoxFuture<'_, StoreResult<()>>;

    /// Makes everything durable, marks the store as cleanly stopped and lets go of it.
    /// Calls after this answer [`StoreError::Stopped`]. Closing twice is fine.
    fn close(&self) -> BoxFuture<'_, StoreResult<()>>;
}
