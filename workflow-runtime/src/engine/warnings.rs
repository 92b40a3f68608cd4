//! What is suspicious but stops nothing: the newest warnings of an engine, by run, schedule or queue.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ids::RunId;

/// How many warnings are kept; older ones are only in the log.
const KEPT: usize = 256;

/// Something suspicious about a run, a schedule or a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The run; `None` if it is about a schedule or a queue, which the message names.
    pub run: Option<RunId>,
    /// Its workflow; empty if that is not known.
    pub workflow: Arc<str>,
    /// What is suspicious, and what to do.
    pub message: Cow<'static, str>,
}

impl Warning {
    pub(crate) const FOREIGN_WAKE: &'static str = "the workflow was woken by something that is \
        not the engine (a tokio timer, a channel, a spawned task): a replay cannot repeat that; \
        move it into a step or use the durable replacement";
    pub(crate) const WAITS_ON_NOTHING: &'static str = "the workflow waits, but for nothing that is \
        journaled: it cannot be resumed from there; move what it waits for into a step, or use \
        `workflow_runtime::sleep`";
    pub(crate) fn undo_failed(step: &str) -> String {
        format!(
            "undoing `{step}` failed for good: what it did is still there, and a person has to take it \
             back; the journal has the error, and the other steps were undone all the same"
        )
    }

    pub(crate) fn unpolled(step: &str, site: &Location<'_>) -> String {
        format!(
            "step `{step}` at {site} could go on, but the workflow has not polled its call for a \
             second: it holds the future without awaiting it; await it together with what it \
             waits for (`join!`, `select`)"
        )
    }

    pub(crate) fn left_over(count: usize, first: &str, ended: bool) -> String {
        if ended {
            format!(
                "recorded outcomes that were never asked for: {count}, the first of {first}: the \
                 code no longer makes these calls; what they did stays done"
            )
        } else {
            format!(
                "recorded outcomes that are not asked for yet: {count}, the first of {first}: calls \
                 that the journal does not know run before them, or the code no longer makes \
                 these calls"
            )
        }
    }

    pub(crate) const LONG_PASS: &'static str = "the run has 10,000 records since it began or since its last \
        checkpoint, and every resume replays all of them: let it begin anew with \
        `checkpoint(&state).await`, or move parts of it into child workflows";
    pub(crate) const MANY_OWED: &'static str = "10,000 steps of earlier passes are to be undone if the run does not \
        complete: each stays in its journal, and undoing them takes one step each; do what can be undone in child \
        workflows, which end";
    pub(crate) const REORDERED_INPUT: &'static str = "a step's input differs from the journal only \
        in the order of a sequence (a HashSet?): the recorded outcome is used; sort it, or use a \
        BTreeSet";
    pub(crate) const OTHER_FIELDS: &'static str = "a step's input has fields that the journal's \
        does not have, or the other way round, and is otherwise equal: the recorded outcome is used";
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run {
            Some(run) => write!(f, "{run} ({}): {}", self.workflow, self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The newest warnings.
#[derive(Default)]
pub(crate) struct Warnings(Mutex<VecDeque<Warning>>);

impl Warnings {
    pub(crate) fn push(&self, warning: Warning) {
        match warning.run {
            Some(run) => {
                tracing::warn!(%run, workflow = &*warning.workflow, "{}", warning.message);
            }
            None => tracing::warn!(workflow = &*warning.workflow, "{}", warning.message),
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(warning);
    }

    pub(crate) fn list(&self) -> Vec<Warning> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().cloned().collect()
    }
}
