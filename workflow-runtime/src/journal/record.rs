//! What a journal can say: the record kinds, their numbers and their bytes.
//!
//! Owns the record types and their encoding as a *body*: one tag byte, then the record in
//! bincode. Only these types are ever serialized into a journal, never a type of the engine.
//! A tag keeps its meaning and its layout for ever: a record that needs another field gets
//! a new tag. `docs/journal-format.md` gives every byte, fixtures in `tests/format` freeze them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::codec;
use crate::digest::{Digest, InputDigest};
use crate::ids::{RunId, StepId};

/// The numbers of the record kinds. What a later release will write is reserved here, so
/// that no number is ever used twice.
mod tag {
    pub(super) const RUN_STARTED: u8 = 1;
    pub(super) const STEP_COMPLETED: u8 = 2;
    pub(super) const ATTEMPT_FAILED: u8 = 3;
    pub(super) const TIMER_SET: u8 = 5;
    pub(super) const TIMER_FIRED: u8 = 6;
    pub(super) const RUN_RECOVERED: u8 = 11;
    pub(super) const RUN_REOPENED: u8 = 12;
    pub(super) const PATCH_MARKER: u8 = 16;
    pub(super) const RUN_FORKED: u8 = 18;
    pub(super) const RUN_COMPLETED: u8 = 20;
    pub(super) const RUN_FAILED: u8 = 21;

    /// Named here, written by later releases.
    pub(super) const RESERVED: [(u8, &str); 11] = [
        (4, "step intent"),
        (7, "signal received"),
        (8, "child started"),
        (9, "child finished"),
        (10, "cancel requested"),
        (13, "run closing"),
        (14, "step abandoned"),
        (15, "checkpoint"),
        (17, "stale outcome discarded"),
        (22, "run aborted"),
        (23, "run cancelled"),
    ];
}

/// The tag of a step's outcome, which is drafted from its parts (see `draft`).
pub(super) const STEP_COMPLETED: u8 = tag::STEP_COMPLETED;

/// One record of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the journal, from 0.
    pub seq: u64,
    /// When it was written; never earlier than the record before it.
    pub time: Timestamp,
    /// What it says.
    pub event: Event,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The run began.
    RunStarted(RunStarted),
    /// A step has its outcome.
    StepCompleted(StepCompleted),
    /// An attempt failed and another one will follow.
    AttemptFailed(AttemptFailed),
    /// A durable timer was set.
    TimerSet(TimerSet),
    /// A durable timer fired.
    TimerFired(TimerFired),
    /// A process took the run over after another one had died with steps in flight.
    RunRecovered(RunRecovered),
    /// A failed run was taken up again.
    RunReopened(RunReopened),
    /// The run took the new code of a patch.
    PatchMarker(PatchMarker),
    /// All before this was copied from another run.
    RunForked(RunForked),
    /// The workflow returned a value.
    RunCompleted(RunCompleted),
    /// The workflow failed.
    RunFailed(RunFailed),
}

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
    /// How many attempts it took, this one included.
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

/// A process took the run over after another one had died with steps in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecovered {
    /// How many recorded outcomes were delivered again instead of being run.
    pub replayed: u64,
    /// The steps that may have begun and have no outcome; they run again under the same ids.
    pub in_flight: Vec<StepId>,
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

