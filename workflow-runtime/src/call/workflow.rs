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

/// A step whose types are the same in every call: what tests need to stand in for it.
///
/// Implemented by `#[step]` beside [`Step`], except for functions with type or const parameters or `impl Trait`
/// arguments.
#[diagnostic::on_unimplemented(
    message = "the types of step `{Self}` are not known: it is generic, or no step",
    label = "not a step with types of its own",
    note = "a stub is given and gives values of one type: give it the name of a `#[step]` function without type parameters and without `impl Trait` or `dyn` arguments; for a generic step, call it from a step that is not, or give it a fake `#[resource]`"
)]
pub trait TypedStep: Step {
    /// What it is given: nothing, the only argument, or a tuple of all; owned where the function borrows.
    type Input;
    /// What the function returns.
    type Output;
}

/// What owns a borrowed argument, once it was read back.
pub trait Owned {
    /// The type that owns it.
    type Owned;
}

impl<T> Owned for T {
    type Owned = T;
}

impl<T> Owned for [T] {
    type Owned = Vec<T>;
}

impl Owned for str {
    type Owned = String;
}

impl Owned for std::path::Path {
    type Owned = std::path::PathBuf;
}

impl Owned for std::ffi::OsStr {
    type Owned = std::ffi::OsString;
}

impl Owned for std::ffi::CStr {
    type Owned = std::ffi::CString;
}
