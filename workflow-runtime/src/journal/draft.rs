//! A record on its way into a journal: encoded, but for its time and its chain value.
//!
//! Owns the way from what a call has at hand to a frame, without a copy of names and payloads in
//! between: this is on the path of every step. What a record means is in `record`.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::Location;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::chain::Chain;
use super::kinds::Outcome;
use super::record::{Event, STEP_COMPLETED, STEP_INTENT};
use crate::clock::Timestamp;
use crate::codec;
use crate::digest::InputDigest;
use crate::ids::StepId;
use crate::store::{Durability, EndKind, NoteChange};

/// What a step's record is made of; the same fields in the same order as
/// [`StepCompleted`](super::StepCompleted).
#[derive(Serialize)]
pub(crate) struct StepCompletedParts<'a> {
    pub(crate) step: StepId,
    pub(crate) name: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) source: Source<'a>,
    pub(crate) input_digest: InputDigest,
    pub(crate) input: Option<&'a Bytes>,
    pub(crate) attempts: u32,
    pub(crate) called_at: Timestamp,
    pub(crate) attempt_began_at: Timestamp,
    pub(crate) outcome: &'a Outcome,
}

/// What a step's intent is made of; the same fields in the same order as
/// [`StepIntent`](super::StepIntent).
#[derive(Serialize)]
pub(crate) struct StepIntentParts<'a> {
    pub(crate) step: StepId,
    pub(crate) name: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) source: Source<'a>,
    pub(crate) input_digest: InputDigest,
    pub(crate) input: Option<&'a Bytes>,
    pub(crate) attempt: u32,
}

/// A place in the source, written as `file:line`.
pub(crate) struct Source<'a>(pub(crate) &'a Location<'a>);

impl Serialize for Source<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        thread_local! {
            static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
        }
        TEXT.with_borrow_mut(|text| {
            text.clear();
            let _ = write!(text, "{}:{}", self.0.file(), self.0.line());
            serializer.serialize_str(text)
        })
    }
}

/// A record that wants its time and its place in the chain.
pub(crate) struct Draft {
    tag: u8,
    fields: Vec<u8>,
    effect: Effect,
    /// What it must survive, if that is not what the engine says.
    durability: Option<Durability>,
    /// What is written in the same append.
    companion: Option<Box<dyn Companion>>,
}

/// What is written with a record, and has to know what becomes of it.
pub(crate) trait Companion: Send {
    /// The notes that change with the record.
    fn notes(&self) -> Vec<NoteChange>;

    /// About how many bytes they take.
    fn size(&self) -> usize;

    /// Is told whether record and notes are durable. Dropped instead, they were never handed to the store.
    fn settle(self: Box<Self>, durable: bool);
}

/// What a record does beyond being there.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Nothing: it is an annotation.
    Nothing,
    /// Once it is durable, this call may start its body.
    Announces(StepId),
    /// It is delivered to this call.
    Delivers(StepId),
    /// It came by letter, and is delivered to the run.
    Receives(Box<Event>),
    /// It ends the run.
    Ends(EndKind),
}

impl Draft {
    /// Drafts any record.
    pub(crate) fn of(event: &Event) -> Self {
        let effect = match event {
            Event::StepCompleted(step) => Effect::Delivers(step.step),
            Event::TimerFired(fired) => Effect::Delivers(fired.timer),
            Event::RunCompleted(_) => Effect::Ends(EndKind::Completed),
            Event::RunFailed(_) => Effect::Ends(EndKind::Failed),
            Event::RunAborted(_) => Effect::Ends(EndKind::Aborted),
            Event::RunCancelled(_) => Effect::Ends(EndKind::Cancelled),
            Event::RunContinued(_) => Effect::Ends(EndKind::Continued),
            Event::SignalReceived(_) | Event::ChildFinished(_) | Event::CancelRequested(_) => {
                Effect::Receives(Box::new(event.clone()))
            }
            Event::StepIntent(intent) => Effect::Announces(intent.step),
            Event::RunStarted(_)
            | Event::AttemptFailed(_)
            | Event::TimerSet(_)
            | Event::ChildStarted(_)
            | Event::RunClosing(_)
            | Event::Checkpoint(_)
            | Event::UndoCarried(_)
            | Event::StaleOutcomeDiscarded(_)
            | Event::RunReopened(_)
            | Event::PatchMarker(_)
            | Event::RunForked(_)
            | Event::RunSucceeds(_)
            | Event::RunRecovered(_) => Effect::Nothing,
        };
        let (tag, fields) = event.encode_fields();
        Self {
            tag,
            fields,
            effect,
            durability: None,
            companion: None,
        }
    }

    /// Drafts the record of a step's outcome.
    pub(crate) fn step_completed(step: &StepCompletedParts<'_>) -> Self {
        Self {
            tag: STEP_COMPLETED,
            fields: codec::encode(step),
            effect: Effect::Delivers(step.step),
            durability: None,
            companion: None,
        }
    }

