//! Undoing: the calls that take back what steps have done.
//!
//! Owns the glue between a step and the step named by its `undo`, and the futures that the driver
//! runs when a run fails, aborts or is cancelled.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use serde::de::DeserializeOwned;

use super::StepCall;
use super::args::{WorkflowArgs, WorkflowArgsSeed};
use crate::error::Error;
use crate::ids::StepId;
use crate::payload::{PayloadError, Payloads};

/// Undoes one thing; says whether that failed.
pub type UndoFuture = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Makes the call that undoes a step, from what the step was given and gave.
pub type UndoFn = fn(&UndoCall<'_>) -> Result<UndoFuture, PayloadError>;

/// What the undoing of a step is given.
pub struct UndoCall<'a> {
    pub(crate) input_payloads: Payloads,
    pub(crate) output_payloads: Payloads,
    pub(crate) args: &'static [&'static str],
    pub(crate) input: &'a [u8],
    pub(crate) output: Option<&'a [u8]>,
    pub(crate) step: StepId,
}

impl UndoCall<'_> {
    /// The arguments of the step, as the undoing step takes them.
    ///
    /// # Errors
    ///
    /// If they cannot be read as that.
    pub fn input<A: WorkflowArgs>(&self) -> Result<A, PayloadError> {
        let seed = WorkflowArgsSeed::<A>(self.args, PhantomData);
        self.input_payloads.decode_seed(seed, self.input)
    }

    /// What the step gave, if it succeeded.
    ///
    /// # Errors
    ///
    /// If it cannot be read as that.
    pub fn output<T: DeserializeOwned>(&self) -> Result<Option<T>, PayloadError> {
        let decoded = self
            .output
            .map(|output| self.output_payloads.decode(output));
        decoded.transpose()
    }

    /// The call, identified by the step that it undoes.
    pub fn run<R: Send + 'static>(&self, call: StepCall<'static, R>) -> UndoFuture {
        call.key(self.step.to_string()).into_undo()
    }
}

/// Keeps a call for the case that the run fails, aborts or is cancelled: then it is run, in its place
/// in the reverse order of what was done. If the run completes, it is never run.
///
/// It is for what `#[step(undo = …)]` cannot say, because the undoing needs more than the step's own
/// input and output. Its arguments are owned.
///
/// ```
/// # use workflow_runtime::{Result, step, undo_with, workflow};
/// # #[step] async fn reserve(_item: &str) -> Result<u32> { Ok(1) }
/// #[step]
/// async fn release(reservation: u32, note: String) -> Result<()> {
///     Ok(())
/// }
///
/// #[workflow]
/// async fn order(item: String, customer: String) -> Result<u32> {
///     let reservation = reserve(&item).await?;
///     undo_with(release(reservation, format!("{customer} did not pay")));
///     // …
///     Ok(reservation)
/// }
/// ```
///
/// # Panics
///
/// Panics outside a workflow.
pub fn undo_with<R: Send + 'static>(call: StepCall<'static, R>) {
    call.keep_for_undo();
}
