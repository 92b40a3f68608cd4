//! A record as replay takes it: a step's outcome stays in its frame.
//!
//! Owns what is read of a step's record where only its comparison and its delivery are wanted, which is all that
//! nearly every replayed step comes to: nothing is allocated for it and no payload is copied. The whole
//! record is read out of the frame again where somebody asks for it. It never checks a chain.

use bytes::Bytes;

use super::body_of;
use super::chain::LINK_LEN;
use super::kinds::{Outcome, StepCompleted};
use super::record::{Ended, Event, Record, RecordError, StepView, fields_of_step};
use crate::clock::Timestamp;
use crate::digest::InputDigest;
use crate::ids::StepId;

/// One record of a journal, for replay.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its place in the journal, from 0.
    pub(crate) seq: u64,
    /// When it was written.
    pub(crate) time: Timestamp,
    /// What it says.
    pub(crate) says: Says,
}

/// What a record says, for replay.
#[derive(Debug)]
pub(crate) enum Says {
    /// A step has its outcome, and that is in its frame.
    Step(FramedStep),
    /// Anything else, or a step's outcome that was not read from a frame.
    Event(Event),
}

impl From<Record> for Entry {
    fn from(Record { seq, time, event }: Record) -> Self {
        let says = Says::Event(event);
        Self { seq, time, says }
    }
}

/// The place of some bytes in a frame.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: u32,
    until: u32,
}

impl Span {
    /// The place of so many bytes that end there; `None` for a frame that is too long to be counted in so few bits.
    fn until(until: usize, len: usize) -> Option<Self> {
        let from = u32::try_from(until - len).ok()?;
        let until = u32::try_from(until).ok()?;
        Some(Self { from, until })
    }

    fn range(self) -> std::ops::Range<usize> {
        self.from as usize..self.until as usize
    }
}

/// A step's outcome in its frame.
#[derive(Debug)]
pub(crate) struct FramedStep {
    step: StepId,
    input_digest: InputDigest,
    frame: Bytes,
    name: Span,
    /// How it ended, and its payload.
    outcome: (Ended, Span),
}

impl FramedStep {
    /// Reads it from a body. `None` if it says something else, or in another form than that which is written.
    fn of(body: &Body<'_>) -> Option<(Timestamp, Self)> {
        let fields = fields_of_step(body.bytes)?;
        let view = StepView::read(fields)?;
        let end = body.frame.len() - LINK_LEN;
        let (ended, payload) = view.outcome;
        let step = Self {
            step: view.step,
            input_digest: view.input_digest,
            frame: body.frame.clone(),
            name: Span::until(end - view.behind_name, view.name.len())?,
            outcome: (ended, Span::until(end, payload.len())?), // it is the last field
        };
        Some((view.time, step))
    }

    /// The step.
    pub(crate) fn step(&self) -> StepId {
        self.step
    }

    /// The digest of its input.
    pub(crate) fn input_digest(&self) -> InputDigest {
        self.input_digest
    }

    /// Says whether this is the step's name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.frame[self.name.range()] == *name.as_bytes()
    }

    /// Reads the whole record, with payloads of its own.
    pub(crate) fn whole(&self) -> StepCompleted {
        let fields = body_of(&self.frame).and_then(fields_of_step);
        let view = fields.and_then(StepView::read);
        view.expect("it was read in the same way before").to_owned()
    }

    /// How it ended, with the payload where it is: for whoever reads it and is done with it, because it keeps
    /// the frame in memory, and what the frame lies in.
    pub(crate) fn outcome(&self) -> Outcome {
        let (ended, payload) = self.outcome;
        ended.with(self.frame.slice(payload.range()))
    }
}

/// What a reader makes of a body.
pub(super) trait FromBody: Sized {
    /// Reads a body.
    fn from_body(seq: u64, body: Body<'_>) -> Result<Self, RecordError>;

    /// Says whether it is a checkpoint.
    fn is_checkpoint(&self) -> bool;

    /// Its place in the journal.
    fn seq(&self) -> u64;
}

/// A body that was checked, in its frame.
pub(super) struct Body<'a> {
    pub(super) frame: &'a Bytes,
    pub(super) bytes: &'a [u8],
}

impl FromBody for Record {
    fn from_body(seq: u64, body: Body<'_>) -> Result<Self, RecordError> {
        let (time, event) = Event::decode(body.bytes)?;
        Ok(Self { seq, time, event })
    }

    fn is_checkpoint(&self) -> bool {
        matches!(self.event, Event::Checkpoint(_))
    }

    fn seq(&self) -> u64 {
        self.seq
    }
}

impl FromBody for Entry {
    fn from_body(seq: u64, body: Body<'_>) -> Result<Self, RecordError> {
        match FramedStep::of(&body) {
            Some((time, step)) => {
                let says = Says::Step(step);
                Ok(Self { seq, time, says })
            }
            None => Record::from_body(seq, body).map(Self::from),
        }
    }

    fn is_checkpoint(&self) -> bool {
        matches!(self.says, Says::Event(Event::Checkpoint(_)))
    }

