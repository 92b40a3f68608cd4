//! Where a payload stands: what it is, and whose.
//!
//! Owns the numbers of the kinds and the bytes that a codec can bind a payload to, so that it opens at its own
//! place only. They are part of what encrypted payloads are authenticated with: they never change, and no number
//! is given twice. It never sees a payload. Listed in `docs/encryption.md`.

use crate::digest::Digest;
use crate::ids::{RunId, StepId};

/// What a payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum PayloadKind {
    /// Nothing that the engine keeps.
    Other = 0,
    /// The input of a step: owned by the step's id.
    StepInput = 1,
    /// What a step gave: owned by the step's id.
    StepOutcome = 2,
    /// The input of a run: owned by the run.
    RunInput = 3,
    /// The input of a call whose run is not there yet (of a schedule or a child, say): owned by the input's digest.
    CallInput = 4,
    /// What a run ended with: owned by the first run of its line.
    RunEnd = 5,
    /// The state of a checkpoint: owned by the run.
    Checkpoint = 6,
    /// What a signal carries: owned by the first run of the line that it was sent to.
    Signal = 7,
    /// A published value: owned by the first run of its line.
    Published = 8,
    /// The part of a parking report that may quote values: owned by the run.
    Parking = 9,
    /// A message in an outbox: owned by the run that pushed it.
    Message = 10,
    /// Why a message was set aside: owned by the run that pushed it.
    MessageProblem = 11,
    /// A step's value on its way to the key that runs share. It stands in what a [`PayloadKind::GuardedOutcome`] is.
    SharedOutcome = 12,
    /// What is kept under a guarded key: owned by the key's hash.
    GuardedOutcome = 13,
}

/// Where a payload stands. A codec that binds payloads to it opens them there only.
#[derive(Debug, Clone, Copy)]
pub struct PayloadContext<'a> {
    namespace: &'a str,
    place: Place,
}

impl<'a> PayloadContext<'a> {
    pub(crate) fn new(namespace: &'a str, place: Place) -> Self {
        Self { namespace, place }
    }

    /// Makes the context of nothing that an engine keeps, to try a codec without one.
    pub fn detached(namespace: &'a str) -> Self {
        Self::new(namespace, Place::NOWHERE)
    }

    /// Returns the namespace of the engine.
    pub fn namespace(&self) -> &'a str {
        self.namespace
    }

    /// Returns what the payload is.
    pub fn kind(&self) -> PayloadKind {
        self.place.kind
    }

    /// Returns whose it is: the bytes of an id or a digest, as the kind says; empty if it is nobody's.
    pub fn owner(&self) -> &[u8] {
        &self.place.owner[..usize::from(self.place.owner_len)]
    }

    /// Returns all of it as bytes, unambiguously. Equal bytes are the same place, in every release.
    pub fn to_bytes(&self) -> Vec<u8> {
        let owner = self.owner();
        let mut bytes = Vec::with_capacity(16 + self.namespace.len() + owner.len());
        bytes.extend_from_slice(&(self.namespace.len() as u64).to_be_bytes());
        bytes.extend_from_slice(self.namespace.as_bytes());
        bytes.push(self.place.kind as u8);
        bytes.push(self.place.owner_len);
        bytes.extend_from_slice(owner);
        bytes
    }
}

/// The place of a payload within a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    kind: PayloadKind,
    owner_len: u8,
    owner: [u8; 32],
}

impl Place {
    pub(crate) const NOWHERE: Self = Self {
        kind: PayloadKind::Other,
        owner_len: 0,
        owner: [0; 32],
    };

    fn of(kind: PayloadKind, bytes: &[u8]) -> Self {
        let mut owner = [0; 32];
        owner[..bytes.len()].copy_from_slice(bytes);
        Self {
            kind,
            owner_len: bytes.len() as u8,
            owner,
        }
    }

    pub(crate) fn step_input(step: StepId) -> Self {
        Self::of(PayloadKind::StepInput, step.as_bytes())
    }

    pub(crate) fn step_outcome(step: StepId) -> Self {
        Self::of(PayloadKind::StepOutcome, step.as_bytes())
    }

    pub(crate) fn run_input(run: RunId) -> Self {
        Self::of(PayloadKind::RunInput, run.as_bytes())
    }

    pub(crate) fn call_input(digest: &Digest) -> Self {
        Self::of(PayloadKind::CallInput, digest.as_bytes())
    }

    pub(crate) fn run_end(first_of_line: RunId) -> Self {
        Self::of(PayloadKind::RunEnd, first_of_line.as_bytes())
    }

    pub(crate) fn checkpoint(run: RunId) -> Self {
        Self::of(PayloadKind::Checkpoint, run.as_bytes())
    }

    pub(crate) fn signal(first_of_line: RunId) -> Self {
        Self::of(PayloadKind::Signal, first_of_line.as_bytes())
    }

    pub(crate) fn published(first_of_line: RunId) -> Self {
        Self::of(PayloadKind::Published, first_of_line.as_bytes())
    }

    pub(crate) fn parking(run: RunId) -> Self {
        Self::of(PayloadKind::Parking, run.as_bytes())
    }

    pub(crate) fn message(run: RunId) -> Self {
        Self::of(PayloadKind::Message, run.as_bytes())
    }

    pub(crate) fn message_problem(run: RunId) -> Self {
        Self::of(PayloadKind::MessageProblem, run.as_bytes())
    }

    pub(crate) fn shared_outcome() -> Self {
        Self::of(PayloadKind::SharedOutcome, &[])
    }

    pub(crate) fn guarded_outcome(key: &[u8; 32]) -> Self {
        Self::of(PayloadKind::GuardedOutcome, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_place_never_change() {
        let step = StepId::from_bytes([7; 16]);
        let context = PayloadContext::new("shop", Place::step_outcome(step));
        let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 4];
        expected.extend_from_slice(b"shop");
        expected.extend_from_slice(&[2, 16]);
        expected.extend_from_slice(&[7; 16]);
        assert_eq!(context.to_bytes(), expected);
        let run = RunId::from_bytes([7; 16]);
        let digest = [7; 32];
        let numbers = [
            (Place::NOWHERE, 0, 0),
            (Place::step_input(step), 1, 16),
            (Place::step_outcome(step), 2, 16),
            (Place::run_input(run), 3, 16),
            (Place::call_input(&Digest::from_bytes([7; 16])), 4, 16),
            (Place::run_end(run), 5, 16),
            (Place::checkpoint(run), 6, 16),
            (Place::signal(run), 7, 16),
            (Place::published(run), 8, 16),
            (Place::parking(run), 9, 16),
            (Place::message(run), 10, 16),
            (Place::message_problem(run), 11, 16),
            (Place::shared_outcome(), 12, 0),
            (Place::guarded_outcome(&digest), 13, 32),
        ];
        for (place, kind, len) in numbers {
            assert_eq!((place.kind as u8, place.owner_len), (kind, len));
        }
    }
}
