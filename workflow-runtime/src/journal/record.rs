//! What a journal can say: the record kinds, their numbers and their bytes.
//!
//! Owns the tags and the encoding of a record as a *body*: one tag byte, then the record in bincode. The
//! types themselves are in `kinds`.
//! A tag keeps its meaning and its layout for ever: a record that needs another field gets
//! a new tag. `docs/journal-format.md` gives every byte, fixtures in `tests/format` freeze them.

use bytes::Bytes;

use super::kinds::{
    AttemptFailed, CancelRequested, Checkpoint, ChildFinished, ChildStarted, Closing,
    MessagePushed, Outcome, PatchMarker, RunAborted, RunCancelled, RunCompleted, RunContinued,
    RunFailed, RunForked, RunRecovered, RunReopened, RunStarted, RunSucceeds, SignalReceived,
    StaleOutcomeDiscarded, StepCompleted, StepIntent, TimerFired, TimerSet, UndoCarried,
};
use crate::clock::Timestamp;
use crate::codec::{self, FieldsReader};
use crate::digest::{Digest, InputDigest};
use crate::ids::StepId;

/// The numbers of the record kinds. What a later release will write is reserved here, so
/// that no number is ever used twice.
mod tag {
    pub(super) const RUN_STARTED: u8 = 1;
    pub(super) const STEP_COMPLETED: u8 = 2;
    pub(super) const ATTEMPT_FAILED: u8 = 3;
    pub(super) const STEP_INTENT: u8 = 4;
    pub(super) const TIMER_SET: u8 = 5;
    pub(super) const TIMER_FIRED: u8 = 6;
    pub(super) const SIGNAL_RECEIVED: u8 = 7;
    pub(super) const CHILD_STARTED: u8 = 8;
    pub(super) const CHILD_FINISHED: u8 = 9;
    pub(super) const CANCEL_REQUESTED: u8 = 10;
    pub(super) const RUN_RECOVERED: u8 = 11;
    pub(super) const RUN_REOPENED: u8 = 12;
    pub(super) const PATCH_MARKER: u8 = 16;
    pub(super) const RUN_FORKED: u8 = 18;
    pub(super) const RUN_CLOSING: u8 = 13;
    pub(super) const CHECKPOINT: u8 = 15;
    pub(super) const STALE_OUTCOME_DISCARDED: u8 = 17;
    pub(super) const UNDO_CARRIED: u8 = 19;
    pub(super) const RUN_COMPLETED: u8 = 20;
    pub(super) const RUN_FAILED: u8 = 21;
    pub(super) const RUN_ABORTED: u8 = 22;
    pub(super) const RUN_CANCELLED: u8 = 23;
    pub(super) const RUN_CONTINUED: u8 = 24;
    pub(super) const RUN_SUCCEEDS: u8 = 25;
    pub(super) const MESSAGE_PUSHED: u8 = 26;

    /// Named here, written by later releases.
    pub(super) const RESERVED: [(u8, &str); 1] = [(14, "step abandoned")];
}

/// The tag of a step's outcome, which is drafted from its parts (see `draft`).
pub(super) const STEP_COMPLETED: u8 = tag::STEP_COMPLETED;

/// The tag of a step's intent, which is drafted from its parts too.
pub(super) const STEP_INTENT: u8 = tag::STEP_INTENT;

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
    /// A step is about to run for the first time.
    StepIntent(StepIntent),
    /// A durable timer was set.
    TimerSet(TimerSet),
    /// A durable timer fired.
    TimerFired(TimerFired),
    /// A signal was moved from the mailbox into the run.
    SignalReceived(SignalReceived),
    /// A child run was created.
    ChildStarted(ChildStarted),
    /// A child run has ended.
    ChildFinished(ChildFinished),
    /// Somebody asked for the run to be cancelled.
    CancelRequested(CancelRequested),
    /// A process took the run over after another one had died with steps in flight.
    RunRecovered(RunRecovered),
    /// The run does not complete, and what was done is undone from here on.
    RunClosing(Closing),
    /// The workflow begins anew with a state; nothing before it is replayed.
    Checkpoint(Checkpoint),
    /// What the passes before a checkpoint leave to be undone.
    UndoCarried(UndoCarried),
    /// A recorded outcome was too old when a resumed run reached it.
    StaleOutcomeDiscarded(StaleOutcomeDiscarded),
    /// A failed run was taken up again.
    RunReopened(RunReopened),
    /// The run took the new code of a patch.
    PatchMarker(PatchMarker),
    /// All before this was copied from another run.
    RunForked(RunForked),
    /// The run goes on where another one left off.
    RunSucceeds(RunSucceeds),
    /// The workflow's own code pushed a message into an outbox.
    MessagePushed(MessagePushed),
    /// The workflow returned a value.
    RunCompleted(RunCompleted),
    /// The workflow failed.
    RunFailed(RunFailed),
    /// The workflow ended itself with a reason.
    RunAborted(RunAborted),
    /// The run was cancelled or terminated.
    RunCancelled(RunCancelled),
    /// The workflow went on as a new run.
    RunContinued(RunContinued),
}

