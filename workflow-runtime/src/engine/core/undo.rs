//! What a run would have to undo, in the order in which it was done.
//!
//! Owns the list of steps with an `undo` that may have had an effect, and of calls that the workflow
//! kept for that case. The list is built from the calls that the code makes, live and in replay
//! alike, so a resumed run has the same one. When and in which order undoing runs is the driver's
//! business.

use std::borrow::Cow;

use bytes::Bytes;

use super::RunCore;
use crate::call::StepDefinition;
use crate::call::undo::{UndoCall, UndoFuture};
use crate::engine::undo_steps::UndoWay;
use crate::id_map::IdMap;
use crate::ids::StepId;
use crate::journal::{CarriedUndo, Outcome, UndoCarried, UndoStep};
use crate::payload::{PayloadError, Payloads, Place};
use crate::replay::{Owed, RecordedStep};

/// The bytes of steps in one record, about: far below what a store takes in one write. What is more goes into
/// further records, or is left out where it is for readers only.
const RECORD_BYTES: usize = 8 * 1024 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct UndoLog {
    /// Steps that may have begun and have no outcome, in the order in which they were called.
    open: Vec<Undo>,
    /// Steps that have one, in the order of their outcomes, and kept calls.
    done: Vec<Undo>,
    /// What earlier passes did; it is in the journal, and not kept here.
    owed: Option<Owed>,
}

/// One thing to be undone.
pub(crate) struct Undo {
    pub(crate) step: StepId,
    pub(crate) name: Cow<'static, str>,
    how: How,
}

enum How {
    /// By the step that was named, given input and output.
    ByStep {
        way: UndoWay,
        /// The module that defines the step.
        module: Cow<'static, str>,
        input: Bytes,
        output: Option<Bytes>,
    },
    /// By a call that the workflow made for the purpose.
    ByCall(UndoFuture),
}

impl UndoLog {
    /// A call gave a value under a key of which an earlier call has failed: they are undone as one, with that value.
    fn give_output(&mut self, step: StepId, outcome: &Outcome) {
        let done = self.done.iter_mut().find(|done| done.step == step);
        if let (
            Some(Undo {
                how: How::ByStep { output, .. },
                ..
            }),
            Some(value),
        ) = (done, outcome.value())
        {
            output.get_or_insert_with(|| value.clone());
        }
    }
}

impl Undo {
    /// A step of an earlier pass.
    pub(crate) fn carried(step: CarriedUndo, way: UndoWay) -> Self {
        let how = How::ByStep {
            way,
            module: Cow::Owned(step.module.into()),
            input: step.input,
            output: step.output,
        };
        Self {
            step: step.step,
            name: Cow::Owned(step.name.into()),
            how,
        }
    }

    /// What the journal says about all of these. Called while none is begun. Inputs are for readers; those that
    /// are too much for one record are left out.
    pub(crate) fn described(all: &[Self]) -> Vec<UndoStep> {
        let mut room = RECORD_BYTES;
        let described = all.iter().map(|undo| {
            let (input, completed) = match &undo.how {
                How::ByStep { input, output, .. } => (Some(input), output.is_some()),
                How::ByCall(_) => (None, true),
            };
            let input = input.filter(|input| input.len() <= room);
            room -= input.map_or(0, Bytes::len);
            UndoStep {
                step: undo.step,
                name: (*undo.name).into(),
                input: input.cloned(),
                completed,
            }
        });
        described.collect()
    }

    /// What a checkpoint says about it; nothing about a kept call.
    fn into_carried(self) -> Option<CarriedUndo> {
        match self.how {
            How::ByStep {
                module,
                input,
                output,
                ..
            } => Some(CarriedUndo {
                step: self.step,
                name: (*self.name).into(),
                module: (*module).into(),
                input,
                output,
            }),
            How::ByCall(_) => None,
        }
    }

    /// Makes the call that undoes it. Called inside the run's context.
    pub(crate) fn begin(self, payloads: &Payloads) -> Result<UndoFuture, PayloadError> {
        match self.how {
            How::ByCall(future) => Ok(future),
            How::ByStep {
                way, input, output, ..
            } => (way.undo)(&UndoCall {
                input_payloads: payloads.at(Place::step_input(self.step)),
                output_payloads: payloads.at(Place::step_outcome(self.step)),
                args: way.args,
                input: &input,
                output: output.as_deref(),
                step: self.step,
            }),
        }
    }
}

impl UndoLog {
    /// Leaves a pass behind that began with a record: what it did is written down from the next record on, and
    /// owed.
    pub(super) fn carry(&mut self, since: u64, next: u64) -> Vec<UndoCarried> {
        let mut left = std::mem::take(&mut self.done);
        left.append(&mut self.open);
        let mut records: Vec<UndoCarried> = Vec::new();
        let mut room = 0;
        for step in left.into_iter().filter_map(Undo::into_carried) {
            let bytes = step.input.len() + step.output.as_ref().map_or(0, Bytes::len);
            if records.is_empty() || bytes > room {
                let before = self.owed.map(|owed| owed.newest);
                records.push(UndoCarried {
                    since,
                    steps: Vec::new(),
                    owed: 0,
                    before,
                });
                room = RECORD_BYTES.max(bytes);
            }
            room -= bytes;
            let (newest, steps) = (
                next + records.len() as u64 - 1,
                self.owed.map_or(0, |owed| owed.steps),
            );
            self.owed = Some(Owed {
                newest,
                steps: steps + 1,
            });
            if let Some(record) = records.last_mut() {
                record.steps.push(step);
                record.owed = steps + 1;
            }
        }
        if let (true, Some(owed)) = (records.is_empty(), self.owed) {
            records.push(UndoCarried {
                since,
                steps: Vec::new(),
                owed: owed.steps,
                before: Some(owed.newest),
            });
        }
        records
    }
}

