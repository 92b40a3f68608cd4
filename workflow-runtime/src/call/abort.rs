//! Ending a run from within, neither well nor badly.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::context::current_scope;
use crate::engine::core::Trouble;
use crate::journal::RunAborted;

/// Names the type of what never comes: `!`.
pub trait Returned {
    /// What is returned.
    type It;
}

impl<T> Returned for fn() -> T {
    type It = T;
}

/// Ends the run as *aborted*, with a reason: neither a success nor a failure, but not wanted any more.
///
/// Await it: the workflow stops there and nothing after it runs. What was done is undone, as on a
/// failure; [`abort_keep`] leaves it. `result()` gives `RunError::Aborted`.
///
/// ```
/// # use workflow_runtime::{Result, abort, step, workflow};
/// # #[step] async fn edge() -> Result<Option<u32>> { Ok(Some(1)) }
/// # #[step] async fn trade(_edge: u32) -> Result<u32> { Ok(1) }
/// #[workflow]
/// async fn take() -> Result<u32> {
///     let edge = match edge().await? {
///         Some(edge) => edge,
///         None => abort("edge expired").await,
///     };
///     trade(edge).await
/// }
/// ```
///
/// # Panics
///
/// Panics when awaited outside a workflow.
pub fn abort(reason: impl Into<String>) -> Abort {
    Abort {
        reason: reason.into(),
        kept: false,
    }
}

/// Ends the run as *aborted*, like [`abort`], and leaves what was done as it is.
///
/// # Panics
///
/// Panics when awaited outside a workflow.
pub fn abort_keep(reason: impl Into<String>) -> Abort {
    Abort {
        reason: reason.into(),
        kept: true,
    }
}

/// The future of [`abort`], which is never ready.
#[must_use = "the run goes on unless this is awaited"]
#[derive(Debug)]
pub struct Abort {
    reason: String,
    kept: bool,
}

impl Future for Abort {
    type Output = <fn() -> ! as Returned>::It;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(scope) = current_scope() else {
            panic!(
                "abort(..) was awaited outside a workflow: it ends a run; return an error instead"
            )
        };
        scope.core().trouble(Trouble::Abort(RunAborted {
            reason: self.reason.as_str().into(),
            kept: self.kept,
        }));
        Poll::Pending
    }
}
