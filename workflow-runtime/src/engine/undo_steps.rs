//! The steps whose `undo` this process can find by name.
//!
//! A step that was called before a checkpoint is undone from its record, which names it and cannot hold a
//! function. Owns the table of functions: those that were registered, and those of steps that any run of this engine
//! has called. It never guesses: a name that stands for two steps of one module is answered with neither.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

use crate::call::undo::UndoFn;
use crate::call::{Step, StepDefinition};

/// How a step is undone: the function, and the names of the step's arguments.
#[derive(Clone, Copy)]
pub(crate) struct UndoWay {
    pub(crate) undo: UndoFn,
    pub(crate) args: &'static [&'static str],
}

impl UndoWay {
    /// The way of a step that has an `undo`.
    pub(crate) fn of(definition: &StepDefinition) -> Option<Self> {
        definition.undo.map(|undo| Self {
            undo,
            args: definition.args,
        })
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct UndoSteps {
    registered: HashMap<&'static str, &'static StepDefinition>,
    /// By name and module.
    called: Mutex<HashMap<(&'static str, &'static str), Called>>,
}

impl Clone for UndoSteps {
    /// Takes along what was registered: the rest is learned again.
    fn clone(&self) -> Self {
        Self {
            registered: self.registered.clone(),
            called: Mutex::default(),
        }
    }
}

/// What was called under a name.
enum Called {
    One(&'static StepDefinition),
    Several,
}

impl UndoSteps {
    /// Registers a step.
    ///
    /// # Errors
    ///
    /// If it has no `undo`, or another one has its name.
    pub(crate) fn register<S: Step>(&mut self) -> Result<(), String> {
        let step = S::DEFINITION;
        let name = step.name;
        if step.undo.is_none() {
            return Err(format!(
                "step `{name}` ({}:{}) has no `undo`: only a step that has one is registered, so that runs \
                 can undo it after a checkpoint; leave `.register_step` out",
                step.file, step.line
            ));
        }
        match self.registered.insert(name, step) {
            Some(other) if !is_same(other, step) => Err(format!(
                "two steps are registered as `{name}`: {}:{} and {}:{}; rename one with \
                 `#[step(name = \"…\")]`",
                other.file, other.line, step.file, step.line
            )),
            _ => Ok(()),
        }
    }

    /// A step with an `undo` was called.
    pub(crate) fn called(&self, step: &'static StepDefinition) {
        let mut called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        match called.entry((step.name, step.module)) {
            Entry::Vacant(free) => drop(free.insert(Called::One(step))),
            Entry::Occupied(mut known) => {
                if matches!(known.get(), Called::One(other) if !is_same(other, step)) {
                    known.insert(Called::Several);
                }
            }
        }
    }

    /// How a step is undone that was registered.
    pub(crate) fn registered(&self, name: &str) -> Option<UndoWay> {
        UndoWay::of(self.registered.get(name)?)
    }

    /// How a step is undone that was called, and that a module defines under a name.
    pub(crate) fn find(&self, name: &str, module: &str) -> Option<UndoWay> {
        let called = self.called.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = called.iter().filter(|(key, _)| **key == (name, module));
        match known.next() {
            Some((_, Called::One(step))) => UndoWay::of(step),
            Some((_, Called::Several)) | None => None,
        }
    }
}

fn is_same(one: &StepDefinition, other: &StepDefinition) -> bool {
    (one.file, one.line) == (other.file, other.line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Announced;

    fn undo(
        _: &crate::call::undo::UndoCall<'_>,
    ) -> Result<crate::call::undo::UndoFuture, crate::PayloadError> {
        Ok(Box::pin(async { Ok(()) }))
    }

    const fn defined(module: &'static str, line: u32) -> StepDefinition {
        StepDefinition {
            name: "reserve",
            args: &[],
            max_attempts: None,
            backoff: None,
            timeout: None,
            undo: Some(undo),
            effect: None,
            announced: Announced::No,
            fresh_for: None,
            durability: None,
            module,
            about: crate::shape::StepAbout::new(&[], "()"),
            file: "shop.rs",
            line,
        }
    }

    static HERE: StepDefinition = defined("shop::here", 1);
    static BESIDE: StepDefinition = defined("shop::here", 9);
    static ELSEWHERE: StepDefinition = defined("shop::elsewhere", 1);

    #[test]
    fn a_step_is_found_by_name_and_module_and_never_taken_for_another_of_its_name() {
        let steps = UndoSteps::default();
        steps.called(&HERE);
        steps.called(&HERE);
        assert!(steps.find("reserve", "shop::here").is_some());
        assert!(steps.find("reserve", "shop::elsewhere").is_none());
        steps.called(&ELSEWHERE);
        steps.called(&BESIDE);
        assert!(
            steps.find("reserve", "shop::here").is_none(),
            "two have the name"
        );
        assert!(steps.find("reserve", "shop::elsewhere").is_some());
    }
}
