//! A schedule as its note keeps it, and the key of its runs.
//!
//! Owns the record and nothing that acts on it. The order of fields is frozen.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::timing::{Clockwork, Timing};
use super::{CatchUp, Overlap};
use crate::clock::Timestamp;
use crate::engine::notes::{self, Space};
use crate::engine::prepared::EncodedCall;
use crate::ids::RunId;
use crate::store::NoteKey;

/// Everything there is to know of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScheduleNote {
    pub(super) definition: Definition,
    /// Intervals are counted from here.
    pub(super) anchor: Timestamp,
    /// Every tick up to here is settled: run, skipped or passed over.
    pub(super) cursor: Timestamp,
    pub(super) paused: bool,
    /// The tick that waits for the previous run to end.
    pub(super) buffered: Option<Timestamp>,
    /// The newest tick that was run.
    pub(super) last_tick: Option<Timestamp>,
    /// The newest run, of a tick or triggered by hand.
    pub(super) last_run: Option<RunId>,
    /// When it was last triggered by hand; no two triggers have the same time.
    pub(super) triggered_at: Option<Timestamp>,
    /// Ticks that were not run because the previous run went on.
    pub(super) skipped: u64,
}

/// What its owner declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition {
    pub(super) call: EncodedCall,
    pub(super) timing: Timing,
    pub(super) overlap: Overlap,
    pub(super) catch_up: CatchUp,
    pub(super) start_at: Option<Timestamp>,
    pub(super) end_at: Option<Timestamp>,
    /// The queue that its runs wait in. Not among the fields: it stands behind the whole note, if there is one, so that
    /// the note of a schedule without a queue is as it always was.
    #[serde(skip)]
    pub(super) queue: Option<Box<str>>,
}

impl ScheduleNote {
    /// Makes the note of a schedule that ticks from now on, or from its start.
    pub(super) fn new(definition: Definition, now: Timestamp) -> Self {
        let (anchor, cursor) = match definition.start_at {
            // A moment that is a tick is the first one.
            Some(start) => (
                start,
                Timestamp::from_micros(start.as_micros().saturating_sub(1)),
            ),
            None => (now, now),
        };
        Self {
            definition,
            anchor,
            cursor,
            paused: false,
            buffered: None,
            last_tick: None,
            last_run: None,
            triggered_at: None,
            skipped: 0,
        }
    }

    /// Takes another declaration over. Declared as before, nothing changes, so that a process may
    /// declare its schedules whenever it starts; another timing ticks from now on.
    pub(super) fn redeclare(&mut self, definition: Definition, now: Timestamp) {
        let before = &self.definition;
        let same_ticks =
            before.timing == definition.timing && before.start_at == definition.start_at;
        if !same_ticks {
            let fresh = Self::new(definition.clone(), now);
            self.anchor = fresh.anchor;
            // What was settled stays settled: a start in the past does not repeat it.
            self.cursor = fresh.cursor.max(self.cursor);
        }
        self.definition = definition;
    }

    pub(super) fn clockwork(&self) -> Result<Clockwork, String> {
        self.definition.timing.clockwork(self.anchor)
    }

    pub(super) fn encode(&self) -> Bytes {
        match &self.definition.queue {
            None => notes::encode(self),
            Some(queue) => notes::encode(&(self, queue)),
        }
    }

    /// Reads a note.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        notes::decode::<Self>(bytes).or_else(|problem| {
            let (mut note, queue) =
                notes::decode::<(Self, Box<str>)>(bytes).map_err(|_| problem)?;
            note.definition.queue = Some(queue);
            Ok(note)
        })
    }
}

/// Names a schedule's note.
pub(super) fn note_key(namespace: &str, name: &str) -> NoteKey {
    notes::key(Space::Schedule, namespace, &[name.as_bytes()])
}

/// The key of the run of one tick: whoever makes it, it is the same run.
pub(super) fn tick_key(name: &str, tick: Timestamp) -> String {
    format!("schedule/{name}/{}", exact(tick))
}

/// The key of a run that was triggered by hand.
pub(super) fn trigger_key(name: &str, at: Timestamp) -> String {
    format!("schedule/{name}/triggered/{}", exact(at))
}

/// A time to the microsecond, for people and for keys alike.
fn exact(time: Timestamp) -> String {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_microsecond(micros) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => micros.to_string(),
    }
}
