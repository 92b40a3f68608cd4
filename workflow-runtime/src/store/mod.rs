//! The store: where journals live.
//!
//! Owns the [`Store`] trait, the only door between the engine and a database, and the plain
//! types that cross it. A store keeps *frames*: encoded, chained journal records that it
//! never decodes. It knows a run's [`RunHeader`] and nothing of the user's types.
//!
//! # The contract
//!
//! - **Acknowledged means durable.** A future that resolves to `Ok` says that the write
//!   survives a crash of the process, and with [`Durability::Synced`] a power cut.
//! - **Atomic.** Everything inside one [`NewRun`] or one [`Append`] is there or is not.
//! - **Append-only and gapless.** `(run, sequence)` never changes its value; an append whose
//!   `first_seq` is not the next one is refused with [`StoreError::OutOfOrder`].
//! - **Fenced.** Every write carries the [`Epoch`] under which its run was claimed; a write
//!   with an older epoch is refused with [`StoreError::StaleEpoch`] and changes nothing.
//! - **Fail-stop.** After an I/O error nothing is acknowledged any more: every call answers
//!   [`StoreError::Stopped`] until the store was reopened.
//! - **Terminal is final.** An append to a run that has ended is refused.
//!
//! `store::conformance` checks all of this on any implementation.

pub mod conformance;
pub mod memory;
pub mod sled;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::RunId;

/// A boxed, sendable future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// Keeps runs and their journals.
///
/// See the [module's contract](self). Implementations are shared between all runs of an
/// engine and called from any thread.
pub trait Store: Send + Sync + 'static {
    /// Creates a run with its first frame (sequence 0), or reports the run that has the id
    /// already, unchanged.
    fn create(&self, run: NewRun) -> BoxFuture<'_, StoreResult<Creation>>;

    /// Appends frames to a run's journal, and ends the run if [`Append::end`] says so.
    ///
    /// Appends of one run are durable in the order in which this was called, even when the
    /// futures are polled in another order or dropped.
    fn append(&self, append: Append) -> BoxFuture<'static, StoreResult<()>>;

    /// Parks a run with a reason, or with `None` takes it out of parking. The journal stays
    /// as it is.
    fn park(
        &self,
        run: RunId,
        epoch: Epoch,
        parking: Option<Parking>,
    ) -> BoxFuture<'_, StoreResult<()>>;

    /// Takes ownership of an unfinished run: a new epoch, its header and its whole journal.
    ///
    /// `None` if there is no such run. A run that has ended is returned with its header and
    /// journal too, and no further write to it is accepted.
    fn claim(&self, run: RunId) -> BoxFuture<'_, StoreResult<Option<Claim>>>;

    /// Returns the headers of all runs that have not ended, parked ones included, oldest
    /// first.
    fn unfinished(&self) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>>;

    /// Returns one run's header.
    fn header(&self, run: RunId) -> BoxFuture<'_, StoreResult<Option<RunHeader>>>;

    /// Reads up to `limit` frames of a run's journal, from sequence `from` on.
    ///
    /// Empty past the end, and for a run that does not exist.
    fn frames(&self, run: RunId, from: u64, limit: usize)
    -> BoxFuture<'_, StoreResult<Vec<Bytes>>>;

    /// Lists runs, newest first, ties broken by run id in descending order.
    fn list(&self, query: RunQuery) -> BoxFuture<'_, StoreResult<Vec<RunHeader>>>;

    /// Says whether the last owner of this store closed it. Decided when it was opened.
    fn stopped_cleanly(&self) -> bool;

    /// Returns why the store stopped acknowledging, if it did.
    fn failure(&self) -> Option<String>;

    /// Checks the store's own structures, beyond what opening it checked.
    ///
    /// The chains of the runs are not its business: the journal verifies them.
    fn check(&self) -> BoxFuture<'_, StoreResult<()>>;

    /// Makes everything durable, marks the store as cleanly stopped and lets go of it.
    /// Calls after this answer [`StoreError::Stopped`]. Closing twice is fine.
    fn close(&self) -> BoxFuture<'_, StoreResult<()>>;
}

/// How much an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It survives a power cut: the bytes were synced to the disk.
    #[default]
    Synced,
    /// It survives the process, not the power: the bytes were handed to the operating system.
    Buffered,
}

/// The number under which a run is owned; every claim raises it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of a run that was just created.
    pub const FIRST: Self = Self(1);

    /// Returns the epoch of the next claim.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a store knows of a run without decoding its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The run's id.
    pub run: RunId,
    /// The namespace (tenant) it lives in.
    pub namespace: Box<str>,
    /// The workflow's name.
    pub workflow: Box<str>,
    /// The workflow's version.
    pub version: u32,
    /// The key it was started with.
    pub key: Option<Box<str>>,
    /// The digest of its input.
    pub input_digest: Digest,
    /// When it was created.
    pub created_at: Timestamp,
    /// Whether it still goes on.
    pub state: RunState,
}

/// Whether a run goes on, waits for a person, or has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// It runs, waits or is queued.
    Active,
    /// It cannot go on without help; nothing was lost.
    Parked(Parking),
    /// It has ended.
    Ended(RunEnd),
}

/// How and when a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How.
    pub kind: EndKind,
    /// When.
    pub at: Timestamp,
}

/// The ways a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndKind {
    /// The workflow returned a value.
    Completed,
    /// The workflow returned an error.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The workflow ended itself with a reason.
    Aborted,
}

