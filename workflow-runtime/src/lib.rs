//! Durable workflows for Rust as two attributes.

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod call;
pub mod clock;
mod codec;
mod context;
mod determinism;
mod digest;
mod engine;
mod error;
mod ids;
pub mod journal;
mod key;
mod logs;
mod payload;
mod replay;
pub mod store;

pub use call::{Direct, Sleep, Step, StepCall, Workflow, WorkflowCall, sleep, sleep_until};
pub use context::{
    Scoped, StepMetadata, WorkflowMetadata, get_step_metadata, get_workflow_metadata, resource,
    scope, try_get_step_metadata, try_get_workflow_metadata,
};
pub use determinism::{Random, now, random, uuid};
pub use digest::Digest;
pub use engine::{
    Engine, EngineBuilder, EngineError, ParseCursorError, RunCursor, RunError, RunHandle,
    RunStatus, Runs, RunsPage, Shutdown, Start, Verification, Warning,
};
pub use error::{Error, Result, ResultExt};
pub use ids::{ParseIdError, RunId, StepId};
pub use key::Key;
pub use logs::HideReplayed;
pub use payload::{PayloadCodec, PayloadError};
pub use workflow_macros::{step, workflow};

/// Overrules the determinism check of a workflow for one expression.
///
/// The expression then has to be the same in every replay by other means.
#[macro_export]
macro_rules! nondeterministic {
    ($expression:expr) => {
        $expression
    };
}