    /// Drafts the record that a step is about to run.
    pub(crate) fn step_intent(intent: &StepIntentParts<'_>) -> Self {
        Self {
            tag: STEP_INTENT,
            fields: codec::encode(intent),
            effect: Effect::Announces(intent.step),
            durability: None,
            companion: None,
        }
    }

    /// Says what the record must survive; `None` leaves that to the engine.
    pub(crate) fn durable(mut self, durability: Option<Durability>) -> Self {
        self.durability = durability;
        self
    }

    /// Has something written in the same append.
    pub(crate) fn with(mut self, companion: Option<Box<dyn Companion>>) -> Self {
        self.companion = companion;
        self
    }

    /// Takes what is written in the same append.
    pub(crate) fn take_companion(&mut self) -> Option<Box<dyn Companion>> {
        self.companion.take()
    }

    pub(crate) fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Says whether the record is the intent of a call.
    pub(crate) fn announces(&self, call: StepId) -> bool {
        matches!(self.effect, Effect::Announces(announced) if announced == call)
    }

    /// Says whether the run's own code made the record: it did not come by letter.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self.effect, Effect::Receives(_))
    }

    /// About how many bytes the record takes.
    pub(crate) fn size(&self) -> usize {
        self.fields.len() + self.companion.as_ref().map_or(0, |with| with.size())
    }

    /// Says whether the record may be written before what is handed in with it: one that came by letter is
    /// written with the count of letters taken, and an end with all that it changes.
    pub(crate) fn may_go_ahead(&self) -> bool {
        !matches!(self.effect, Effect::Receives(_) | Effect::Ends(_))
    }

    /// What the record does once it is durable.
    pub(crate) fn into_effect(self) -> Effect {
        self.effect
    }

    /// Gives the record its time and its place.
    pub(crate) fn seal(&self, time: Timestamp, chain: &mut Chain) -> Bytes {
        chain.seal(
            |body| {
                body.push(self.tag);
                codec::encode_into(&time, body);
                body.extend_from_slice(&self.fields);
            },
            self.fields.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::digest;
    use crate::ids::RunId;
    use crate::journal::{Reader, StepCompleted, StepIntent};

    #[test]
    fn a_step_drafted_from_parts_reads_as_the_record() {
        let site = Location::caller();
        let step = StepCompleted {
            step: StepId::from_bytes([5; 16]),
            name: "charge".into(),
            scope: "a0/h:ship#1".into(),
            source: format!("{}:{}", site.file(), site.line()).into(),
            input_digest: digest(&vec![1, 2]).expect("a digest"),
            input: Some(Bytes::from_static(b"input")),
            attempts: 3,
            called_at: Timestamp::from_micros(1_700_000_000_000_000),
            attempt_began_at: Timestamp::from_micros(1_700_000_000_000_300),
            outcome: Outcome::Err(Bytes::from_static(b"no")),
        };
        let parts = StepCompletedParts {
            step: step.step,
            name: &step.name,
            scope: &step.scope,
            source: Source(site),
            input_digest: step.input_digest,
            input: step.input.as_ref(),
            attempts: step.attempts,
            called_at: step.called_at,
            attempt_began_at: step.attempt_began_at,
            outcome: &step.outcome,
        };
        let run = RunId::from_bytes([1; 16]);
        let time = Timestamp::from_micros(1_700_000_000_000_900);
        let drafted = Draft::step_completed(&parts).seal(time, &mut Chain::new(run, None));
        let event = Event::StepCompleted(step);
        let whole = Draft::of(&event).seal(time, &mut Chain::new(run, None));
        assert_eq!(drafted, whole);
        let frames = [drafted];
        let read = Reader::new(run, None, &frames).next();
        let record = read.expect("a record").expect("it reads");
        assert_eq!((record.time, record.event), (time, event));
    }

    #[test]
    fn an_intent_drafted_from_parts_reads_as_the_record() {
        let site = Location::caller();
        let intent = StepIntent {
            step: StepId::from_bytes([5; 16]),
            name: "charge".into(),
            scope: "a0".into(),
            source: format!("{}:{}", site.file(), site.line()).into(),
            input_digest: digest(&vec![1, 2]).expect("a digest"),
            input: Some(Bytes::from_static(b"input")),
            attempt: 1,
        };
        let parts = StepIntentParts {
            step: intent.step,
            name: &intent.name,
            scope: &intent.scope,
            source: Source(site),
            input_digest: intent.input_digest,
            input: intent.input.as_ref(),
            attempt: intent.attempt,
        };
        let run = RunId::from_bytes([1; 16]);
        let time = Timestamp::from_micros(1_700_000_000_000_900);
        let (drafted, event) = (
            Draft::step_intent(&parts),
            Event::StepIntent(intent.clone()),
        );
        assert!(drafted.announces(parts.step) && Draft::of(&event).announces(parts.step));
        let frames = [drafted.seal(time, &mut Chain::new(run, None))];
        let read = Reader::new(run, None, &frames).next();
        assert_eq!(read.expect("a record").expect("it reads").event, event);
    }
}