/// Why and since when a run is parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parking {
    /// The rule that stopped it.
    pub reason: ParkReason,
    /// Since when.
    pub at: Timestamp,
    /// What a person needs to know, without any payload.
    pub report: Box<str>,
    /// The part of the report that shows payloads, encoded as a payload.
    pub detail: Option<Bytes>,
}

/// The rules that park a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ParkReason {
    /// The code asks for something else than the journal holds.
    Diverged,
    /// The workflow's own code panicked.
    Panicked,
    /// A journaled value cannot be read as the type the code asks for.
    Undecodable,
    /// No workflow of that name and version is registered.
    Unregistered,
    /// A step asks for a resource that the engine was not given.
    MissingResource,
    /// The journal's chain does not verify.
    Corrupt,
}

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its header; the state is [`RunState::Active`].
    pub header: RunHeader,
    /// Its first frame.
    pub first: Bytes,
    /// How durable the acknowledgement is.
    pub durability: Durability,
}

/// What [`Store::create`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// The run was created and is owned under this epoch.
    Created(Epoch),
    /// A run of that id is there already.
    Exists(Box<RunHeader>),
}

/// Frames to be appended to one run.
#[derive(Debug, Clone)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The epoch under which the caller owns it.
    pub epoch: Epoch,
    /// The sequence number of the first frame.
    pub first_seq: u64,
    /// The frames, in order. Never empty.
    pub frames: Vec<Bytes>,
    /// How the run ends with the last frame, if it does.
    pub end: Option<RunEnd>,
    /// How durable the acknowledgement is.
    pub durability: Durability,
}

/// A run that was taken over.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The epoch for all writes from now on.
    pub epoch: Epoch,
    /// The run's header.
    pub header: RunHeader,
    /// Its whole journal.
    pub frames: Vec<Bytes>,
}

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    /// Only this namespace.
    pub namespace: Option<Box<str>>,
    /// Only this workflow.
    pub workflow: Option<Box<str>>,
    /// Only runs in one of these states; empty means any.
    pub states: Vec<StateKind>,
    /// Only runs after (older than) this place of an earlier listing.
    pub after: Option<RunPosition>,
    /// At most this many.
    pub limit: usize,
}

/// A [`RunState`] without its particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Runs, waits or is queued.
    Active,
    /// Cannot go on without help.
    Parked,
    /// Has ended that way.
    Ended(EndKind),
}

/// A run's place in the listing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPosition {
    /// When the run was created.
    pub created_at: Timestamp,
    /// The run.
    pub run: RunId,
}

impl RunState {
    /// Returns the state without its particulars.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Active => StateKind::Active,
            Self::Parked(_) => StateKind::Parked,
            Self::Ended(end) => StateKind::Ended(end.kind),
        }
    }
}

impl RunHeader {
    /// Returns the run's place in the listing order.
    pub fn position(&self) -> RunPosition {
        RunPosition {
            created_at: self.created_at,
            run: self.run,
        }
    }
}

impl RunQuery {
    /// Says whether a run belongs to the listing.
    pub fn matches(&self, header: &RunHeader) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|n| *n == header.namespace)
            && self.workflow.as_ref().is_none_or(|w| *w == header.workflow)
            && (self.states.is_empty() || self.states.contains(&header.state.kind()))
            && self.after.is_none_or(|after| header.position() < after)
    }
}

/// What can go wrong in a store.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process holds the directory.
    #[error("the store at {} is in use by another process: stop that process, or open another directory", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The path holds something else.
    #[error("{} is not a workflow store ({found}): open an empty or new directory, or one that this library made", .path.display())]
    NotADatabase {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// A newer release wrote it.
    #[error("the store at {} has format {found}, this release reads up to {supported}: upgrade workflow-runtime (nothing was changed)", .path.display())]
    NewerFormat {
        /// The directory.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this release reads.
        supported: u32,
    },
    /// Bytes are not what was written.
    #[error("the store is damaged at {place}: {detail}")]
    Corrupt {
        /// Where: a file, a block, a run.
        place: String,
        /// What is wrong there.
        detail: String,
    },
    /// Acknowledged writes are gone.
    #[error("the store at {} lost acknowledged writes: it ends at commit {found}, but commit {expected} was synced; restore the directory from a backup", .path.display())]
    LostCommits {
        /// The directory.
        path: PathBuf,
        /// The newest commit found.
        found: u64,
        /// The newest commit that was known to be synced.
        expected: u64,
    },
    /// The operating system refused something.
    #[error("{operation} failed: {message}")]
    Io {
        /// What was attempted, with its path.
        operation: String,
        /// What the system said.
        message: String,
    },
    /// The store no longer accepts calls.
    #[error("the store has stopped: {reason}")]
    Stopped {
        /// The first error, or that it was closed.
        reason: String,
    },
    /// Somebody else owns the run by now.
    #[error("{run} was claimed by another owner: this one may not write to it any more")]
    StaleEpoch {
        /// The run.
        run: RunId,
    },
    /// A frame is missing or was appended already.
    #[error("{run} expects record {expected} next, not {got}")]
    OutOfOrder {
        /// The run.
        run: RunId,
        /// The next sequence number.
        expected: u64,
        /// The one that was offered.
        got: u64,
    },
    /// The run has ended.
    #[error("{run} has ended: nothing can be added to it")]
    Ended {
        /// The run.
        run: RunId,
    },
    /// There is no such run.
    #[error("there is no {run} in this store")]
    UnknownRun {
        /// The run.
        run: RunId,
    },
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Aborted => "aborted",
        })
    }
}
