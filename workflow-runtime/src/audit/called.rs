//! The steps that began an attempt in this process: by them the audit notices those that no shape names.
//!
//! Owns a list that only grows by steps that were not seen before. A thread that has seen a step does not
//! look at the list again: a step that runs a million times takes its lock once per thread.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::call::StepDefinition;

/// A step that ran, and the workflow that it was first seen in.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) definition: &'static StepDefinition,
    pub(crate) workflow: Box<str>,
}

static CALLED: Mutex<Vec<Called>> = Mutex::new(Vec::new());

thread_local! {
    /// The definition that was remembered last: loops call the same step.
    static LAST: Cell<usize> = const { Cell::new(0) };
    /// Definitions by their addresses. A definition may have several; that costs a look at the list.
    static SEEN: RefCell<HashSet<usize>> = RefCell::default();
}

fn called() -> MutexGuard<'static, Vec<Called>> {
    CALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers that a step begins an attempt.
pub(crate) fn remember(definition: &'static StepDefinition, workflow: &str) {
    let address = std::ptr::from_ref(definition).addr();
    if LAST.replace(address) == address {
        return;
    }
    // While a thread ends there is no list of its own; then nothing is remembered.
    let new = SEEN.try_with(|seen| seen.borrow_mut().insert(address));
    if new.unwrap_or(false) {
        add(definition, workflow);
    }
}

#[cold]
fn add(definition: &'static StepDefinition, workflow: &str) {
    let mut all = called();
    if !all.iter().any(|it| same(it.definition, definition)) {
        all.push(Called {
            definition,
            workflow: workflow.into(),
        });
    }
}

/// Returns all that ran so far.
pub(crate) fn all() -> Vec<Called> {
    called().clone()
}

/// Says whether two definitions are of the same function.
pub(super) fn same(one: &StepDefinition, other: &StepDefinition) -> bool {
    (one.name, one.file, one.line) == (other.name, other.file, other.line)
}
