//! What can go wrong in a store.

use std::path::PathBuf;

use crate::ids::RunId;

/// The result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

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
    /// The audit key is not the one of the journals.
    #[error("the journals of the store at {} were not made with this audit key: {problem} (nothing was written)", .path.display())]
    WrongAuditKey {
        /// The directory.
        path: PathBuf,
        /// What was found, and what to do.
        problem: String,
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
        /// That it was closed, or what else keeps it from answering.
        reason: String,
    },
    /// An error stopped the store: it has acknowledged nothing since, whoever asked.
    #[error(
        "the store failed, and nothing was acknowledged after that: {error}; what was acknowledged before is kept: once \
         the cause is mended, `engine.reopen()` goes on from there, and so does opening the store again"
    )]
    Failed {
        /// The first error.
        error: String,
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
    /// A note says something else than it must.
    #[error("{run} cannot be taken up as it was asked: what is noted beside it has changed")]
    Guarded {
        /// The run.
        run: RunId,
    },
    /// Records were asked for that the run forgot.
    #[error(
        "{run} forgot its records from 2 up to {kept_from}, which a checkpoint made superfluous: read what is left of them with `journal`"
    )]
    Forgotten {
        /// The run.
        run: RunId,
        /// The first record behind those that it forgot.
        kept_from: u64,
    },
    /// There is no such run.
    #[error("there is no {run} in this store")]
    UnknownRun {
        /// The run.
        run: RunId,
    },
}
