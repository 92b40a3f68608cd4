//! Everything that expanded code may call, and nothing else.
//!
//! Owns no logic: it is the one door between the macros and the runtime. Nothing in here is
//! public API; it changes with the macros, which are pinned to the same version.

use std::future::Future;

pub use crate::call::args::{Journaled, StepArg, StepArgs, WorkflowArgs};
pub use crate::call::returns::{CarriesInterrupted, PlainReturn, Probe, ResultParts, Returns};
pub use crate::call::undo::{UndoCall, UndoFn, UndoFuture};
pub use crate::call::{
    Announced, Attempt, CodeChanges, EffectClass, Owned, Step, StepCall, StepDefinition, TypedStep,
    Workflow, WorkflowCall, WorkflowDefinition, blocking, step_call,
};
pub use crate::context::{ClosureScoped, Scoped};
pub use crate::diagram::Diagram;
pub use crate::engine::OnFailure;
pub use crate::engine::resources::MissingResource;
pub use crate::key::Key;
pub use crate::replay::{FreshFor, OnStale};
pub use crate::shape::{
    Callee, HelperDefinition, Named, Node, Shape, StepAbout, Target, WorkflowAbout,
};
pub use crate::store::Durability;
pub use crate::types::{PlainType, Returned, Tree, TypeProbe, UnseenReturn, UnseenType};

use crate::context::ScopeElement;

/// One `async` block of a workflow's body: its scope is claimed now, when it is made.
pub fn block_scope<F: Future>(future: F) -> Scoped<F> {
    Scoped::open(ScopeElement::Block, future)
}

/// The body of one async closure: its scope is claimed when it is first polled.
pub fn closure_scope<F: Future>(future: F) -> ClosureScoped<F> {
    ClosureScoped::new(future)
}

/// The body of an inline helper: its scope is claimed now, when it is made.
pub fn inline_scope<F: Future>(name: &'static str, future: F) -> Scoped<F> {
    Scoped::open(ScopeElement::Helper(name), future)
}
