//! The record kinds: what each of them says, field by field.
//!
//! Only these types are ever serialized into a journal, never a type of the engine. The order of their
//! fields is on disk. How they become bytes is in `record`.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::record::Event;
use crate::clock::Timestamp;
use crate::digest::{Digest, InputDigest};
use crate::error::Interrupted;
use crate::ids::{RunId, StepId};

/// The run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The namespace the run lives in.
    pub namespace: Box<str>,
    /// The workflow's name.
    pub workflow: Box<str>,
    /// The workflow's version.
    pub version: u32,
    /// The key it was started with.
    pub key: Option<Box<str>>,
    /// How many runs the key had before.
    pub generation: u64,
    /// The derivation of ids that this run keeps for life.
    pub derivation: u16,
    /// The digest of the input.
    pub input_digest: Digest,
    /// The input, as a payload.
    pub input: Bytes,
    /// The call that it is the child of, if it is one.
    pub parent: Option<Parent>,
}

/// The call that a child run belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run that made the call.
    pub run: RunId,
    /// The call.
    pub call: StepId,
}

/// A step has its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCompleted {
    /// The step.
    pub step: StepId,
    /// Its name.
    pub name: Box<str>,
    /// Where in the workflow's structure it was called; empty at the root.
    pub scope: Box<str>,
    /// Where in the source it was called, as `file:line`.
    pub source: Box<str>,
    /// The digest of its input.
    pub(crate) input_digest: InputDigest,
    /// The input as a payload, where it is small enough to be kept.
    pub input: Option<Bytes>,
    /// How many attempts it took, this one included; 0 if its idempotency key gave the outcome without one.
    pub attempts: u32,
    /// When the workflow made the call.
    pub called_at: Timestamp,
    /// When the last attempt began.
    pub attempt_began_at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It returned a value: the payload.
    Ok(Bytes),
    /// It returned an error, as a payload of its own error type.
    Err(Bytes),
    /// It ended without a value of its own (panic, timeout, oversized output): an
    /// [`Error`](crate::Error) as a payload.
    Broken(Bytes),
    /// It may have begun and may have had its effect; nobody knows, and it is not run again.
    Interrupted(Interrupted),
    /// It found its work done already, by an attempt of which nobody heard, and returned a value: the payload.
    AlreadyDone(Bytes),
}

impl Outcome {
    /// Returns the value as a payload, if it succeeded.
    pub fn value(&self) -> Option<&Bytes> {
        match self {
            Self::Ok(payload) | Self::AlreadyDone(payload) => Some(payload),
            Self::Err(_) | Self::Broken(_) | Self::Interrupted(_) => None,
        }
    }

    /// Says whether it succeeded.
    pub fn is_success(&self) -> bool {
        self.value().is_some()
    }
}

/// An attempt failed and another one will follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailed {
    /// The step.
    pub step: StepId,
    /// Its name.
    pub name: Box<str>,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// When the next one may begin.
    pub next_at: Timestamp,
    /// Why: never [`Outcome::Ok`].
    pub failure: Outcome,
}

/// A step is about to run for the first time: written for steps that ask for it, and durable before
/// the body starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepIntent {
    /// The step.
    pub step: StepId,
    /// Its name.
    pub name: Box<str>,
    /// Where in the workflow's structure it was called; empty at the root.
    pub scope: Box<str>,
    /// Where in the source it was called, as `file:line`.
    pub source: Box<str>,
    /// The digest of its input.
    pub(crate) input_digest: InputDigest,
    /// The input as a payload, where it is small enough to be kept.
    pub input: Option<Bytes>,
    /// Which attempt is about to begin, from 1.
    pub attempt: u32,
}

/// A durable timer was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerSet {
    /// The timer.
    pub timer: StepId,
    /// Where in the workflow's structure it was set.
    pub scope: Box<str>,
    /// Where in the source it was set.
    pub source: Box<str>,
    /// When it is due.
    pub deadline: Timestamp,
}

/// A durable timer fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFired {
    /// The timer.
    pub timer: StepId,
}