/// Says why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("it is empty")]
    Empty,
    #[error("record kind {tag} ({name}) is of a newer release: upgrade workflow-runtime")]
    Newer { tag: u8, name: &'static str },
    #[error("{kind} cannot be decoded: {message}")]
    Malformed { kind: &'static str, message: String },
}

impl Event {
    /// Says whether it ends the run.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::RunCompleted(_) | Self::RunFailed(_))
    }

    /// Encodes the record's fields, and says under which tag they go.
    pub(super) fn encode_fields(&self) -> (u8, Vec<u8>) {
        match self {
            Self::RunStarted(fields) => (tag::RUN_STARTED, codec::encode(fields)),
            Self::StepCompleted(fields) => (tag::STEP_COMPLETED, codec::encode(fields)),
            Self::AttemptFailed(fields) => (tag::ATTEMPT_FAILED, codec::encode(fields)),
            Self::TimerSet(fields) => (tag::TIMER_SET, codec::encode(fields)),
            Self::TimerFired(fields) => (tag::TIMER_FIRED, codec::encode(fields)),
            Self::RunRecovered(fields) => (tag::RUN_RECOVERED, codec::encode(fields)),
            Self::RunReopened(fields) => (tag::RUN_REOPENED, codec::encode(fields)),
            Self::PatchMarker(fields) => (tag::PATCH_MARKER, codec::encode(fields)),
            Self::RunForked(fields) => (tag::RUN_FORKED, codec::encode(fields)),
            Self::RunCompleted(fields) => (tag::RUN_COMPLETED, codec::encode(fields)),
            Self::RunFailed(fields) => (tag::RUN_FAILED, codec::encode(fields)),
        }
    }

    /// Decodes a record's body.
    pub(crate) fn decode(body: &[u8]) -> Result<(Timestamp, Self), RecordError> {
        let (&tag, fields) = body.split_first().ok_or(RecordError::Empty)?;
        match tag {
            tag::RUN_STARTED => read("run started", fields, Self::RunStarted),
            tag::STEP_COMPLETED => read("step completed", fields, Self::StepCompleted),
            tag::ATTEMPT_FAILED => read("attempt failed", fields, Self::AttemptFailed),
            tag::TIMER_SET => read("timer set", fields, Self::TimerSet),
            tag::TIMER_FIRED => read("timer fired", fields, Self::TimerFired),
            tag::RUN_RECOVERED => read("run recovered", fields, Self::RunRecovered),
            tag::RUN_REOPENED => read("run reopened", fields, Self::RunReopened),
            tag::PATCH_MARKER => read("patch marker", fields, Self::PatchMarker),
            tag::RUN_FORKED => read("run forked", fields, Self::RunForked),
            tag::RUN_COMPLETED => read("run completed", fields, Self::RunCompleted),
            tag::RUN_FAILED => read("run failed", fields, Self::RunFailed),
            tag => {
                let name = tag::RESERVED
                    .iter()
                    .find(|(reserved, _)| *reserved == tag)
                    .map_or("unknown", |(_, name)| name);
                Err(RecordError::Newer { tag, name })
            }
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(
    kind: &'static str,
    fields: &[u8],
    make: impl FnOnce(T) -> Event,
) -> Result<(Timestamp, Event), RecordError> {
    codec::decode(fields)
        .map(|(time, fields)| (time, make(fields)))
        .map_err(|message| RecordError::Malformed { kind, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_newer_release_is_named_not_misread() {
        let error = Event::decode(&[9, 0, 0]).expect_err("reserved");
        assert!(error.to_string().contains("child finished"), "{error}");
        let error = Event::decode(&[200]).expect_err("unknown");
        assert!(error.to_string().contains("200"), "{error}");
        assert_eq!(Event::decode(&[]), Err(RecordError::Empty));
    }

    #[test]
    fn a_cut_record_is_an_error_at_every_length() {
        let event = Event::TimerSet(TimerSet {
            timer: StepId::from_bytes([3; 16]),
            scope: "a0".into(),
            source: "src/main.rs:7".into(),
            deadline: Timestamp::from_micros(9),
        });
        let (tag, fields) = event.encode_fields();
        let mut body = vec![tag];
        codec::encode_into(&Timestamp::from_micros(5), &mut body);
        body.extend_from_slice(&fields);
        assert_eq!(Event::decode(&body), Ok((Timestamp::from_micros(5), event)));
        for len in 0..body.len() {
            assert!(Event::decode(&body[..len]).is_err(), "cut at {len}");
        }
    }
}
