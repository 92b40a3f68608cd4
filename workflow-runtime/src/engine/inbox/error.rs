//! Why an event was not accepted.

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::engine::EngineError;
use crate::idempotency::KeyError;
use crate::ids::RunId;

/// Why an event was not accepted. It may be delivered again.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// What the event causes cannot be, or the engine has stopped.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Where events are remembered failed.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The id cannot be that of an event.
    #[error("the id of an event of inbox `{inbox}`: {problem}")]
    Id {
        /// The inbox.
        inbox: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What was given to `body` has no digest.
    #[error("the body of event {event:?} of inbox `{inbox}` has no digest: {problem}")]
    Body {
        /// The inbox.
        inbox: String,
        /// The event.
        event: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An event of that id said something else.
    #[error(
        "event {event:?} of inbox `{inbox}` was accepted {accepted_at} with another body (digest {first}, now \
         {now}): the source gave one id to two events, or `.body(..)` is given what differs between deliveries"
    )]
    OtherBody {
        /// The inbox.
        inbox: String,
        /// The event.
        event: String,
        /// When the first one came.
        accepted_at: Timestamp,
        /// The run that the first one caused; `None` while that is under way, or if it caused none.
        run: Option<RunId>,
        /// The digest of the first body.
        first: Digest,
        /// The digest of this one.
        now: Digest,
    },
    /// The event was handled by `run`, which causes neither a run nor a signal.
    #[error(
        "event {event:?} of inbox `{inbox}` was handled by `.run(..)` {accepted_at}: handle the events of an inbox \
         in one way only"
    )]
    Handled {
        /// The inbox.
        inbox: String,
        /// The event.
        event: String,
        /// When.
        accepted_at: Timestamp,
    },
}
