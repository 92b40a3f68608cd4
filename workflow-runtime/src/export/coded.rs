//! Files whose payloads are as a payload codec made them: encrypted, say.
//!
//! Owns which payload of a record stands where, so that a codec that binds payloads to their places can open them, and
//! what can be said of them without opening one. It never codes anything: what was opened leaves as it is.

use std::collections::BTreeSet;

use super::kinds::{self, Part};
use super::{JournalFile, JournalFileError};
use crate::digest::Digest;
use crate::ids::{RunId, StepId};
use crate::journal::line_of;
use crate::payload::{ENCRYPTED, PayloadCodec, PayloadContext, PayloadError, Place};

/// Whose a payload of a record is. What the record itself does not know is the run's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Whose {
    /// The input of the run; one that could not be bound to it is still its call's, by this digest.
    RunInput(Digest),
    StepInput(StepId),
    StepOutcome(StepId),
    CallInput(Digest),
    /// What the run ends with.
    RunEnd,
    /// What another run ended with.
    ChildEnd(RunId),
    Checkpoint,
    Signal,
}

impl Whose {
    /// Where it stands, in a run of a line; and where it may stand instead.
    fn places(self, run: RunId, first: RunId) -> (Place, Option<Place>) {
        let place = match self {
            Self::RunInput(digest) => {
                return (Place::run_input(run), Some(Place::call_input(&digest)));
            }
            Self::StepInput(step) => Place::step_input(step),
            Self::StepOutcome(step) => Place::step_outcome(step),
            Self::CallInput(digest) => Place::call_input(&digest),
            Self::RunEnd => Place::run_end(first),
            Self::ChildEnd(child) => Place::run_end(child),
            Self::Checkpoint => Place::checkpoint(run),
            Self::Signal => Place::signal(first),
        };
        (place, None)
    }
}

impl JournalFile {
    /// Says whether its payloads are as the engine's payload codec made them, so that nobody reads them without it.
    pub fn is_coded(&self) -> bool {
        self.coded
    }

    /// The ids of the keys that its payloads are encrypted with, in ascending order. All of them are needed to
    /// [open](JournalFile::open_with) it.
    pub fn key_ids(&self) -> Vec<u32> {
        let mut ids = BTreeSet::new();
        for record in self.records.iter().filter(|_| self.coded) {
            kinds::parts(&mut record.event.clone(), &mut |_, _, part| {
                if let Part::Payload(payload, _) = part
                    && let [ENCRYPTED, _, a, b, c, d, ..] = payload[..]
                {
                    ids.insert(u32::from_be_bytes([a, b, c, d]));
                }
            });
        }
        ids.into_iter().collect()
    }

    /// Says whether one of its payloads shows that it is encrypted.
    pub(crate) fn has_encrypted(&self) -> bool {
        self.records.iter().any(|record| {
            let mut found = false;
            kinds::parts(&mut record.event.clone(), &mut |_, _, part| {
                if let Part::Payload(payload, _) = part {
                    found |= payload.first() == Some(&ENCRYPTED);
                }
            });
            found
        })
    }

    /// Its payloads are as a codec made them.
    pub(crate) fn mark_coded(&mut self) {
        self.coded = true;
    }

    /// Undoes what a payload codec did: what is returned is in clear. A file that is not [coded](JournalFile::is_coded)
    /// stays as it is.
    ///
    /// # Errors
    ///
    /// If one of the payloads does not open: the key is missing or another one, or the payload does not belong where it
    /// stands. It names the record.
    pub fn open_with(mut self, codec: &dyn PayloadCodec) -> Result<Self, JournalFileError> {
        if !self.coded {
            return Ok(self);
        }
        let namespace = self.namespace().to_owned();
        let line = line_of(self.run, &self.records);
        let (run, first) = (self.run, line.map_or(self.run, |(first, _)| first));
        let open = |payload: &[u8], place| {
            codec
                .decode_at(payload, &PayloadContext::new(&namespace, place))
                .map_err(PayloadError::from)
        };
        for record in &mut self.records {
            let (mut number, mut problem) = (0, None);
            let marks = &self.marks;
            kinds::parts(&mut record.event, &mut |_, _, part| {
                let Part::Payload(payload, whose) = part else {
                    return;
                };
                let is_out = marks.contains_key(&(record.seq, number));
                number += 1;
                if is_out {
                    return; // nothing of it is there any more
                }
                let (place, or) = whose.places(run, first);
                let opened = open(payload, place);
                let opened = match (opened, or) {
                    (Err(error), Some(or)) => open(payload, or).map_err(|_| error),
                    (opened, _) => opened,
                };
                match opened {
                    Ok(plain) => *payload = plain.into(),
                    Err(error) => problem = problem.take().or(Some(error)),
                }
            });
            if let Some(problem) = problem {
                return Err(closed(&problem).in_record(record.seq));
            }
        }
        self.coded = false;
        Ok(self)
    }
}

impl JournalFile {
    /// The same in clear, by the codec of an engine, if it has one.
    pub(crate) fn opened_by(
        self,
        codec: Option<&dyn PayloadCodec>,
    ) -> Result<Self, JournalFileError> {
        match codec {
            Some(codec) => self.open_with(codec),
            None if self.coded => Err(JournalFileError::new(format!(
                "its payloads are coded{}, and the engine has no codec: give it with `.payload_codec(..)`",
                match &self.key_ids()[..] {
                    [] => String::new(),
                    ids => format!(" with the keys {ids:?}"),
                }
            ))),
            None => Ok(self),
        }
    }
}

/// What is said of a payload that does not open. A file's errors quote no payload.
fn closed(problem: &PayloadError) -> JournalFileError {
    JournalFileError::new(format!(
        "a payload does not open: {}; give the codec, and the keys, that the run was written with",
        problem.without_values()
    ))
}
