//! What the macros implement for the types that bear a function's name.

use std::future::Future;

use super::args::WorkflowArgs;
use super::returns::Returns;
use super::{StepDefinition, WorkflowDefinition};

/// Implemented by `#[workflow]` for the type that bears the function's name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    note = "annotate the function with `#[workflow]` and name it by its own name, as in `register::<checkout>()`"
)]
pub trait Workflow: Sized + Send + Sync + 'static {
    /// What the macro knows of the workflow.
    #[doc(hidden)]
    const DEFINITION: &'static WorkflowDefinition;
    /// The arguments, as a tuple.
    type Input: WorkflowArgs;
    /// The function's return type.
    type Output: Send + 'static;
    /// What success gives.
    type Ok;
    /// What failure gives; `Infallible` if the function returns no `Result`.
    type Error;

    #[doc(hidden)]
    fn returns() -> Returns<Self::Output>;
    #[doc(hidden)]
    fn run(input: Self::Input) -> impl Future<Output = Self::Output> + Send + 'static;
    #[doc(hidden)]
    fn split(output: Self::Output) -> Result<Self::Ok, Self::Error>;
}

/// Implemented by `#[step]` for the type that bears the function's name.
pub trait Step: Sized + 'static {
    /// What the macro knows of the step.
    #[doc(hidden)]
    const DEFINITION: &'static StepDefinition;
}
