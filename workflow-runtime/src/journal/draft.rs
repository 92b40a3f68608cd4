//! A record on its way into a journal: encoded, but for its time and its chain value.
//!
//! Owns the way from what a call has at hand to a frame, without a copy of names and payloads in
//! between: this is on the path of every step. What a record means is in `record`.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::chain::{Chain, FORMAT_VERSION, LINK_LEN};
use super::kinds::Outcome;
use super::record::{Event, STEP_COMPLETED, STEP_INTENT};
use super::room;
use crate::clock::Timestamp;
use crate::codec::{self, Fields};
use crate::digest::InputDigest;
use crate::engine::outbox::Pushed;
use crate::ids::StepId;
use crate::store::{Durability, EndKind, NoteChange};

/// What a step's record is made of; the same fields in the same order as
/// [`StepCompleted`](super::StepCompleted).
pub(crate) struct StepCompletedParts<'a> {
    pub(crate) step: StepId,
    pub(crate) name: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) source: Source,
    pub(crate) input_digest: InputDigest,
    pub(crate) input: Option<&'a [u8]>,
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
    pub(crate) source: Source,
    pub(crate) input_digest: InputDigest,
    pub(crate) input: Option<&'a Bytes>,
    pub(crate) attempt: u32,
}

/// A place in the source, written as `file:line`.
pub(crate) struct Source(pub(crate) &'static Location<'static>);

impl Source {
    fn with_text<T>(&self, read: impl FnOnce(&str) -> T) -> T {
        thread_local! {
            /// The place that was written last, and its text: a loop is at one place for long.
            static LAST: RefCell<(Option<&'static Location<'static>>, String)> =
                const { RefCell::new((None, String::new())) };
        }
        LAST.with_borrow_mut(|(place, text)| {
            if !place.is_some_and(|place| std::ptr::eq(place, self.0)) {
                *place = Some(self.0);
                text.clear();
                text.push_str(self.0.file());
                text.push(':');
                push_number(text, self.0.line());
            }
            read(text)
        })
    }
}

/// Writes a number as `Display` does, without its machinery: every step has a line.
fn push_number(text: &mut String, number: u32) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    let digit = char::from_digit(number % 10, 10);
    text.push(digit.expect("below ten"));
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

/// Bytes of a time of our days: a marker and eight bytes.
const TIME_LEN: usize = 9;

/// Bytes before a record's fields in a frame: format version, tag, time.
const HEAD_LEN: usize = 2 + TIME_LEN;

/// The most room a thread keeps for the next record.
const KEPT_ROOM: usize = 4 * 1024;

/// What most records need: a draft whose thread has no room for it begins with as much.
const USUAL_LEN: usize = 256;