    fn seq(&self) -> u64 {
        self.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::digest;
    use crate::error::Interrupted;
    use crate::ids::RunId;
    use crate::journal::{Chain, Checkpoint, Draft, Reader};
    use crate::store::KeptJournal;

    fn steps() -> Vec<StepCompleted> {
        let step = StepCompleted {
            step: StepId::from_bytes([5; 16]),
            name: "charge".into(),
            scope: "a0/h:ship#1".into(),
            source: "src/main.rs:7".into(),
            input_digest: digest(&vec![1, 2]).expect("a digest"),
            input: Some(Bytes::from_static(b"input")),
            attempts: 3,
            called_at: Timestamp::from_micros(1_700_000_000_000_000),
            attempt_began_at: Timestamp::from_micros(1_700_000_000_000_300),
            outcome: Outcome::Err(Bytes::from_static(b"no")),
        };
        let with = |outcome| StepCompleted {
            outcome,
            ..step.clone()
        };
        let since = Timestamp::from_micros(1_700_000_000_000_000);
        let plain = StepCompleted {
            name: "".into(),
            scope: "".into(),
            input: None,
            input_digest: digest(&1).expect("a digest"),
            ..with(Outcome::Ok(Bytes::new()))
        };
        let long = StepCompleted {
            name: "n".repeat(70_000).into(),
            input: Some(vec![1; 40_000].into()),
            ..with(Outcome::Broken(vec![2; 70_000].into()))
        };
        let interrupted = with(Outcome::Interrupted(Interrupted::since(2, since)));
        let done = with(Outcome::AlreadyDone(Bytes::from_static(b"it")));
        vec![step, plain, long, interrupted, done]
    }

    #[test]
    fn a_step_in_its_frame_says_what_its_record_says() {
        let (run, time) = (RunId::from_bytes([1; 16]), Timestamp::from_micros(900));
        let mut chain = Chain::new(run, None);
        let seal = |step: &StepCompleted| {
            Draft::of(&Event::StepCompleted(step.clone())).seal(time, &mut chain)
        };
        let frames: Vec<Bytes> = steps().iter().map(seal).collect();
        let mut reader = Reader::new(run, None, &frames);
        let entries: Result<Vec<Entry>, _> = reader.entries().collect();
        let mut framed = 0;
        for (entry, expected) in entries.expect("they read").into_iter().zip(steps()) {
            assert_eq!(entry.time, time);
            let step = match entry.says {
                Says::Step(step) => step,
                Says::Event(event) => {
                    assert_eq!(event, Event::StepCompleted(expected));
                    continue;
                }
            };
            framed += 1;
            assert_eq!(step.step(), expected.step);
            assert_eq!(step.input_digest(), expected.input_digest);
            assert!(step.is_named(&expected.name));
            assert!(!step.is_named("charg") && !step.is_named("charger"));
            assert_eq!(step.outcome(), expected.outcome);
            assert_eq!(step.whole(), expected);
        }
        assert_eq!(framed, 3, "those that most are");
    }

    #[test]
    fn records_that_are_gone_without_a_checkpoint_are_missed_by_replay_as_well() {
        let (run, time) = (RunId::from_bytes([1; 16]), Timestamp::from_micros(900));
        let step = || Event::StepCompleted(steps().remove(1));
        let checkpoint = Event::Checkpoint(Checkpoint {
            pass: 1,
            input: Bytes::new(),
            now: time,
            signals: Vec::new(),
            patches: Vec::new(),
            children: Vec::new(),
            tokens: Vec::new(),
        });
        for (behind, is_refused) in [(checkpoint, false), (step(), true)] {
            let mut chain = Chain::new(run, None);
            let events = [step(), step(), step(), step(), behind];
            let frames = events.map(|event| Draft::of(&event).seal(time, &mut chain));
            let [first, second, _gone, last_gone, behind] = frames;
            let kept = KeptJournal {
                frames: vec![first, second, last_gone, behind],
                kept_from: 3,
            };
            let mut reader = Reader::of(run, None, &kept);
            let read: Vec<Result<u64, String>> = reader
                .entries()
                .map(|entry| entry.map(|it| it.seq).map_err(|error| error.to_string()))
                .collect();
            assert_eq!(read[..2], [Ok(0), Ok(1)]);
            match &read[2..] {
                [Ok(4)] => assert!(!is_refused, "it is no checkpoint"),
                [Err(why)] => assert!(is_refused && why.contains("record 4 is no"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_step_in_the_form_that_is_written_is_left_to_the_other_reader() {
        let (run, time) = (RunId::from_bytes([1; 16]), Timestamp::from_micros(900));
        let event = Event::StepCompleted(steps().remove(0));
        let whole = Draft::of(&event).seal(time, &mut Chain::new(run, None));
        let body = body_of(&whole).expect("a body").to_vec();
        for len in 0..body.len() {
            for last in [body[len], 0, 3, 254, 255] {
                let bytes = [&body[..len], &[last]].concat();
                let frame = Bytes::from([&[1], &*bytes, &[0; LINK_LEN]].concat());
                let body = || Body {
                    frame: &frame,
                    bytes: &bytes,
                };
                let expected =
                    Record::from_body(7, body()).map(|record| (record.time, record.event));
                let found = Entry::from_body(7, body()).map(|entry| match entry.says {
                    Says::Step(step) => (entry.time, Event::StepCompleted(step.whole())),
                    Says::Event(event) => (entry.time, event),
                });
                assert_eq!(found, expected, "{len} bytes, then {last}");
            }
        }
    }
}
