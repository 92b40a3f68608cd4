//! What the engine refuses or reports to its callers.

use std::fmt;

use super::fork::ForkPoint;
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::error::Error;
use crate::ids::RunId;
use crate::journal::JournalError;
use crate::payload::PayloadError;
use crate::store::{Parking, StoreError};

/// Why the engine could not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A journal cannot be trusted or read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The engine was configured in a way that cannot work.
    #[error("{0}")]
    Configuration(String),
    /// The workflow was not registered, so a run of it could never be resumed.
    #[error(
        "workflow `{workflow}` version {version} is not registered: add `.register::<{workflow}>()` to `Engine::builder()`"
    )]
    NotRegistered {
        /// The workflow.
        workflow: &'static str,
        /// Its version.
        version: u32,
    },
    /// The key cannot be used.
    #[error("{0}")]
    Key(String),
    /// The input cannot be journaled.
    #[error("the input of `{workflow}` cannot be journaled: {problem}")]
    Input {
        /// The workflow.
        workflow: &'static str,
        /// What is wrong with it.
        problem: PayloadError,
    },
    /// The key was used before with another input.
    #[error(
        "the key {key:?} belongs to {run} of `{workflow}`, started {started_at} with other input (digest {first}, now {now}): use another key, or the same input"
    )]
    Conflict {
        /// The key.
        key: String,
        /// The run that has it.
        run: RunId,
        /// Its workflow.
        workflow: String,
        /// When it was started.
        started_at: Timestamp,
        /// The digest of its input.
        first: Digest,
        /// The digest of the input that was refused.
        now: Digest,
    },
    /// A signal cannot be sent as it is.
    #[error("the signal `{name}` to {run}: {problem}")]
    Signal {
        /// The signal.
        name: String,
        /// The run.
        run: RunId,
        /// What is wrong with it.
        problem: PayloadError,
    },
    /// No run holds the token of a hook.
    #[error(
        "no run holds the token {token:?}: it was not taken yet, or its run has closed the hook or ended"
    )]
    NoHook {
        /// The token.
        token: String,
    },
    /// A name cannot be used.
    #[error("the name of a {what} cannot be used: {problem}")]
    Name {
        /// Of what.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such run.
    #[error("there is no {0} in this store")]
    UnknownRun(RunId),
    /// The schedule cannot work as it is declared.
    #[error("schedule `{name}`: {problem}")]
    Schedule {
        /// The schedule.
        name: String,
        /// What is wrong with it, and the way out.
        problem: String,
    },
    /// The queue cannot be used like that.
    #[error("queue `{name}`: {problem}")]
    Queue {
        /// The queue.
        name: String,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// The outbox cannot be used like that.
    #[error("outbox `{name}`: {problem}")]
    Outbox {
        /// The outbox.
        name: String,
        /// What is wrong, and the way out.
        problem: String,
    },
    /// There is no such schedule.
    #[error("there is no schedule `{0}`: declare it with `engine.schedule(..)`")]
    UnknownSchedule(String),
    /// There is no such workflow.
    #[error("no version of a workflow `{0}` is registered with this engine")]
    UnknownWorkflow(String),
    /// The run's journal cannot be made a file.
    #[cfg(feature = "export")]
    #[error("{run} cannot be exported: {problem}")]
    Export {
        /// The run.
        run: RunId,
        /// What is wrong, and the way out.
        problem: crate::export::JournalFileError,
    },
    /// The run has ended.
    #[error("{0} has ended")]
    Ended(RunId),
    /// Only a failed run can be retried.
    #[error(
        "{run} cannot be retried: it {how}, and only a failed run can be tried again (a parked one is resumed)"
    )]
    NotFailed {
        /// The run.
        run: RunId,
        /// How it stands.
        how: &'static str,
    },
    /// The run failed because a child did, and that child cannot be tried again.
    #[error(
        "{run} cannot be retried and was left as it is: its child {child} failed, and cannot be tried again with it: \
         {problem}; start it anew, or `engine.fork({run})` before that child"
    )]
    ChildNotRetried {
        /// The run.
        run: RunId,
        /// The child.
        child: RunId,
        /// Why not.
        problem: String,
    },
    /// The code comes to the same failure again, without running anything.
    #[error(
        "{run} cannot be retried and was left as it is: its code would come to the same failure without running \
         anything, because {report}; change the code and retry it, or `engine.fork({run})` at what failed, which runs it anew \
         under ids of its own"
    )]
    FailsAgain {
        /// The run.
        run: RunId,
        /// Why nothing of it runs again.
        report: Box<str>,
    },
    /// The code does not fit what the run did before.
    #[error(
        "{run} cannot be retried with this code and was left as it is (after a fix, retry it instead of resuming it): {report}"
    )]
    Unfit {
        /// The run.
        run: RunId,
        /// What does not fit.
        report: Box<str>,
    },
    /// The run cannot be forked there.
    #[error("{run} cannot be forked at {at}: {problem}")]
    NoForkPoint {
        /// The run.
        run: RunId,
        /// Where it was to be forked.
        at: ForkPoint,
        /// Why not, and where else.
        problem: String,
    },
    /// The run belongs to another workflow.
    #[error("{run} is a run of `{found}`, not of `{asked}`")]
    OtherWorkflow {
        /// The run.
        run: RunId,
        /// Its workflow.
        found: String,
        /// The workflow that was asked for.
        asked: &'static str,
    },
    /// The engine no longer works.
    #[error("the engine has stopped: {0}")]
    Stopped(String),
    /// The engine cannot be opened again from itself.
    #[error("the engine cannot be reopened: {problem}")]
    Reopen {
        /// Why not, and the way out.
        problem: String,
    },
    /// A stored value cannot be read.
    #[error("the {what} of {run}: {problem}")]
    Payload {
        /// Which value.
        what: &'static str,
        /// Of which run.
        run: RunId,
        /// What is wrong with it.
        problem: PayloadError,
    },
}

/// Why a run gave no result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The workflow returned this error.
    Failed(E),
    /// The run ended without a value of the workflow's own: a step that could give none, a key
    /// used twice.
    Broken(Error),
    /// The workflow ended itself, neither well nor badly.
    Aborted {
        /// Why.
        reason: String,
    },
    /// The run was cancelled or terminated.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// The run is parked. It has not ended: after a fix, `engine.resume(run)` carries on.
    Parked(Box<Parking>),
    /// The engine or its store stopped first; the run goes on with the next engine.
    Engine(EngineError),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Broken(error) => write!(f, "{error:#}"),
            Self::Aborted { reason } => write!(f, "the run was aborted: {reason}"),
            Self::Cancelled { reason } => write!(f, "the run was cancelled: {reason}"),
            Self::Parked(parking) => write!(f, "the run is parked: {}", parking.report),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RunError<E> {}

impl<E> From<EngineError> for RunError<E> {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl<E> From<StoreError> for RunError<E> {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}