/// A record that wants its time and its place in the chain.
pub(crate) struct Draft {
    /// The frame that it will be but for its link, with room for the time. The thread gets it back when it is sealed.
    frame: Vec<u8>,
    effect: Effect,
    /// What it must survive, if that is not what the engine says.
    durability: Option<Durability>,
    /// What is written in the same append.
    companion: Option<Box<dyn Companion>>,
    /// Messages that are written with it, whatever else goes in portions.
    messages: Option<Box<[Pushed]>>,
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
            | Event::MessagePushed(_)
            | Event::RunForked(_)
            | Event::RunSucceeds(_)
            | Event::RunRecovered(_) => Effect::Nothing,
        };
        let (tag, fields) = event.encode_fields();
        Self {
            frame: frame(tag, |out| out.extend_from_slice(&fields)),
            effect,
            durability: None,
            companion: None,
            messages: None,
        }
    }

    /// Drafts the record of a step's outcome.
    pub(crate) fn step_completed(step: &StepCompletedParts<'_>) -> Self {
        Self {
            frame: frame(STEP_COMPLETED, |out| step.encode_into(out)),
            effect: Effect::Delivers(step.step),
            durability: None,
            companion: None,
            messages: None,
        }
    }

    /// Drafts the record that a step is about to run.
    pub(crate) fn step_intent(intent: &StepIntentParts<'_>) -> Self {
        Self {
            frame: frame(STEP_INTENT, |out| codec::encode_into(intent, out)),
            effect: Effect::Announces(intent.step),
            durability: None,
            companion: None,
            messages: None,
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

    /// Has messages written with the record.
    pub(crate) fn with_messages(mut self, messages: Vec<Pushed>) -> Self {
        self.messages = (!messages.is_empty()).then(|| messages.into());
        self
    }

    pub(crate) fn take_messages(&mut self) -> Option<Box<[Pushed]>> {
        self.messages.take()
    }

    pub(crate) fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// Says whether the record is the intent of a call.
    pub(crate) fn announces(&self, call: StepId) -> bool {
        matches!(self.effect, Effect::Announces(announced) if announced == call)
    }

    /// Says whether the record is a call's outcome, with nothing beside it.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.effect, Effect::Delivers(_))
            && self.companion.is_none()
            && self.messages.is_none()
    }

    /// Says whether the run's own code made the record: it did not come by letter.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self.effect, Effect::Receives(_))
    }

    /// About how many bytes the record takes.
    pub(crate) fn size(&self) -> usize {
        let messages = self.messages.iter().flatten().map(Pushed::bytes);
        let companion = self.companion.as_ref().map_or(0, |with| with.size());
        self.frame.len() - HEAD_LEN + companion + messages.sum::<usize>()
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

    /// Gives the record its time and its place. Once: the bytes are the frame's then.
    pub(crate) fn seal(&mut self, time: Timestamp, chain: &mut Chain) -> Bytes {
        let frame = self.timed(time);
        let sealed = chain.seal_in_place(exactly(&frame));
        keep_room(frame);
        sealed
    }

    /// The same, with the frame where its thread has room for it.
    pub(crate) fn seal_in_room(&mut self, time: Timestamp, chain: &mut Chain) -> Bytes {
        let frame = self.timed(time);
        let sealed = match room::takes(chain.next_seq(), frame.len() + LINK_LEN) {
            true => chain.seal_in_room(&frame),
            false => chain.seal_in_place(exactly(&frame)),
        };
        keep_room(frame);
        sealed
    }

    fn timed(&mut self, time: Timestamp) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.frame);
        match codec::long_number(time.as_micros()) {
            Some(encoded) => frame[2..HEAD_LEN].copy_from_slice(&encoded),
            None => drop(frame.splice(2..HEAD_LEN, codec::encode(&time))), // a clock that begins in 1970
        }
        frame
    }
}

