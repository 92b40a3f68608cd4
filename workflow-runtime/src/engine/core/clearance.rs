//! What must be durable before a body may start.
//!
//! Owns two waits: for a step's own intent, where it asked for one, and for the outcomes that
//! were only buffered so far, before a step whose effect must not outlive what it was based on.
//! In an engine that syncs everything, a step without an intent waits for neither.

use std::task::Waker;

use super::{Phase, RunCore, State};
use crate::clock::Timestamp;
use crate::engine::signal::wake_by_engine;
use crate::id_map::IdSet;
use crate::ids::StepId;
use crate::journal::Draft;
use crate::store::Durability;

/// Whether a call's intent is on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Intent {
    /// No.
    #[default]
    None,
    /// It is on its way to the journal.
    Written,
    /// It is durable: of this process, or of an earlier one.
    Durable,
    /// An earlier process recorded it, and may have begun the body.
    Found(Intended),
}

impl Intent {
    pub(super) fn is_none(self) -> bool {
        self == Self::None
    }

    pub(super) fn is_written(self) -> bool {
        self == Self::Written
    }
}

impl State {
    /// Takes back an intent that nobody has written yet: its call is gone, and never began.
    pub(super) fn unannounce(&mut self, id: StepId) {
        self.outbox.retain(|draft| !draft.announces(id));
    }
}

/// An attempt that an earlier process was about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Intended {
    pub(crate) attempt: u32,
    pub(crate) at: Timestamp,
}

/// What a body asks for before it starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks {
    /// Its intent is to be on record.
    pub(crate) announced: bool,
    /// All before it is to survive a power cut.
    pub(crate) synced: bool,
}

/// What a call is told that wants to begin an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeganBody {
    /// It may not.
    No,
    /// It has begun; whether its body may start is asked for when that is ready.
    ToBeCleared,
    /// It has begun, and its body may start.
    Cleared,
}

/// What a call with a body ready to start is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clearance {
    /// The body may start.
    Start,
    /// Its intent is to be announced first.
    Announce,
    /// Something is on its way to the disk; the call is woken when it is there.
    Wait,
    /// The run begins nothing more.
    Refused,
}

/// How much of a run's journal survives a power cut. Places are sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Prefix {
    /// Behind the last record that was only buffered.
    buffered: u64,
    /// Behind the last record that was appended to be synced, and so synced all before it.
    asked: u64,
    /// The same, and acknowledged.
    synced: u64,
    /// A sync is wanted that nothing else brings.
    pub(super) wanted: bool,
    /// Calls that wait for it; `None` if none ever did.
    waiting: Option<Box<IdSet<StepId>>>,
}

impl Prefix {
    /// Says whether a body may start with what is on the disk.
    pub(super) fn suffices(&self, synced: bool) -> bool {
        !synced || self.synced >= self.buffered
    }
}

impl RunCore {
    /// Everything up to `end` may be lost with the power.
    pub(crate) fn assume_buffered(&self, end: u64) {
        self.state().prefix.buffered = end;
    }

    /// Returns what an earlier process was about to begin, while this one may do something about it.
    pub(crate) fn intended(&self, id: StepId) -> Option<Intended> {
        let state = self.state();
        match state.calls.get(&id)?.intent {
            Intent::Found(intended) if state.phase == Phase::Live => Some(intended),
            _ => None,
        }
    }

    /// Says whether a body that is ready may start.
    pub(crate) fn clear(&self, id: StepId, asks: Asks) -> Clearance {
        let mut state = self.state();
        let state = &mut *state;
        let Some(call) = state.calls.get(&id) else {
            return Clearance::Refused;
        };
        // What was announced is as good as begun: the next process would take it for that.
        let begun = matches!(call.intent, Intent::Written | Intent::Durable);
        if state.trouble.is_some() || (state.phase != Phase::Live && !begun) {
            return Clearance::Refused;
        }
        match call.intent {
            Intent::None if asks.announced => return Clearance::Announce,
            Intent::Written => return Clearance::Wait,
            Intent::None | Intent::Durable | Intent::Found(_) => {}
        }
        let prefix = &mut state.prefix;
        if prefix.suffices(asks.synced) {
            return Clearance::Start;
        }
        prefix.wanted |= prefix.asked < prefix.buffered;
        prefix.waiting.get_or_insert_default().insert(id);
        Clearance::Wait
    }

    /// Takes the record that a call is about to run its body.
    pub(crate) fn announce(&self, id: StepId, intent: Draft) {
        let mut state = self.state();
        if let Some(call) = state.calls.get_mut(&id) {
            call.intent = Intent::Written;
        }
        state.outbox.push(intent);
    }

    /// Takes a record that is no outcome, with a durability of its own.
    pub(crate) fn note(&self, draft: Draft) {
        self.state().outbox.push(draft);
    }

    // --- what the driver does ----------------------------------------------------------

    /// Tells a waiting call what an earlier process was about to begin.
    pub(crate) fn set_intended(&self, id: StepId, intended: Intended) {
        if let Some(call) = self.state().calls.get_mut(&id) {
            call.intent = Intent::Found(intended);
        }
    }

    /// Notes an append up to `end`.
    pub(crate) fn appended(&self, end: u64, durability: Durability) {
        let prefix = &mut self.state().prefix;
        match durability {
            Durability::Buffered => prefix.buffered = end,
            Durability::Synced => prefix.asked = end,
        }
    }

    /// Notes that an append is acknowledged, and wakes the calls that waited for it.
    pub(crate) fn acknowledged(&self, end: u64, durability: Durability, announced: &[StepId]) {
        let wakers: Vec<Waker> = {
            let mut state = self.state();
            let state = &mut *state;
            for id in announced {
                if let Some(call) = state.calls.get_mut(id) {
                    call.intent = Intent::Durable;
                }
            }
            let prefix = &mut state.prefix;
            if durability == Durability::Synced {
                prefix.synced = prefix.synced.max(end);
            }
            let woken = match prefix.synced >= prefix.buffered {
                true => std::mem::take(&mut prefix.waiting),
                false => None,
            };
            let ids = announced
                .iter()
                .chain(woken.iter().flat_map(|woken| woken.iter()));
            let calls = ids.filter_map(|id| state.calls.get(id));
            calls.map(|call| call.caller.waker(&self.waker)).collect()
        };
        wakers.iter().for_each(wake_by_engine);
    }
}
