//! The seam between an engine and a test that has it in its hands (feature `testing`).
//!
//! Owns what the engine asks of a test: what an attempt of a step is to do, and to be told when a run has
//! come to rest. Everything around an attempt (retries, timeouts, the journal) stays the engine's own. An
//! engine that no test has in its hands asks nobody.

use std::any::Any;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::obstacle::Obstacle;
use crate::call::StepDefinition;
use crate::clock::Timestamp;
use crate::ids::{RunId, StepId};
use crate::payload::Payloads;

/// A test that has an engine in its hands.
pub(crate) trait Tested: Send + Sync {
    /// Says what an attempt is to do.
    fn plan(&self, attempt: &PlannedAttempt, payloads: &Payloads) -> Plan;

    /// An attempt begins to do it.
    fn began(&self, attempt: PlannedAttempt, act: ActKind, at: Timestamp, payloads: &Payloads);

    /// What stands in for a body is at fault itself: says why the run cannot go on.
    fn at_fault(&self, attempt: &StepDefinition, message: &str) -> Obstacle;

    /// A run has been driven as far as it goes now.
    fn rested(&self);
}

/// An attempt that is about to begin.
#[derive(Debug, Clone)]
pub(crate) struct PlannedAttempt {
    pub(crate) definition: &'static StepDefinition,
    /// Where the workflow called the step.
    pub(crate) site: &'static Location<'static>,
    pub(crate) run: RunId,
    /// The call in its run.
    pub(crate) call: StepId,
    /// What the body sees as its id.
    pub(crate) step: StepId,
    pub(crate) attempt: u32,
    /// The arguments as a payload; `None` if they have none.
    pub(crate) input: Option<Bytes>,
}

/// What an attempt is to do.
pub(crate) struct Plan {
    /// How long it waits first.
    pub(crate) delay: Duration,
    pub(crate) act: Act,
}

/// What takes the place of a body.
pub(crate) enum Act {
    /// Nothing: the body runs.
    Body,
    /// This gives what the step returns, or says what is wrong with itself.
    StandIn(StandIn),
    /// Nothing can: the run is parked.
    Refuse(Obstacle),
}

/// Whether a body ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActKind {
    Body,
    StandIn,
}

/// Gives a value of the step's return type, boxed.
pub(crate) type StandIn =
    Pin<Box<dyn Future<Output = Result<Box<dyn Any + Send>, String>> + Send + 'static>>;

/// Tells the test that a run rests, when a poll of its driver is over.
pub(crate) struct TellRested(pub(crate) Arc<dyn Tested>);

impl Drop for TellRested {
    fn drop(&mut self) {
        self.0.rested();
    }
}