#[cfg(feature = "export")]
impl Record {
    /// Encodes the record's body, as it is in its journal.
    pub(crate) fn body(&self) -> Vec<u8> {
        let (tag, fields) = self.event.encode_fields();
        let mut body = Vec::with_capacity(10 + fields.len());
        body.push(tag);
        codec::encode_into(&self.time, &mut body);
        body.extend_from_slice(&fields);
        body
    }
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
    /// Says whether the record ends its run.
    pub(crate) fn is_end(&self) -> bool {
        matches!(
            self,
            Self::RunCompleted(_)
                | Self::RunFailed(_)
                | Self::RunAborted(_)
                | Self::RunCancelled(_)
                | Self::RunContinued(_)
        )
    }

    /// Encodes the record's fields, and says under which tag they go.
    pub(super) fn encode_fields(&self) -> (u8, Vec<u8>) {
        match self {
            Self::RunStarted(fields) => (tag::RUN_STARTED, codec::encode(fields)),
            Self::StepCompleted(fields) => (tag::STEP_COMPLETED, codec::encode(fields)),
            Self::AttemptFailed(fields) => (tag::ATTEMPT_FAILED, codec::encode(fields)),
            Self::StepIntent(fields) => (tag::STEP_INTENT, codec::encode(fields)),
            Self::TimerSet(fields) => (tag::TIMER_SET, codec::encode(fields)),
            Self::TimerFired(fields) => (tag::TIMER_FIRED, codec::encode(fields)),
            Self::SignalReceived(fields) => (tag::SIGNAL_RECEIVED, codec::encode(fields)),
            Self::ChildStarted(fields) => (tag::CHILD_STARTED, codec::encode(fields)),
            Self::ChildFinished(fields) => (tag::CHILD_FINISHED, codec::encode(fields)),
            Self::CancelRequested(fields) => (tag::CANCEL_REQUESTED, codec::encode(fields)),
            Self::RunRecovered(fields) => (tag::RUN_RECOVERED, codec::encode(fields)),
            Self::StaleOutcomeDiscarded(fields) => {
                (tag::STALE_OUTCOME_DISCARDED, codec::encode(fields))
            }
            Self::RunClosing(fields) => (tag::RUN_CLOSING, codec::encode(fields)),
            Self::Checkpoint(fields) => (tag::CHECKPOINT, codec::encode(fields)),
            Self::UndoCarried(fields) => (tag::UNDO_CARRIED, codec::encode(fields)),
            Self::RunReopened(fields) => (tag::RUN_REOPENED, codec::encode(fields)),
            Self::PatchMarker(fields) => (tag::PATCH_MARKER, codec::encode(fields)),
            Self::RunForked(fields) => (tag::RUN_FORKED, codec::encode(fields)),
            Self::MessagePushed(fields) => (tag::MESSAGE_PUSHED, codec::encode(fields)),
            Self::RunCompleted(fields) => (tag::RUN_COMPLETED, codec::encode(fields)),
            Self::RunFailed(fields) => (tag::RUN_FAILED, codec::encode(fields)),
            Self::RunAborted(fields) => (tag::RUN_ABORTED, codec::encode(fields)),
            Self::RunCancelled(fields) => (tag::RUN_CANCELLED, codec::encode(fields)),
            Self::RunContinued(fields) => (tag::RUN_CONTINUED, codec::encode(fields)),
            Self::RunSucceeds(fields) => (tag::RUN_SUCCEEDS, codec::encode(fields)),
        }
    }

    /// Encodes a record that waits in a mailbox until its run's owner gives it a time and a place:
    /// its tag, then its fields.
    pub(crate) fn to_letter(&self) -> Bytes {
        let (tag, fields) = self.encode_fields();
        let mut body = Vec::with_capacity(1 + fields.len());
        body.push(tag);
        body.extend_from_slice(&fields);
        body.into()
    }

