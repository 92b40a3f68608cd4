//! The engine's own notes: which spaces there are, and how a note's value is encoded.
//!
//! Owns the numbers of the spaces and the version in front of every value. What a note says is owned
//! by whoever writes it. The layout is listed in `docs/journal-format.md`.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Timestamp;
use crate::codec;
use crate::ids::RunId;
use crate::store::NoteKey;

/// The version of all notes' values.
const FORMAT: u8 = 1;

/// A kind of notes; beside them, notes in space 0 belong to a run and are deleted with it. The numbers are on disk: they never change, and none is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Space {
    /// Tokens of hooks: namespace, token. The value is the holder, 16 bytes.
    Token = 0x01,
    /// How often the process died while a run was driven: run. See `poison`.
    Mark = 0x02,
    /// Pauses: namespace, `engine`, or namespace, `workflow`, name. See `pause`.
    Pause = 0x03,
    /// Schedules: namespace, name.
    Schedule = 0x40,
    /// Settings of queues: namespace, queue.
    QueueSettings = 0x50,
    /// The turn of a queue: namespace, queue.
    QueueTurn = 0x51,
    /// Queued runs: namespace, queue, inverted priority, arrival, run.
    QueueWaiting = 0x52,
    /// Queued runs whose delay is not over: namespace, queue, end of the delay, run.
    QueueDelayed = 0x53,
    /// Runs that hold a slot: namespace, queue, run.
    QueueSlot = 0x54,
    /// Debounced starts: namespace, queue, workflow, key.
    QueuePending = 0x55,
    /// Generations of keys: namespace, id of the key's first run.
    Generation = 0x60,
    /// Runs that wait for the one that they replace: namespace, run. See `successors`.
    Successor = 0x61,
    /// Generations of the keys that steps share: namespace, key. They stay for ever.
    StepGeneration = 0x68,
    /// Outcomes under guarded keys: namespace, key. See `idempotency`.
    GuardedRow = 0x70,
    /// When they expire: namespace, time, key.
    GuardedExpiry = 0x71,
    /// What of an outcome does not fit into its row: namespace, key, number from 1.
    GuardedChunk = 0x72,
    /// Messages to be relayed: namespace, outbox, run, number of the record, number. See `outbox`.
    Message = 0x80,
    /// Failed attempts at relaying them: as the message.
    MessageTries = 0x81,
    /// Messages that were set aside: namespace, outbox, id.
    MessageAside = 0x82,
}

/// Names a note of this engine's namespace; with leading parts only, all notes below them.
pub(super) fn key(space: Space, namespace: &str, parts: &[&[u8]]) -> NoteKey {
    let mut all: Vec<&[u8]> = Vec::with_capacity(1 + parts.len());
    all.push(namespace.as_bytes());
    all.extend_from_slice(parts);
    NoteKey::new(space as u8, &all)
}

/// Encodes a note's value.
pub(crate) fn encode<T: Serialize>(value: &T) -> Bytes {
    let mut out = vec![FORMAT];
    codec::encode_into(value, &mut out);
    out.into()
}

/// Decodes a note's value.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match bytes.split_first() {
        Some((&FORMAT, body)) => codec::decode(body),
        Some((newer, _)) => Err(format!(
            "it has format {newer}, this release knows {FORMAT}: upgrade workflow-runtime"
        )),
        None => Err("it is empty".to_owned()),
    }
}

/// Where the newest checkpoint of a run is in its journal.
pub(crate) fn checkpoint(run: RunId) -> NoteKey {
    NoteKey::of_run(run, &[b"checkpoint"])
}

/// That a run waits in a queue and has not had its turn.
pub(crate) fn queued(run: RunId) -> NoteKey {
    NoteKey::of_run(run, &[b"queued"])
}

/// What a run last published under a name.
pub(crate) fn published(run: RunId, name: &str) -> NoteKey {
    NoteKey::of_run(run, &[b"published", name.as_bytes()])
}

/// That a run was sent a signal of that name under that key.
pub(crate) fn signal_key(run: RunId, name: &str, key: &str) -> NoteKey {
    NoteKey::of_run(run, &[b"signal", name.as_bytes(), key.as_bytes()])
}

/// Who holds a token.
pub(crate) fn token(namespace: &str, token: &str) -> NoteKey {
    key(Space::Token, namespace, &[token.as_bytes()])
}

/// How often the process died while a run was driven.
pub(super) fn mark(run: RunId) -> NoteKey {
    NoteKey::new(Space::Mark as u8, &[run.as_bytes()])
}

/// The prefix of all marks.
pub(super) fn marks() -> NoteKey {
    NoteKey::new(Space::Mark as u8, &[])
}

/// That a namespace is paused.
pub(super) fn engine_paused(namespace: &str) -> NoteKey {
    NoteKey::new(Space::Pause as u8, &[namespace.as_bytes(), b"engine"])
}

/// That a workflow is paused.
pub(super) fn workflow_paused(namespace: &str, workflow: &str) -> NoteKey {
    NoteKey::new(
        Space::Pause as u8,
        &[namespace.as_bytes(), b"workflow", workflow.as_bytes()],
    )
}

/// The prefix of all pauses of a namespace.
pub(super) fn pauses(namespace: &str) -> NoteKey {
    NoteKey::new(Space::Pause as u8, &[namespace.as_bytes()])
}

/// The generation of the newest outcome under a key that steps share.
pub(crate) fn step_generation(namespace: &str, id: &[u8; 32]) -> NoteKey {
    key(Space::StepGeneration, namespace, &[id])
}

/// The outcome under a guarded key.
pub(crate) fn guarded_row(namespace: &str, id: &[u8; 32]) -> NoteKey {
    key(Space::GuardedRow, namespace, &[id])
}

/// That an outcome expires at a time.
pub(crate) fn guarded_expiry(namespace: &str, at: Timestamp, id: &[u8; 32]) -> NoteKey {
    let at = at.as_micros().to_be_bytes();
    key(Space::GuardedExpiry, namespace, &[&at, id])
}

/// The prefix of all expiries of a namespace, soonest first.
pub(crate) fn guarded_expiries(namespace: &str) -> NoteKey {
    key(Space::GuardedExpiry, namespace, &[])
}

/// A chunk of a large outcome.
pub(crate) fn guarded_chunk(namespace: &str, id: &[u8; 32], number: u32) -> NoteKey {
    key(Space::GuardedChunk, namespace, &[id, &number.to_be_bytes()])
}