thread_local! {
    /// Room for one record: how long it is, is known when it is encoded.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encodes a record as a frame with room for its time, in the thread's room if that is free.
fn frame(tag: u8, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = ROOM.take();
    frame.clear();
    if frame.capacity() == 0 {
        frame.reserve(USUAL_LEN);
    }
    frame.extend_from_slice(&[FORMAT_VERSION, tag]);
    frame.resize(HEAD_LEN, 0);
    encode(&mut frame);
    frame
}

/// Gives the thread a sealed draft's room for its next one.
fn keep_room(frame: Vec<u8>) {
    if frame.capacity() <= KEPT_ROOM {
        ROOM.set(frame);
    }
}

/// A copy with as much more room as a link takes, exactly: bytes with room left over would be given a count of their own.
fn exactly(frame: &[u8]) -> Vec<u8> {
    let mut exact = Vec::with_capacity(frame.len() + LINK_LEN);
    exact.extend_from_slice(frame);
    exact
}

impl StepCompletedParts<'_> {
    /// Encodes the fields as a record of them would be.
    fn encode_into(&self, out: &mut Vec<u8>) {
        let mut fields = Fields(out);
        fields.array(self.step.as_bytes());
        fields.bytes(self.name.as_bytes());
        fields.bytes(self.scope.as_bytes());
        self.source.with_text(|text| fields.bytes(text.as_bytes()));
        fields.array(self.input_digest.strict.as_bytes());
        fields.option(self.input_digest.unordered.is_some());
        if let Some(unordered) = &self.input_digest.unordered {
            fields.array(unordered.as_bytes());
        }
        fields.option(self.input.is_some());
        if let Some(input) = self.input {
            fields.bytes(input);
        }
        fields.number(u64::from(self.attempts));
        fields.number(self.called_at.as_micros());
        fields.number(self.attempt_began_at.as_micros());
        let payload = match self.outcome {
            Outcome::Ok(payload) => (0, payload),
            Outcome::Err(payload) => (1, payload),
            Outcome::Broken(payload) => (2, payload),
            Outcome::AlreadyDone(payload) => (4, payload),
            Outcome::Interrupted(_) => return codec::encode_into(self.outcome, out),
        };
        fields.number(payload.0);
        fields.bytes(payload.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::digest;
    use crate::error::Interrupted;
    use crate::ids::RunId;
    use crate::journal::record::RecordError;
    use crate::journal::{CancelRequested, PatchMarker, RunAborted};
    use crate::journal::{Reader, StepCompleted, StepIntent};

    fn steps() -> Vec<StepCompleted> {
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
        let mut plain = step.clone();
        plain.scope = "".into();
        plain.input_digest = digest(&1).expect("a digest");
        plain.input = None;
        plain.called_at = Timestamp::from_micros(7);
        plain.outcome = Outcome::Ok(Bytes::new());
        let mut long = step.clone();
        long.name = "n".repeat(251).into();
        long.attempts = u32::MAX;
        long.input = Some(vec![1; 40_000].into());
        long.outcome = Outcome::Broken(vec![2; 70_000].into());
        let mut interrupted = step.clone();
        let since = Timestamp::from_micros(1_700_000_000_000_000);
        interrupted.outcome = Outcome::Interrupted(Interrupted::since(2, since));
        vec![step, plain, long, interrupted]
    }

    #[test]
    fn a_step_drafted_from_parts_reads_as_the_record() {
        let site = Location::caller();
        // A time of our days, and one that takes fewer bytes.
        for micros in [1_700_000_000_000_900, 900] {
            let time = Timestamp::from_micros(micros);
            for mut step in steps() {
                step.source = format!("{}:{}", site.file(), site.line()).into();
                let parts = StepCompletedParts {
                    step: step.step,
                    name: &step.name,
                    scope: &step.scope,
                    source: Source(site),
                    input_digest: step.input_digest,
                    input: step.input.as_deref(),
                    attempts: step.attempts,
                    called_at: step.called_at,
                    attempt_began_at: step.attempt_began_at,
                    outcome: &step.outcome,
                };
                let run = RunId::from_bytes([1; 16]);
                let drafted = Draft::step_completed(&parts).seal(time, &mut Chain::new(run, None));
                let event = Event::StepCompleted(step);
                let whole = Draft::of(&event).seal(time, &mut Chain::new(run, None));
                assert_eq!(drafted, whole);
                let frames = [drafted];
                let read = Reader::new(run, None, &frames).next();
                let record = read.expect("a record").expect("it reads");
                assert_eq!((record.time, record.event), (time, event));
                reads_as_bincode_says(&frames[0][2..frames[0].len() - LINK_LEN]);
            }
        }
    }

    /// Whatever the bytes are, reading them quickly gives what bincode gives, or the same complaint.
    fn reads_as_bincode_says(fields: &[u8]) {
        let check = |fields: &[u8]| {
            let body = [&[STEP_COMPLETED], fields].concat();
            let expected = codec::decode::<(Timestamp, StepCompleted)>(fields);
            let expected = expected.map(|(time, step)| (time, Event::StepCompleted(step)));
            let found = Event::decode(&body).map_err(|error| match error {
                RecordError::Malformed { message, .. } => message,
                other => other.to_string(),
            });
            assert_eq!(found, expected);
        };
        check(fields);
        check(&[fields, &[0]].concat());
        for at in (0..fields.len()).take(300) {
            check(&fields[..at]);
            for value in [0, 1, 2, 3, 4, 250, 251, 252, 253, 254, 255] {
                let mut damaged = fields.to_vec();
                damaged[at] = value;
                check(&damaged);
            }
        }
    }

    #[test]
    fn a_frame_is_the_same_wherever_it_lies() {
        let run = RunId::from_bytes([1; 16]);
        let (mut alone, mut roomy) = (Chain::new(run, None), Chain::new(run, None));
        for (n, step) in steps().into_iter().cycle().take(40).enumerate() {
            let time = Timestamp::from_micros(1_700_000_000_000_000 + n as u64);
            let event = Event::StepCompleted(step);
            let frame = Draft::of(&event).seal_in_room(time, &mut roomy);
            assert_eq!(frame, Draft::of(&event).seal(time, &mut alone));
        }
    }

    #[test]
    fn every_place_has_its_own_text() {
        let text = |place| Source(place).with_text(str::to_owned);
        let here = place_of_the_caller();
        let there = place_of_the_caller();
        for place in [here, here, there, here, there, there] {
            assert_eq!(text(place), format!("{}:{}", place.file(), place.line()));
        }
        assert_ne!(text(here), text(there));
    }

    #[track_caller]
    fn place_of_the_caller() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn lines_are_written_as_numbers() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u32::MAX] {
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
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
        let (mut drafted, event) = (
            Draft::step_intent(&parts),
            Event::StepIntent(intent.clone()),
        );
        assert!(drafted.announces(parts.step) && Draft::of(&event).announces(parts.step));
        let others = steps().into_iter().map(Event::StepCompleted);
        let announced = |event| Draft::of(&event).announces(parts.step);
        assert!(
            !others.into_iter().any(announced),
            "an outcome is no intent"
        );
        assert!(!drafted.announces(StepId::from_bytes([6; 16])));
        let frames = [drafted.seal(time, &mut Chain::new(run, None))];
        let read = Reader::new(run, None, &frames).next();
        assert_eq!(read.expect("a record").expect("it reads").event, event);
    }

    #[test]
    fn what_came_by_letter_and_what_ends_a_run_waits_for_what_it_is_written_with() {
        let cancel = Event::CancelRequested(CancelRequested {
            reason: "r".into(),
            sent_at: Timestamp::default(),
        });
        let end = Event::RunAborted(RunAborted {
            reason: "r".into(),
            kept: false,
        });
        let patch = Event::PatchMarker(PatchMarker { name: "p".into() });
        let said = |event| {
            let draft = Draft::of(event);
            (draft.may_go_ahead(), draft.is_own())
        };
        assert_eq!(said(&cancel), (false, false));
        assert_eq!(said(&end), (false, true));
        assert_eq!(said(&patch), (true, true));
        let outcome = Event::StepCompleted(steps().remove(0));
        assert_eq!(said(&outcome), (true, true));
    }

    #[test]
    fn the_size_of_a_record_counts_all_that_is_written_with_it() {
        struct Notes;
        impl Companion for Notes {
            fn notes(&self) -> Vec<NoteChange> {
                Vec::new()
            }
            fn size(&self) -> usize {
                3_000
            }
            fn settle(self: Box<Self>, _: bool) {}
        }
        let patch = |bytes: usize| {
            let name = "p".repeat(bytes).into();
            Draft::of(&Event::PatchMarker(PatchMarker { name }))
        };
        assert_eq!(patch(200).size(), 201, "a length and a text");
        let message = |number, bytes| {
            let step = StepId::from_bytes([1; 16]);
            Pushed::new(&"n".into(), "o", step, number, vec![0; bytes].into())
        };
        let whole = patch(200)
            .with(Some(Box::new(Notes)))
            .with_messages(vec![message(0, 70_000), message(1, 500_000)]);
        assert_eq!(whole.size(), 573_201);
    }
}