/// A signal was moved from the mailbox into the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReceived {
    /// The signal's name.
    pub name: Box<str>,
    /// The key that a repeated sending is known by.
    pub key: Option<Box<str>>,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// What it carries, as a payload.
    pub payload: Bytes,
}

/// A child run was created, in the same write as this record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStarted {
    /// The call.
    pub call: StepId,
    /// The run.
    pub child: RunId,
    /// The child's workflow.
    pub workflow: Box<str>,
    /// Where in the workflow's structure it was called.
    pub scope: Box<str>,
    /// Where in the source it was called.
    pub source: Box<str>,
    /// The digest of its input.
    pub(crate) input_digest: InputDigest,
    /// The input as a payload, where it is small enough to be kept.
    pub input: Option<Bytes>,
    /// Whether it goes on when this run is cancelled.
    pub detached: bool,
}

/// A child run has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildFinished {
    /// The call.
    pub call: StepId,
    /// The run.
    pub child: RunId,
    /// How it ended.
    pub end: End,
}

/// Somebody asked for the run to be cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequested {
    /// Why.
    pub reason: Box<str>,
    /// When it was asked for.
    pub sent_at: Timestamp,
}

/// A process took the run over after another one had died with steps in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecovered {
    /// How many recorded outcomes were delivered again instead of being run.
    pub replayed: u64,
    /// The steps that may have begun and have no outcome. They run again under the same ids, but for
    /// those that are run at most once.
    pub in_flight: Vec<StepId>,
}

/// A recorded outcome was too old when a resumed run reached it. It counts no more; the step runs again
/// under the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaleOutcomeDiscarded {
    /// The step.
    pub step: StepId,
    /// Its name.
    pub name: Box<str>,
    /// The place in the journal of the outcome that counts no more.
    pub discarded: u64,
}

/// A failed run was taken up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReopened {
    /// The records that no longer count, by their sequence numbers: failed outcomes, and the end.
    pub voided: Vec<u64>,
}

/// The run took the new code of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchMarker {
    /// The patch.
    pub name: Box<str>,
}

/// All before this was copied from another run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunForked {
    /// The run that the copied records, and the step ids in them, were made by.
    pub origin: RunId,
}

/// The workflow returned a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompleted {
    /// The value, as a payload.
    pub output: Bytes,
}

/// The workflow failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailed {
    /// Why: never [`Outcome::Ok`].
    pub failure: Outcome,
}

/// The workflow begins anew with a state; nothing before it is replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// How many checkpoints there are with this one. Part of the ids behind it.
    pub pass: u64,
    /// The workflow's arguments from here on, as a payload.
    pub input: Bytes,
    /// The workflow's time when it begins anew.
    pub now: Timestamp,
    /// Signals that were received and not taken, by name.
    pub signals: Vec<(Box<str>, Vec<Bytes>)>,
    /// Patches that were decided.
    pub patches: Vec<(Box<str>, bool)>,
    /// Children that have not ended.
    pub children: Vec<CarriedChild>,
    /// Tokens that the run holds.
    pub tokens: Vec<Box<str>>,
}

/// A child that goes on across a checkpoint of its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedChild {
    /// The call.
    pub call: StepId,
    /// The run.
    pub child: RunId,
    /// Whether it goes on when its parent is cancelled.
    pub detached: bool,
}

/// What the passes before a checkpoint have done and the run has to undo if it does not complete. It stands
/// directly before the checkpoint; elsewhere it means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoCarried {
    /// The record that the pass began with: the checkpoint before, or 0.
    pub since: u64,
    /// What that pass did, in the order of completion; steps without an outcome come last.
    pub steps: Vec<CarriedUndo>,
    /// How many steps are to be undone with these, of all passes.
    pub owed: u64,
    /// The record of this kind that has the steps before these.
    pub before: Option<u64>,
}

/// A step of an earlier pass that is undone if the run does not complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedUndo {
    /// The step.
    pub step: StepId,
    /// Its name.
    pub name: Box<str>,
    /// The module that defined it.
    pub module: Box<str>,
    /// What it was given, as a payload.
    pub input: Bytes,
    /// What it gave, as a payload, if it succeeded.
    pub output: Option<Bytes>,
}