impl RunCore {
    /// A step with an `undo` was called: from now on it may have begun.
    pub(crate) fn register_undo(
        &self,
        step: StepId,
        definition: &'static StepDefinition,
        way: UndoWay,
        input: Bytes,
    ) {
        self.services.undo_steps.called(definition);
        let how = How::ByStep {
            way,
            module: Cow::Borrowed(definition.module),
            input,
            output: None,
        };
        let name = Cow::Borrowed(definition.name);
        self.undo_log(|log| log.open.push(Undo { step, name, how }));
    }

    /// The workflow kept a call for the case that the run has to be undone.
    pub(crate) fn keep_undo(&self, step: StepId, name: &'static str, call: UndoFuture) {
        let (how, name) = (How::ByCall(call), Cow::Borrowed(name));
        self.undo_log(|log| log.done.push(Undo { step, name, how }));
    }

    /// A step has its outcome; nothing happens if it has no `undo`.
    pub(crate) fn complete_undo(&self, step: StepId, outcome: &Outcome) {
        let owner = self.state().undo_owner(step);
        let moved = self.undo_output(step, owner, outcome);
        let outcome = moved.as_ref().unwrap_or(outcome);
        let step = owner;
        let mut state = self.state();
        let Some(log) = state
            .outside
            .as_mut()
            .and_then(|outside| outside.undo.as_mut())
        else {
            return;
        };
        let Some(at) = log.open.iter().position(|open| open.step == step) else {
            log.give_output(step, outcome);
            return;
        };
        let mut done = log.open.remove(at);
        if let (How::ByStep { output, .. }, Some(payload)) = (&mut done.how, outcome.value()) {
            *output = Some(payload.clone());
        }
        log.done.push(done);
    }

    /// The same for an outcome on record.
    pub(crate) fn complete_recorded_undo(&self, step: &RecordedStep) {
        let undoes = {
            let state = self.state();
            let outside = state.outside.as_ref();
            outside.is_some_and(|outside| outside.undo.is_some())
        };
        if undoes {
            self.complete_undo(step.id(), &step.whole().outcome);
        }
    }

    /// What a call of another call's key gave, as a payload of that call. Without a lock: the codec is a user's.
    fn undo_output(&self, call: StepId, owner: StepId, outcome: &Outcome) -> Option<Outcome> {
        let payloads = self.services.payloads.at(Place::step_outcome(owner));
        if call == owner || !payloads.binds() {
            return None;
        }
        let moved = payloads.moved_from(Place::step_outcome(call), outcome.value()?);
        moved.ok().map(Outcome::Ok) // one that cannot be opened parks the run when it is undone
    }

    /// Says whether anything would have to be undone.
    pub(crate) fn has_undo(&self) -> bool {
        let state = self.state();
        let log = state
            .outside
            .as_ref()
            .and_then(|outside| outside.undo.as_ref());
        log.is_some_and(|log| !log.open.is_empty() || !log.done.is_empty() || log.owed.is_some())
    }

    /// A call that was kept to undo something, if there is one: nothing finds it again after a checkpoint.
    pub(super) fn kept_call(&self) -> Option<Cow<'static, str>> {
        let state = self.state();
        let log = state.outside.as_ref()?.undo.as_ref()?;
        let kept = |undo: &&Undo| matches!(undo.how, How::ByCall(_));
        log.done.iter().find(kept).map(|undo| undo.name.clone())
    }

    /// How the steps are undone that the code has called.
    pub(crate) fn undo_ways(&self) -> IdMap<StepId, UndoWay> {
        let state = self.state();
        let outside = state.outside.as_ref();
        let Some(log) = outside.and_then(|outside| outside.undo.as_ref()) else {
            return IdMap::default();
        };
        let ways = log.open.iter().chain(&log.done);
        ways.filter_map(|undo| match &undo.how {
            How::ByStep { way, .. } => Some((undo.step, *way)),
            How::ByCall(_) => None,
        })
        .collect()
    }

    /// What earlier passes did is to be undone if the run does not complete.
    pub(crate) fn owe(&self, owed: Owed) {
        self.undo_log(|log| log.owed = Some(owed));
    }

    /// How many steps of earlier passes would have to be undone.
    pub(crate) fn owed_steps(&self) -> u64 {
        let state = self.state();
        let outside = state.outside.as_ref();
        let log = outside.and_then(|outside| outside.undo.as_ref());
        let owed = log.and_then(|log| log.owed);
        owed.map_or(0, |owed| owed.steps)
    }

    /// Takes what is to be undone: first what has no outcome, the newest first, then the rest in
    /// reverse order of completion. Beside it the record that has what earlier passes did.
    pub(crate) fn take_undo(&self) -> (Vec<Undo>, Option<u64>) {
        let mut state = self.state();
        let log = state
            .outside
            .as_mut()
            .and_then(|outside| outside.undo.take());
        let Some(mut log) = log else {
            return (Vec::new(), None);
        };
        let mut all = log.done;
        all.append(&mut log.open);
        all.reverse();
        (all, log.owed.map(|owed| owed.newest))
    }

    fn undo_log(&self, change: impl FnOnce(&mut UndoLog)) {
        let mut state = self.state();
        let outside = state.outside.get_or_insert_default();
        change(outside.undo.get_or_insert_default());
    }
}
