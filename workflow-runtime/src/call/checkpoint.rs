//! Checkpoints: a workflow that never ends begins anew with a state, and forgets the way to it.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Serialize;

use super::abort::Returned;
use super::home::refuse_outside;
use crate::context::current_scope;
use crate::engine::core::Trouble;
use crate::error::Error;
use crate::payload::Place;

/// Begins the workflow anew with a state: what came before is never replayed again.
///
/// For workflows that go on for ever. `state` becomes the workflow's argument; if it has several, give a
/// tuple of all of them. Await it: the workflow stops there, is dropped, and its function is called again. What it
/// costs to resume the run is bounded by what happened since.
///
/// ```
/// # use std::time::Duration;
/// # use workflow_runtime::{Result, checkpoint, sleep, step, workflow};
/// # #[step] async fn poll(_from: u64) -> Result<u64> { Ok(1) }
/// #[workflow]
/// async fn follow(from: u64) -> Result<()> {
///     let next = poll(from).await?;
///     sleep(Duration::from_secs(60)).await;
///     checkpoint(&next).await // `follow(next)`, in the same run
/// }
/// ```
///
/// Signals that were not taken, decided patches, hooks' tokens, started children and what is to be undone carry over:
/// if the run fails, aborts or is cancelled later, the steps of all passes are undone, the last one first. It fails the run
/// while calls are outstanding (in a `join!`, say), if a call is kept with
/// [`undo_with`](crate::undo_with), and if more than 32 MiB of signals wait that were not taken. A state that is not what the workflow takes parks the run.
///
/// # Panics
///
/// Panics when awaited outside a workflow.
#[track_caller]
pub fn checkpoint<T: Serialize + ?Sized>(state: &T) -> CheckpointTaken {
    let site = Location::caller();
    let encoded = current_scope().map(|scope| {
        let names = scope.core().argument_names();
        let core = scope.core();
        let payloads = core.services.payloads.at(Place::checkpoint(core.run()));
        payloads.encode_arguments(names, state).map_err(|problem| {
            Error::fatal(problem).context(format!("the state of the checkpoint at {site}"))
        })
    });
    CheckpointTaken { site, encoded }
}

/// The future of [`checkpoint`], which is never ready.
#[must_use = "the workflow goes on unless this is awaited"]
pub struct CheckpointTaken {
    site: &'static Location<'static>,
    encoded: Option<Result<bytes::Bytes, Error>>,
}

impl Future for CheckpointTaken {
    type Output = <fn() -> ! as Returned>::It;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let site = self.site;
        let Some(scope) = current_scope() else {
            refuse_outside(
                format_args!("checkpoint(..) at {site}"),
                "it begins a run's workflow anew",
            )
        };
        let core = scope.core();
        match self.encoded.take() {
            Some(Ok(input)) => match core.outstanding() {
                None => core.trouble(Trouble::Checkpoint(input)),
                Some(what) => core.trouble(Trouble::Fail(Error::fatal(format!(
                    "checkpoint(..) at {site} while {what}"
                )))),
            },
            Some(Err(error)) => core.trouble(Trouble::Fail(error)),
            None => {}
        }
        Poll::Pending
    }
}