    /// Decodes what waited in a mailbox.
    pub(crate) fn from_letter(body: &[u8]) -> Result<Self, RecordError> {
        let (&tag, fields) = body.split_first().ok_or(RecordError::Empty)?;
        match tag {
            tag::SIGNAL_RECEIVED => read_letter("signal received", fields, Self::SignalReceived),
            tag::CHILD_FINISHED => read_letter("child finished", fields, Self::ChildFinished),
            tag::CANCEL_REQUESTED => read_letter("cancel requested", fields, Self::CancelRequested),
            tag => Err(newer(tag)),
        }
    }

    /// Decodes a record's body.
    pub(crate) fn decode(body: &[u8]) -> Result<(Timestamp, Self), RecordError> {
        let (&tag, fields) = body.split_first().ok_or(RecordError::Empty)?;
        match tag {
            tag::RUN_STARTED => read("run started", fields, Self::RunStarted),
            tag::STEP_COMPLETED => match StepView::read(fields) {
                Some(step) => Ok((step.time, Self::StepCompleted(step.to_owned()))),
                None => read("step completed", fields, Self::StepCompleted),
            },
            tag::ATTEMPT_FAILED => read("attempt failed", fields, Self::AttemptFailed),
            tag::STEP_INTENT => read("step intent", fields, Self::StepIntent),
            tag::TIMER_SET => read("timer set", fields, Self::TimerSet),
            tag::TIMER_FIRED => read("timer fired", fields, Self::TimerFired),
            tag::SIGNAL_RECEIVED => read("signal received", fields, Self::SignalReceived),
            tag::CHILD_STARTED => read("child started", fields, Self::ChildStarted),
            tag::CHILD_FINISHED => read("child finished", fields, Self::ChildFinished),
            tag::CANCEL_REQUESTED => read("cancel requested", fields, Self::CancelRequested),
            tag::RUN_RECOVERED => read("run recovered", fields, Self::RunRecovered),
            tag::STALE_OUTCOME_DISCARDED => read(
                "stale outcome discarded",
                fields,
                Self::StaleOutcomeDiscarded,
            ),
            tag::CHECKPOINT => read("checkpoint", fields, Self::Checkpoint),
            tag::UNDO_CARRIED => read("undo carried", fields, Self::UndoCarried),
            tag::RUN_CLOSING => read("run closing", fields, Self::RunClosing),
            tag::RUN_REOPENED => read("run reopened", fields, Self::RunReopened),
            tag::PATCH_MARKER => read("patch marker", fields, Self::PatchMarker),
            tag::RUN_FORKED => read("run forked", fields, Self::RunForked),
            tag::MESSAGE_PUSHED => read("message pushed", fields, Self::MessagePushed),
            tag::RUN_COMPLETED => read("run completed", fields, Self::RunCompleted),
            tag::RUN_FAILED => read("run failed", fields, Self::RunFailed),
            tag::RUN_ABORTED => read("run aborted", fields, Self::RunAborted),
            tag::RUN_CANCELLED => read("run cancelled", fields, Self::RunCancelled),
            tag::RUN_CONTINUED => read("run continued", fields, Self::RunContinued),
            tag::RUN_SUCCEEDS => read("run succeeds", fields, Self::RunSucceeds),
            tag => Err(newer(tag)),
        }
    }
}

/// The fields of the record that journals consist of; `None` if a body is another one.
pub(super) fn fields_of_step(body: &[u8]) -> Option<&[u8]> {
    let (&tag, fields) = body.split_first()?;
    (tag == tag::STEP_COMPLETED).then_some(fields)
}

/// How a step ended, as most do: with a payload.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    Ok,
    Err,
    Broken,
}

impl Ended {
    pub(super) fn with(self, payload: Bytes) -> Outcome {
        match self {
            Self::Ok => Outcome::Ok(payload),
            Self::Err => Outcome::Err(payload),
            Self::Broken => Outcome::Broken(payload),
        }
    }
}

/// The record that journals consist of, where it lies.
pub(super) struct StepView<'a> {
    pub(super) time: Timestamp,
    pub(super) step: StepId,
    pub(super) name: &'a str,
    /// How many bytes are behind the name.
    pub(super) behind_name: usize,
    scope: &'a str,
    source: &'a str,
    pub(super) input_digest: InputDigest,
    input: Option<&'a [u8]>,
    attempts: u32,
    called_at: Timestamp,
    attempt_began_at: Timestamp,
    /// How it ended, and its payload, which is the last field.
    pub(super) outcome: (Ended, &'a [u8]),
}

