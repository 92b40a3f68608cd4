//! Calls as values: what `charge(..)` and `checkout(..)` build.
//!
//! Owns the futures that a workflow awaits (`step`, `timer`), the value that an engine starts
//! (`workflow`), and how arguments and return values cross the journal (`args`, `returns`). A
//! call claims its id when it is made, registers when it is first polled, and becomes ready when
//! the driver delivers its outcome. It never writes to the journal itself.

pub(crate) mod args;
mod attempt;
mod child;
mod direct;
mod home;
mod hooks;
pub(crate) mod outcome;
mod publish;
mod race;
pub(crate) mod returns;
mod running;
mod signals;
mod step;
mod timer;
mod workflow;

pub use attempt::{Attempt, blocking};
pub use child::{ChildRun, WorkflowCall, start_child};
pub use direct::Direct;
pub use hooks::{CloseHook, Hook, TakeHook, hook};
pub use publish::publish;
pub use race::{Elapsed, Timeout, timeout};
pub use signals::{Signals, WaitFor, signals, wait_for};
pub use step::{StepCall, step_call};
pub use timer::{Sleep, sleep, sleep_until};
pub use workflow::{Step, Workflow};

use std::time::Duration;

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
    /// Where the step is defined.
    pub file: &'static str,
    /// Where the step is defined.
    pub line: u32,
}

/// What the macro knows of a workflow.
#[derive(Debug)]
pub struct WorkflowDefinition {
    /// The name that runs are recorded under.
    pub name: &'static str,
    /// The version that new runs are recorded with.
    pub version: u32,
    /// Names of the arguments, in order.
    pub args: &'static [&'static str],
    /// Where the workflow is defined.
    pub file: &'static str,
    /// Where the workflow is defined.
    pub line: u32,
}
