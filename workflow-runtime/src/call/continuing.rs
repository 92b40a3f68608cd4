//! Continuing as a new run: a workflow that never ends goes on with a journal of its own, under a new id.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::abort::Returned;
use super::home::refuse_outside;
use super::{Workflow, WorkflowCall};
use crate::context::current_scope;
use crate::engine::EngineError;
use crate::engine::core::{RunCore, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::prepared::EncodedCall;
use crate::error::Error;
use crate::store::ParkReason;

/// Ends the run and goes on as a new one of the same workflow, with new arguments and an empty journal.
///
/// For workflows that go on for ever and whose past may be deleted one day; [`checkpoint`](crate::checkpoint) is
/// for those that are to stay one run. Await it: the workflow stops there and nothing after it runs.
///
/// ```
/// # use std::time::Duration;
/// # use workflow_runtime::{Result, continue_as_new, sleep, step, workflow};
/// # #[step] async fn bill(_month: u32) -> Result<()> { Ok(()) }
/// #[workflow]
/// async fn subscription(month: u32) -> Result<()> {
///     bill(month).await?;
///     sleep(Duration::from_secs(30 * 24 * 60 * 60)).await;
///     continue_as_new(subscription(month + 1)).await
/// }
/// ```
///
/// The runs are one *line*. Its key, the parent that waits for it, its slot in a queue, its schedule, the tokens that
/// it holds, what it published and the keys of signals it was sent belong to the line; signals that were not taken go
/// to the new run in their order. Whoever holds the id of any run of the line reaches the newest: a signal, a
/// cancellation, a pause; [`result`](crate::RunHandle::result) is that of the last one.
/// [`Engine::lineage`](crate::Engine::lineage) shows the line. Patches are decided anew, and the version may be
/// another one: it is that of the function that is called here.
///
/// It fails the run if the call is of a workflow of another name, while calls are outstanding (in a `join!`, say), if
/// there are steps to undo, and if the call was given a key or detached.
///
/// # Panics
///
/// Panics when awaited outside a workflow.
#[track_caller]
pub fn continue_as_new<W: Workflow>(call: WorkflowCall<W>) -> ContinueAsNew {
    let site = Location::caller();
    let encoded = current_scope().map(|scope| {
        let core = scope.core();
        encode(core, &call, site).map_err(Box::new)
    });
    ContinueAsNew { site, encoded }
}

/// The future of [`continue_as_new`], which is never ready.
#[must_use = "the workflow goes on unless this is awaited"]
pub struct ContinueAsNew {
    site: &'static Location<'static>,
    encoded: Option<Result<EncodedCall, Box<Trouble>>>,
}

fn encode<W: Workflow>(
    core: &RunCore,
    call: &WorkflowCall<W>,
    site: &'static Location<'static>,
) -> Result<EncodedCall, Trouble> {
    let refuse = |problem: String| {
        let message = format!("continue_as_new(..) at {site}: {problem}");
        Trouble::Fail(Error::fatal(message))
    };
    let (own, other) = (&*core.identity().workflow_name, W::DEFINITION.name);
    if own != other {
        return Err(refuse(format!(
            "a run of `{own}` cannot go on as one of `{other}`: call `{own}`, or start `{other}` as a child"
        )));
    }
    if call.is_configured() {
        return Err(refuse(
            "the call has a key or is detached, but the new run keeps the key, the parent and the place of this \
             one: give the call as it is"
                .to_owned(),
        ));
    }
    EncodedCall::new::<W>(&core.services, &call.input).map_err(|error| match error {
        EngineError::NotRegistered { .. } => {
            let report = format!("continue_as_new(..) at {site}: {error}");
            Trouble::Park(Obstacle::new(ParkReason::Unregistered, report))
        }
        error => refuse(error.to_string()),
    })
}

impl Future for ContinueAsNew {
    type Output = <fn() -> ! as Returned>::It;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let site = self.site;
        let Some(scope) = current_scope() else {
            refuse_outside(
                format_args!("continue_as_new(..) at {site}"),
                "it ends a run and begins the next one",
            )
        };
        let core = scope.core();
        match self.encoded.take() {
            Some(Ok(call)) => core.trouble(match core.outstanding() {
                // What would have to be undone is in this run's journal, and the new run has its own.
                _ if core.has_undo() => Trouble::Fail(Error::fatal(format!(
                    "continue_as_new(..) at {site} while there are steps to undo, which the new run would not \
                     know of: do what may have to be undone in a child workflow, and await that"
                ))),
                None => Trouble::Continue(call),
                Some(what) => Trouble::Fail(Error::fatal(format!(
                    "continue_as_new(..) at {site} while {what}"
                ))),
            }),
            Some(Err(trouble)) => core.trouble(*trouble),
            None => {}
        }
        Poll::Pending
    }
}