impl<'a> StepView<'a> {
    /// Reads it, and only in the form that is written: all else is left to bincode, and so is the word on
    /// what is wrong.
    pub(super) fn read(fields: &'a [u8]) -> Option<Self> {
        let mut fields = FieldsReader(fields);
        let time = Timestamp::from_micros(fields.number()?);
        let step = StepId::from_bytes(fields.array()?);
        let name = fields.text()?;
        let behind_name = fields.0.len();
        let view = Self {
            time,
            step,
            name,
            behind_name,
            scope: fields.text()?,
            source: fields.text()?,
            input_digest: InputDigest {
                strict: Digest::from_bytes(fields.array()?),
                unordered: match fields.option()? {
                    true => Some(Digest::from_bytes(fields.array()?)),
                    false => None,
                },
            },
            input: match fields.option()? {
                true => Some(fields.bytes()?),
                false => None,
            },
            attempts: u32::try_from(fields.number()?).ok()?,
            called_at: Timestamp::from_micros(fields.number()?),
            attempt_began_at: Timestamp::from_micros(fields.number()?),
            outcome: {
                let ended = match fields.number()? {
                    0 => Ended::Ok,
                    1 => Ended::Err,
                    2 => Ended::Broken,
                    _ => return None,
                };
                (ended, fields.bytes()?)
            },
        };
        fields.whole(view)
    }

    /// The record by itself.
    pub(super) fn to_owned(&self) -> StepCompleted {
        let (ended, payload) = self.outcome;
        StepCompleted {
            step: self.step,
            name: self.name.into(),
            scope: self.scope.into(),
            source: self.source.into(),
            input_digest: self.input_digest,
            input: self.input.map(Bytes::copy_from_slice),
            attempts: self.attempts,
            called_at: self.called_at,
            attempt_began_at: self.attempt_began_at,
            outcome: ended.with(Bytes::copy_from_slice(payload)),
        }
    }
}

fn newer(tag: u8) -> RecordError {
    let name = tag::RESERVED
        .iter()
        .find(|(reserved, _)| *reserved == tag)
        .map_or("unknown", |(_, name)| name);
    RecordError::Newer { tag, name }
}

fn read_letter<T: serde::de::DeserializeOwned>(
    kind: &'static str,
    fields: &[u8],
    make: impl FnOnce(T) -> Event,
) -> Result<Event, RecordError> {
    codec::decode(fields)
        .map(make)
        .map_err(|message| RecordError::Malformed { kind, message })
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
    use crate::ids::RunId;
    use crate::journal::CarriedChild;

    #[test]
    fn a_record_of_a_newer_release_is_named_not_misread() {
        let error = Event::decode(&[14, 0, 0]).expect_err("reserved");
        assert!(error.to_string().contains("step abandoned"), "{error}");
        let error = Event::decode(&[200]).expect_err("unknown");
        assert!(error.to_string().contains("200"), "{error}");
        assert_eq!(Event::decode(&[]), Err(RecordError::Empty));
    }

    #[test]
    fn the_fields_of_a_run_that_succeeds_another_are_frozen() {
        let event = Event::RunSucceeds(RunSucceeds {
            first: RunId::from_bytes([1; 16]),
            ordinal: 300,
            previous: RunId::from_bytes([2; 16]),
            signals: vec![("go".into(), vec![Bytes::from_static(b"\x01\x02")])],
            children: vec![CarriedChild {
                call: StepId::from_bytes([3; 16]),
                child: RunId::from_bytes([4; 16]),
                detached: true,
            }],
            tokens: vec!["t".into()],
        });
        let (tag, fields) = event.encode_fields();
        let hex: String = fields.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = |byte: &str| byte.repeat(16);
        let wanted = [
            &id("01"),
            "fb2c01",
            &id("02"),
            "0102676f01020102",
            "01",
            &id("03"),
            &id("04"),
            "01",
            "010174",
        ];
        assert_eq!((tag, hex), (25, wanted.concat()));
        let event = Event::RunContinued(RunContinued {
            first: RunId::from_bytes([1; 16]),
            next: RunId::from_bytes([2; 16]),
            ordinal: 3,
        });
        let (tag, fields) = event.encode_fields();
        let hex: String = fields.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((tag, hex), (24, format!("{}{}03", id("01"), id("02"))));
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
