//! Runs as a store knows them: headers, states, listings. Plain data.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::RunId;

/// How much an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It survives a power cut: the bytes were synced to the disk.
    #[default]
    Synced,
    /// It survives the process, not the power: the bytes were handed to the operating system.
    Buffered,
}

/// The number under which a run is owned; every claim raises it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of a run that was just created.
    pub const FIRST: Self = Self(1);

    /// Returns the epoch of the next claim.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a store knows of a run without decoding its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The run's id.
    pub run: RunId,
    /// The namespace (tenant) it lives in.
    pub namespace: Box<str>,
    /// The workflow's name.
    pub workflow: Box<str>,
    /// The workflow's version.
    pub version: u32,
    /// The key it was started with.
    pub key: Option<Box<str>>,
    /// The digest of its input.
    pub input_digest: Digest,
    /// When it was created.
    pub created_at: Timestamp,
    /// Which run it came from, if any.
    pub origin: Option<Origin>,
    /// Whether it still goes on.
    pub state: RunState,
}

/// Which run another one came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// A workflow called it as its child.
    Child(RunId),
    /// A run continued as this one; the id is that of the first run of the line.
    Continued(RunId),
    /// It was forked from a run.
    Forked(RunId),
}

impl Origin {
    /// Returns the run it came from.
    pub fn run(self) -> RunId {
        match self {
            Self::Child(run) | Self::Continued(run) | Self::Forked(run) => run,
        }
    }
}

/// Whether a run goes on, waits for a person, or has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// It runs, or waits in memory.
    Active,
    /// It cannot go on without help; nothing was lost.
    Parked(Parking),
    /// It has ended.
    Ended(RunEnd),
    /// It waits, or is queued, and needs no memory.
    Asleep {
        /// When it is to be woken; `None`: only a letter or its queue wakes it.
        wake_at: Option<Timestamp>,
    },
}

/// How and when a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// How.
    pub kind: EndKind,
    /// When.
    pub at: Timestamp,
}

/// The ways a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndKind {
    /// The workflow returned a value.
    Completed,
    /// The workflow returned an error.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The workflow ended itself with a reason.
    Aborted,
    /// The workflow went on as a new run.
    Continued,
}

/// Why and since when a run is parked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parking {
    /// The rule that stopped it.
    pub reason: ParkReason,
    /// Since when.
    pub at: Timestamp,
    /// What a person needs to know, without any payload.
    pub report: Box<str>,
    /// The part of the report that shows payloads, encoded as a payload.
    pub detail: Option<Bytes>,
}

/// The rules that park a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ParkReason {
    /// The code asks for something else than the journal holds.
    Diverged,
    /// The workflow's own code panicked.
    Panicked,
    /// A journaled value cannot be read as the type the code asks for.
    Undecodable,
    /// No workflow of that name and version is registered.
    Unregistered,
    /// A step asks for a resource that the engine was not given.
    MissingResource,
    /// The journal's chain does not verify.
    Corrupt,
    /// The process died again and again while it ran.
    Poison,
    /// Somebody paused it.
    Paused,
    /// It comes from a damaged store, and what it did last may be missing: see [`repair`](crate::repair).
    Salvaged,
}

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunQuery {
    /// Only this namespace.
    pub namespace: Option<Box<str>>,
    /// Only this workflow.
    pub workflow: Option<Box<str>>,
    /// Only runs in one of these states; empty means any.
    pub states: Vec<StateKind>,
    /// Only runs that came from this one.
    pub origin: Option<RunId>,
    /// In which order.
    pub order: RunOrder,
    /// Only runs behind this place of an earlier listing in that order.
    pub after: Option<RunPosition>,
    /// At most this many.
    pub limit: usize,
}

/// The order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunOrder {
    /// The newest first.
    #[default]
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// A [`RunState`] without its particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Runs, waits, sleeps or is queued.
    Active,
    /// Cannot go on without help.
    Parked,
    /// Has ended that way.
    Ended(EndKind),
}

/// A run's place in the listing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunPosition {
    /// When the run was created.
    pub created_at: Timestamp,
    /// The run.
    pub run: RunId,
}

impl RunState {
    /// Returns the state without its particulars.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Active | Self::Asleep { .. } => StateKind::Active,
            Self::Parked(_) => StateKind::Parked,
            Self::Ended(end) => StateKind::Ended(end.kind),
        }
    }
}

impl RunHeader {
    /// Returns how the run ended, if it has.
    pub fn end(&self) -> Option<RunEnd> {
        match self.state {
            RunState::Ended(end) => Some(end),
            RunState::Active | RunState::Parked(_) | RunState::Asleep { .. } => None,
        }
    }

    /// Returns the run's place in the listing order.
    pub fn position(&self) -> RunPosition {
        RunPosition {
            created_at: self.created_at,
            run: self.run,
        }
    }
}

impl RunQuery {
    /// Says whether a run belongs to the listing.
    pub fn matches(&self, header: &RunHeader) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|n| *n == header.namespace)
            && self.workflow.as_ref().is_none_or(|w| *w == header.workflow)
            && (self.states.is_empty() || self.states.contains(&header.state.kind()))
            && self
                .origin
                .is_none_or(|run| header.origin.is_some_and(|origin| origin.run() == run))
            && self.is_behind(header.position())
    }

    /// Says whether a place is behind that from which on runs are listed.
    pub(crate) fn is_behind(&self, place: RunPosition) -> bool {
        self.after.is_none_or(|after| match self.order {
            RunOrder::NewestFirst => place < after,
            RunOrder::OldestFirst => place > after,
        })
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Aborted => "aborted",
            Self::Continued => "continued",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn reasons_for_parking_keep_their_numbers_on_disk() {
        let numbered = [
            ParkReason::Diverged,
            ParkReason::Panicked,
            ParkReason::Undecodable,
            ParkReason::Unregistered,
            ParkReason::MissingResource,
            ParkReason::Corrupt,
            ParkReason::Poison,
            ParkReason::Paused,
            ParkReason::Salvaged,
        ];
        for (number, reason) in (0..).zip(numbered) {
            assert_eq!(codec::encode(&reason), [number], "{reason:?}");
        }
    }
}
