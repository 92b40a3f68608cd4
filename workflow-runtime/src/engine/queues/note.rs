//! Queues as their notes keep them: settings, entries, slots, the turn. The order of fields is frozen.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::limits::{Level, Limits};
use super::refuse;
use crate::clock::Timestamp;
use crate::engine::notes::{self, Space};
use crate::engine::prepared::EncodedCall;
use crate::engine::{EngineError, Shared};
use crate::ids::RunId;
use crate::store::NoteKey;

/// Notes that are read at a time.
const PAGE: usize = 256;

/// What a queue allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// As an engine's builder declared it last.
    pub(super) declared: Limits,
    /// As it is now.
    pub(super) live: Limits,
    pub(super) paused: bool,
}

/// A run that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) run: RunId,
    pub(super) queue_key: Option<Box<str>>,
    pub(super) priority: i32,
    /// When its turn may come at the earliest; among equals, the order.
    pub(super) ready_at: Timestamp,
}

/// A run that has a place among those that go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) run: RunId,
    pub(super) queue_key: Option<Box<str>>,
    pub(super) since: Timestamp,
}

/// Changed by every dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    pub(super) number: u64,
    pub(super) level: Level,
}

/// A start that waits for quiet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) run: RunId,
    pub(super) call: EncodedCall,
    pub(super) queue_key: Option<Box<str>>,
    pub(super) priority: i32,
    pub(super) due_at: Timestamp,
}

pub(super) fn settings_key(namespace: &str, queue: &str) -> NoteKey {
    notes::key(Space::QueueSettings, namespace, &[queue.as_bytes()])
}

pub(super) fn turn_key(namespace: &str, queue: &str) -> NoteKey {
    notes::key(Space::QueueTurn, namespace, &[queue.as_bytes()])
}

/// Names an entry, so that entries sort by priority, the highest first, and then by arrival.
pub(super) fn waiting_key(namespace: &str, queue: &str, entry: &Entry) -> NoteKey {
    // Flipping the sign bit sorts negative numbers first; inverted, the highest is first.
    let rank = !(entry.priority.cast_unsigned() ^ (1 << 31));
    notes::key(
        Space::QueueWaiting,
        namespace,
        &[
            queue.as_bytes(),
            &rank.to_be_bytes(),
            &entry.ready_at.as_micros().to_be_bytes(),
            entry.run.as_bytes(),
        ],
    )
}

/// Names an entry that is not ready yet, so that entries sort by when they are.
pub(super) fn delayed_key(namespace: &str, queue: &str, entry: &Entry) -> NoteKey {
    notes::key(
        Space::QueueDelayed,
        namespace,
        &[
            queue.as_bytes(),
            &entry.ready_at.as_micros().to_be_bytes(),
            entry.run.as_bytes(),
        ],
    )
}

pub(super) fn slot_key(namespace: &str, queue: &str, run: RunId) -> NoteKey {
    notes::key(
        Space::QueueSlot,
        namespace,
        &[queue.as_bytes(), run.as_bytes()],
    )
}

pub(super) fn pending_key(namespace: &str, queue: &str, workflow: &str, key: &str) -> NoteKey {
    notes::key(
        Space::QueuePending,
        namespace,
        &[queue.as_bytes(), workflow.as_bytes(), key.as_bytes()],
    )
}

/// Decodes a note of a queue.
pub(super) fn read<T: DeserializeOwned>(queue: &str, bytes: &[u8]) -> Result<T, EngineError> {
    notes::decode(bytes).map_err(|problem| {
        refuse(
            queue,
            format!("what is kept of it cannot be read: {problem}"),
        )
    })
}

/// Reads the notes of a queue in one of its spaces, page by page.
pub(super) struct Pages {
    prefix: NoteKey,
    after: Option<NoteKey>,
    over: bool,
}

impl Pages {
    pub(super) fn new(space: Space, namespace: &str, queue: &str) -> Self {
        Self::below(notes::key(space, namespace, &[queue.as_bytes()]))
    }

    pub(super) fn below(prefix: NoteKey) -> Self {
        Self {
            prefix,
            after: None,
            over: false,
        }
    }

    /// Returns the next page; empty behind the last one.
    pub(super) async fn next(
        &mut self,
        shared: &Shared,
    ) -> Result<Vec<(NoteKey, Bytes)>, EngineError> {
        if self.over {
            return Ok(Vec::new());
        }
        let page = shared
            .store
            .notes(self.prefix.clone(), self.after.take(), PAGE)
            .await?;
        self.over = page.len() < PAGE;
        self.after = page.last().map(|(key, _)| key.clone());
        Ok(page)
    }
}
