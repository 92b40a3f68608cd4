//! How far a run is, and what keeps it from going on.
//!
//! Owns the order of phases, who looks again when one begins, and the first trouble of a run. What is done about trouble
//! is the driver's.

use std::sync::atomic::Ordering;
use std::task::Waker;

use super::{RunCore, State, Trouble};
use crate::engine::signal::wake_by_engine;

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Recorded outcomes are being delivered; no body starts.
    Replaying,
    /// Bodies run.
    Live,
    /// The run is about to end: bodies in flight may finish, none starts.
    Winding,
    /// Somebody pauses the run: bodies in flight may finish, none starts.
    Pausing,
    /// The engine is stopping: bodies in flight may finish, none starts.
    Closing,
}

impl RunCore {
    /// Says whether the workflow's code does what it did before.
    pub(crate) fn is_replaying(&self) -> bool {
        self.state().repeating
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.state().phase == Phase::Closing
    }

    /// Says whether the run is to leave once what it began has finished: the engine is stopping, or
    /// somebody pauses the run.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// No recorded outcome is left: what the code does from here on is new.
    pub(crate) fn stop_repeating(&self) {
        self.state().repeating = false;
    }

    /// Says whether a timer may be set or fired.
    pub(crate) fn is_live(&self) -> bool {
        self.state().phase == Phase::Live
    }

    /// Moves to another phase and has every waiting call look again. Closing is the last one, and
    /// pausing the last but one: a driver that goes live just then must not take it back.
    pub(crate) fn set_phase(&self, phase: Phase) {
        let wakers: Vec<Waker> = {
            let mut state = self.state();
            match state.phase {
                Phase::Closing => return,
                Phase::Pausing if phase != Phase::Closing => return,
                _ => state.phase = phase,
            }
            if matches!(phase, Phase::Pausing | Phase::Closing) {
                self.leaves.store(true, Ordering::Release);
            }
            if phase == Phase::Live {
                state.release_held(self.services.clock.now());
            }
            state
                .calls
                .values()
                .map(|call| call.caller.waker(&self.waker))
                .collect()
        };
        wakers.iter().for_each(wake_by_engine);
    }

    /// Has every waiting call look again.
    pub(crate) fn wake_calls(&self) {
        let state = self.state();
        let wakers: Vec<Waker> = state
            .calls
            .values()
            .map(|call| call.caller.waker(&self.waker))
            .collect();
        drop(state);
        wakers.iter().for_each(wake_by_engine);
    }

    /// Keeps the run from going on; the first trouble counts.
    pub(crate) fn trouble(&self, trouble: Trouble) {
        let mut state = self.state();
        state.trouble.get_or_insert_with(|| Box::new(trouble));
        self.is_troubled.store(true, Ordering::Release);
    }

    pub(super) fn note_trouble(&self, state: &State) {
        if state.trouble.is_some() {
            self.is_troubled.store(true, Ordering::Release);
        }
    }

    pub(crate) fn take_trouble(&self) -> Option<Trouble> {
        if !self.is_troubled.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state();
        self.is_troubled.store(false, Ordering::Release);
        state.trouble.take().map(|trouble| *trouble)
    }
}