/// The run does not complete, and what was done is undone from here on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// How the run ends when that is done.
    pub cause: End,
    /// What is undone, in this order; then what earlier passes carried over.
    pub undo: Vec<UndoStep>,
}

/// One thing that is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoStep {
    /// The step that is undone, or the call that was kept for this.
    pub step: StepId,
    /// Its name.
    pub name: Box<str>,
    /// What it was given, as a payload; not for a kept call, and not where all inputs together would be too
    /// large for one record.
    pub input: Option<Bytes>,
    /// Whether it had succeeded.
    pub completed: bool,
}

/// The workflow's own code pushed a message into an outbox, which got it in the same write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePushed {
    /// The place in the workflow that pushed it, as the id of a call.
    pub call: StepId,
    /// The outbox.
    pub outbox: Box<str>,
}

/// The workflow ended itself with a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAborted {
    /// Why.
    pub reason: Box<str>,
    /// Whether what was done was kept: nothing was undone.
    pub kept: bool,
}

/// The run was cancelled or terminated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCancelled {
    /// Why.
    pub reason: Box<str>,
    /// Whether it was stopped at once, without undoing anything.
    pub terminated: bool,
}

/// The workflow went on as a new run, which was created in the same write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunContinued {
    /// The first run of the line.
    pub first: RunId,
    /// The new run.
    pub next: RunId,
    /// How many runs of the line came before the new one.
    pub ordinal: u64,
}

/// The run goes on where another one of its line left off: the second record of its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSucceeds {
    /// The first run of the line.
    pub first: RunId,
    /// How many runs of the line came before this one. Part of its id.
    pub ordinal: u64,
    /// The run that it continues.
    pub previous: RunId,
    /// Signals that were received and not taken, by name.
    pub signals: Vec<(Box<str>, Vec<Bytes>)>,
    /// Children that have not ended.
    pub children: Vec<CarriedChild>,
    /// Tokens that the run holds.
    pub tokens: Vec<Box<str>>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With a value, as a payload.
    Completed(Bytes),
    /// With an error: never [`Outcome::Ok`].
    Failed(Outcome),
    /// By itself, with a reason.
    Aborted(RunAborted),
    /// It was cancelled or terminated.
    Cancelled(RunCancelled),
    /// It went on as a new run. Nobody is told of this end: the line has not ended.
    Continued(RunContinued),
}

impl End {
    /// The record that says so.
    pub(crate) fn into_event(self) -> Event {
        match self {
            Self::Completed(output) => Event::RunCompleted(RunCompleted { output }),
            Self::Failed(failure) => Event::RunFailed(RunFailed { failure }),
            Self::Aborted(aborted) => Event::RunAborted(aborted),
            Self::Cancelled(cancelled) => Event::RunCancelled(cancelled),
            Self::Continued(continued) => Event::RunContinued(continued),
        }
    }

    /// What a record says of the run's end, if it is one of those.
    pub(crate) fn of(event: Event) -> Option<Self> {
        match event {
            Event::RunCompleted(completed) => Some(Self::Completed(completed.output)),
            Event::RunFailed(failed) => Some(Self::Failed(failed.failure)),
            Event::RunAborted(aborted) => Some(Self::Aborted(aborted)),
            Event::RunCancelled(cancelled) => Some(Self::Cancelled(cancelled)),
            Event::RunContinued(continued) => Some(Self::Continued(continued)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_succeeded_if_it_gave_a_value_and_only_then() {
        let payload = Bytes::from_static(b"7");
        for good in [
            Outcome::Ok(payload.clone()),
            Outcome::AlreadyDone(payload.clone()),
        ] {
            assert_eq!(good.value(), Some(&payload));
            assert!(good.is_success(), "{good:?}");
        }
        for bad in [Outcome::Err(payload.clone()), Outcome::Broken(payload)] {
            assert_eq!(bad.value(), None);
            assert!(!bad.is_success(), "{bad:?}");
        }
    }
}
