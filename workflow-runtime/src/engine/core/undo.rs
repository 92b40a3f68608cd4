//! What a run would have to undo, in the order in which it was done.
//!
//! Owns the list of steps with an `undo` that may have had an effect, and of calls that the workflow
//! kept for that case. The list is built from the calls that the code makes, live and in replay
//! alike, so a resumed run has the same one. When and in which order undoing runs is the driver's
//! business.

use bytes::Bytes;

use super::RunCore;
use crate::call::undo::{UndoCall, UndoFn, UndoFuture};
use crate::ids::StepId;
use crate::journal::{Outcome, UndoStep};
use crate::payload::{PayloadError, Payloads};

/// See the module.
#[derive(Default)]
pub(super) struct UndoLog {
    /// Steps that may have begun and have no outcome, in the order in which they were called.
    open: Vec<Undo>,
    /// Steps that have one, in the order of their outcomes, and kept calls.
    done: Vec<Undo>,
}

/// One thing to be undone.
pub(crate) struct Undo {
    pub(crate) step: StepId,
    pub(crate) name: &'static str,
    how: How,
}

enum How {
    /// By the step that was named, given input and output.
    ByStep {
        undo: UndoFn,
        args: &'static [&'static str],
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
            Outcome::Ok(value),
        ) = (done, outcome)
        {
            output.get_or_insert_with(|| value.clone());
        }
    }
}

impl Undo {
    /// What the journal says about it. Called while it is not begun.
    pub(crate) fn described(&self) -> UndoStep {
        let (input, completed) = match &self.how {
            How::ByStep { input, output, .. } => (Some(input.clone()), output.is_some()),
            How::ByCall(_) => (None, true),
        };
        UndoStep {
            step: self.step,
            name: self.name.into(),
            input,
            completed,
        }
    }

    /// Makes the call that undoes it. Called inside the run's context.
    pub(crate) fn begin(self, payloads: &Payloads) -> Result<UndoFuture, PayloadError> {
        match self.how {
            How::ByCall(future) => Ok(future),
            How::ByStep {
                undo,
                args,
                input,
                output,
            } => undo(&UndoCall {
                payloads,
                args,
                input: &input,
                output: output.as_deref(),
                step: self.step,
            }),
        }
    }
}

impl RunCore {
    /// A step with an `undo` was called: from now on it may have begun.
    pub(crate) fn register_undo(
        &self,
        step: StepId,
        name: &'static str,
        undo: UndoFn,
        args: &'static [&'static str],
        input: Bytes,
    ) {
        let how = How::ByStep {
            undo,
            args,
            input,
            output: None,
        };
        self.undo_log(|log| log.open.push(Undo { step, name, how }));
    }

    /// The workflow kept a call for the case that the run has to be undone.
    pub(crate) fn keep_undo(&self, step: StepId, name: &'static str, call: UndoFuture) {
        let how = How::ByCall(call);
        self.undo_log(|log| log.done.push(Undo { step, name, how }));
    }

    /// A step has its outcome; nothing happens if it has no `undo`.
    pub(crate) fn complete_undo(&self, step: StepId, outcome: &Outcome) {
        let mut state = self.state();
        let step = state.undo_owner(step);
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
        if let (How::ByStep { output, .. }, Outcome::Ok(payload)) = (&mut done.how, outcome) {
            *output = Some(payload.clone());
        }
        log.done.push(done);
    }

    /// Says whether anything would have to be undone.
    pub(crate) fn has_undo(&self) -> bool {
        let state = self.state();
        let log = state
            .outside
            .as_ref()
            .and_then(|outside| outside.undo.as_ref());
        log.is_some_and(|log| !log.open.is_empty() || !log.done.is_empty())
    }

    /// Takes what is to be undone: first what has no outcome, the newest first, then the rest in
    /// reverse order of completion.
    pub(crate) fn take_undo(&self) -> Vec<Undo> {
        let mut state = self.state();
        let log = state
            .outside
            .as_mut()
            .and_then(|outside| outside.undo.take());
        let Some(mut log) = log else {
            return Vec::new();
        };
        let mut all = log.done;
        all.append(&mut log.open);
        all.reverse();
        all
    }

    fn undo_log(&self, change: impl FnOnce(&mut UndoLog)) {
        let mut state = self.state();
        let outside = state.outside.get_or_insert_default();
        change(outside.undo.get_or_insert_default());
    }
}
