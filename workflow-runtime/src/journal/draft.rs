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
use super::record::{Event, Outcome, STEP_COMPLETED};
use crate::clock::Timestamp;
use crate::codec;
use crate::digest::InputDigest;
use crate::ids::StepId;
use crate::store::EndKind;

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
}

/// What a record does beyond being there.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Nothing: it is an annotation.
    Nothing,
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
            Event::SignalReceived(_) | Event::ChildFinished(_) | Event::CancelRequested(_) => {
                Effect::Receives(Box::new(event.clone()))
            }
            Event::RunStarted(_)
            | Event::AttemptFailed(_)
            | Event::TimerSet(_)
            | Event::ChildStarted(_)
            | Event::RunClosing(_)
            | Event::RunRecovered(_) => Effect::Nothing,
        };
        let (tag, fields) = event.encode_fields();
        Self {
            tag,
            fields,
            effect,
        }
    }

    /// Drafts the record of a step's outcome.
    pub(crate) fn step_completed(step: &StepCompletedParts<'_>) -> Self {
        Self {
            tag: STEP_COMPLETED,
            fields: codec::encode(step),
            effect: Effect::Delivers(step.step),
        }
    }

    /// Says whether the run's own code made the record: it did not come by letter.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self.effect, Effect::Receives(_))
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
    use crate::journal::{Reader, StepCompleted};

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
}
