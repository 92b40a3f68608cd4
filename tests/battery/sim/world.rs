//! The world outside of the simulated runs: what was done under which key, and who did what must not be done.
//!
//! Owns the effects. It outlives every process of a case, as the world does, and never knows why it is asked.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use workflow_runtime::{RunId, StepId, get_step_metadata};

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) run: RunId,
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    pub(crate) given: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Done,
    Undone,
}

/// The outside world.
#[derive(Debug, Default)]
pub(crate) struct World(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    effects: BTreeMap<StepId, Effect>,
    /// Every time a body ran: the step and its attempt.
    asked: Vec<(StepId, u32)>,
    /// Steps whose outcome was on record when this process began.
    settled: HashSet<StepId>,
    violations: Vec<String>,
}

impl World {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under the id of the running step, once.
    pub(crate) fn act(&self, kind: Kind, tag: u64, given: u64) {
        let meta = get_step_metadata();
        let effect = Effect {
            run: meta.run_id,
            kind,
            tag,
            given,
        };
        let mut book = self.book();
        book.asked.push((meta.step_id, meta.attempt));
        if book.settled.contains(&meta.step_id) {
            let again = format!(
                "6: {} ran again, and its outcome was on record",
                meta.step_id
            );
            book.violations.push(again);
        }
        let first = *book.effects.entry(meta.step_id).or_insert(effect);
        if first != effect {
            let two = format!(
                "5: {} is the id of {first:?} and of {effect:?}",
                meta.step_id
            );
            book.violations.push(two);
        }
    }

    /// Lets a new process begin: these steps are not to run any more.
    pub(crate) fn begin_process(&self, settled: HashSet<StepId>) {
        self.book().settled = settled;
    }

    /// What was done under an id.
    pub(crate) fn effect(&self, step: StepId) -> Option<Effect> {
        self.book().effects.get(&step).copied()
    }

    /// Everything that was done, by id.
    pub(crate) fn effects(&self) -> Vec<(StepId, Effect)> {
        self.book()
            .effects
            .iter()
            .map(|(id, effect)| (*id, *effect))
            .collect()
    }

    /// How often which body ran.
    pub(crate) fn asked(&self) -> Vec<(StepId, u32)> {
        self.book().asked.clone()
    }

    /// What was done that must not be.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.book().violations.clone()
    }
}
