//! Keyed calls of one run: which of them runs its body, and what it gave.
//!
//! Owns the table of idempotency keys that a pass of a run has used. It is built from the calls that the code makes and
//! the outcomes that it is given, live and in replay alike, and is never on record: each call has a record of
//! its own. Keys that runs share are not in here.

use std::panic::Location;
use std::task::Waker;

use bytes::Bytes;

use super::{RunCore, State};
use crate::digest::Digest;
use crate::engine::duplicates::{DuplicateBody, DuplicateKind, Source};
use crate::engine::signal::wake_by_engine;
use crate::id_map::IdMap;
use crate::ids::{RunId, StepId};
use crate::journal::Outcome;
use crate::replay::{Delivery, Recorded};

/// See the module.
#[derive(Default)]
pub(super) struct KeyedCalls {
    /// By the id that the outside world sees.
    keys: IdMap<StepId, KeyInUse>,
    /// Which of them a call has.
    of_call: IdMap<StepId, StepId>,
}

struct KeyInUse {
    /// The call that used it first.
    first: StepId,
    site: &'static Location<'static>,
    input: Digest,
    state: KeyState,
    waiting: Vec<Waker>,
}

enum KeyState {
    /// No call runs its body, and none gave a value.
    Free,
    /// This call runs its body, or will.
    Busy(StepId),
    /// One gave this.
    Done { value: Bytes, by: StepId },
}

/// What a keyed call is to do.
pub(crate) enum KeyedTurn {
    /// Run its body.
    Run,
    /// Give what another call gave.
    Known { value: Bytes, by: StepId },
    /// Fail: the key is used for another input.
    OtherInput {
        first: Digest,
        site: &'static Location<'static>,
    },
    /// Wait; it is woken.
    Wait,
}

impl KeyInUse {
    /// Ends the turn of a call, and says who is to look again.
    fn end(&mut self, call: StepId, outcome: Option<&Outcome>) -> Vec<Waker> {
        let is_its = matches!(self.state, KeyState::Busy(busy) if busy == call);
        match (outcome.and_then(Outcome::value), &self.state) {
            // The first value counts.
            (Some(_), KeyState::Done { .. }) => return Vec::new(),
            (Some(value), _) => {
                let value = value.clone();
                self.state = KeyState::Done { value, by: call };
            }
            _ if is_its => self.state = KeyState::Free,
            _ => return Vec::new(),
        }
        std::mem::take(&mut self.waiting)
    }
}

impl State {
    /// The call under which a call's `undo` is listed: the first one of its key.
    pub(super) fn undo_owner(&self, call: StepId) -> StepId {
        let owner = self.keyed.as_ref().and_then(|keyed| {
            let key = keyed.of_call.get(&call)?;
            Some(keyed.keys.get(key)?.first)
        });
        owner.unwrap_or(call)
    }
}

impl RunCore {
    /// Makes a keyed call known when it is first polled. `false` if another one has used its key before.
    pub(crate) fn register_keyed(
        &self,
        call: StepId,
        key: StepId,
        site: &'static Location<'static>,
        input: Digest,
    ) -> bool {
        let mut state = self.state();
        let keyed = state.keyed.get_or_insert_default();
        let in_use = keyed.keys.entry(key).or_insert_with(|| KeyInUse {
            first: call,
            site,
            input,
            state: KeyState::Free,
            waiting: Vec::new(),
        });
        if in_use.input == input {
            keyed.of_call.insert(call, key);
        }
        in_use.first == call
    }

    /// Says what a keyed call is to do now.
    pub(crate) fn keyed_turn(
        &self,
        call: StepId,
        key: StepId,
        input: Digest,
        waker: &Waker,
    ) -> KeyedTurn {
        let mut state = self.state();
        let keyed = state.keyed.get_or_insert_default();
        let Some(in_use) = keyed.keys.get_mut(&key) else {
            return KeyedTurn::Run;
        };
        if in_use.input != input {
            return KeyedTurn::OtherInput {
                first: in_use.input,
                site: in_use.site,
            };
        }
        match &in_use.state {
            KeyState::Done { value, by } => KeyedTurn::Known {
                value: value.clone(),
                by: *by,
            },
            KeyState::Busy(busy) if *busy != call => {
                if !in_use.waiting.iter().any(|known| known.will_wake(waker)) {
                    in_use.waiting.push(waker.clone());
                }
                KeyedTurn::Wait
            }
            KeyState::Busy(_) | KeyState::Free => {
                in_use.state = KeyState::Busy(call);
                KeyedTurn::Run
            }
        }
    }

    /// A call has its outcome, live or from the journal; nothing happens if it has no key. A value counts for all calls
    /// of the key, a failure frees it.
    pub(crate) fn keyed_outcome(&self, call: StepId, outcome: &Outcome) {
        self.end_keyed(call, Some(outcome));
    }

    /// A recorded outcome counts: it is delivered, or would be if its call were not gone.
    pub(crate) fn keyed_recorded(&self, delivery: &Delivery) {
        if let Recorded::Step(step) = &delivery.what
            && self.state().keyed.is_some()
        {
            self.keyed_outcome(step.id(), &step.whole().outcome);
        }
    }

    /// A call was answered by its key, with what `run` did.
    pub(crate) fn saw_duplicate_step(
        &self,
        run: RunId,
        site: &'static Location<'static>,
        same_input: bool,
    ) {
        if let Some(engine) = self.services.engine() {
            engine.duplicates.saw(
                run,
                DuplicateKind::Step,
                &Source::Line(site),
                DuplicateBody::same(same_input),
            );
        }
    }

    /// A keyed call is gone.
    pub(crate) fn drop_keyed(&self, call: StepId) {
        self.end_keyed(call, None);
    }

    fn end_keyed(&self, call: StepId, outcome: Option<&Outcome>) {
        let woken = {
            let mut state = self.state();
            let Some(keyed) = &mut state.keyed else {
                return;
            };
            let key = keyed.of_call.get(&call);
            let Some(in_use) = key.and_then(|key| keyed.keys.get_mut(key)) else {
                return;
            };
            in_use.end(call, outcome)
        };
        woken.iter().for_each(wake_by_engine);
    }
}
