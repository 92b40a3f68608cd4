//! Calls as values: what `charge(..)` and `checkout(..)` build.
//!
//! Owns the futures that a workflow awaits (`step`, `timer`), the value that an engine starts
//! (`workflow`), and how arguments and return values cross the journal (`args`, `returns`). A
//! call claims its id when it is made, registers when it is first polled, and becomes ready when
//! the driver delivers its outcome. It never writes to the journal itself.

mod abort;
mod advance;
pub(crate) mod args;
mod attempt;
mod begin;
mod checkpoint;
mod child;
mod continuing;
mod direct;
mod home;
mod hooks;
mod keyed;
pub(crate) mod outcome;
mod patch;
mod publish;
mod push;
mod race;
pub(crate) mod returns;
mod running;
mod signals;
#[cfg(feature = "testing")]
mod stand_in;
mod step;
mod timer;
pub(crate) mod undo;
mod workflow;

pub use abort::{Abort, abort, abort_keep};
pub use attempt::{Attempt, blocking};
pub use checkpoint::{CheckpointTaken, checkpoint};
pub use child::{ChildRun, WorkflowCall, start_child};
pub use continuing::{ContinueAsNew, continue_as_new};
pub use direct::Direct;
pub(crate) use hooks::OWN_STEPS;
pub use hooks::{CloseHook, Hook, TakeHook, hook};
pub use patch::{deprecate_patch, patched};
pub use publish::publish;
pub use push::{Outbox, outbox};
pub use race::{Elapsed, Timeout, timeout};
pub use signals::{Signals, WaitFor, signals, wait_for};
pub use step::{StepCall, step_call};
pub use timer::{Sleep, sleep, sleep_until};
pub use undo::undo_with;
pub use workflow::{Owned, Step, TypedStep, Workflow};

use std::time::Duration;

use crate::engine::OnFailure;
use crate::replay::FreshFor;
use crate::shape::{StepAbout, WorkflowAbout};
use crate::store::Durability;

/// What the macro knows of a step.
#[derive(Debug)]
pub struct StepDefinition {
    /// The name that ids are derived from.
    pub name: &'static str,
    /// Names of the journaled arguments, in order.
    pub args: &'static [&'static str],
    /// `max_attempts`.
    pub max_attempts: Option<u32>,
    /// `backoff`: the shortest and the longest wait.
    pub backoff: Option<(Duration, Duration)>,
    /// `timeout` of one attempt.
    pub timeout: Option<Duration>,
    /// `undo`: makes the call that takes it back.
    pub undo: Option<undo::UndoFn>,
    /// `effect`: what it does to the world. A classification; freshness asks for it.
    pub effect: Option<EffectClass>,
    /// `at_most_once` or `intent`: what is on record before the body starts.
    pub announced: Announced,
    /// `fresh_for` and `on_stale`.
    pub fresh_for: Option<FreshFor>,
    /// `durability`, where it is not the engine's.
    pub durability: Option<Durability>,
    /// The module that defines the step.
    pub module: &'static str,
    /// What it says about itself, for those who read code.
    pub about: StepAbout,
    /// Where the step is defined.
    pub file: &'static str,
    /// Where the step is defined.
    pub line: u32,
}

/// What a step does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EffectClass {
    /// Nothing: it looks.
    Read,
    /// It makes something.
    Create,
    /// It changes something.
    Update,
    /// It moves money.
    Payment,
    /// It tells somebody.
    Message,
}

/// What is on record before a step's body starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Announced {
    /// Nothing.
    No,
    /// Its intent; after a crash the body runs again.
    Intent,
    /// Its intent; the body is never run again.
    AtMostOnce,
}

/// What a replay makes of code that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeChanges {
    /// Code that does not fit the journal is parked.
    Strict,
    /// Calls that the journal does not know run as inserted steps.
    Tolerant,
}

/// What the macro knows of a workflow.
#[derive(Debug)]
pub struct WorkflowDefinition {
    /// The name that runs are recorded under.
    pub name: &'static str,
    /// The version that new runs are recorded with.
    pub version: u32,
    /// `changes`: what a replay makes of calls that the journal does not know.
    pub changes: CodeChanges,
    /// `key_ttl`: how long a run's key names it after its end.
    pub key_ttl: Option<Duration>,
    /// `on_failure`: whether the key of a run that did not complete is kept.
    pub on_failure: Option<OnFailure>,
    /// Names of the arguments, in order.
    pub args: &'static [&'static str],
    /// What it says about itself, for those who read code.
    pub about: WorkflowAbout,
    /// Where the workflow is defined.
    pub file: &'static str,
    /// Where the workflow is defined.
    pub line: u32,
}
