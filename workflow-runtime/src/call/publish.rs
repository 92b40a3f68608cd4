//! Publishing: what a workflow says about itself to whoever asks.

use serde::Serialize;

use crate::context::current_scope;
use crate::engine::core::Trouble;
use crate::error::Error;

/// Publishes a value under a name, for readers outside the run.
///
/// Readers ([`RunHandle::published`](crate::RunHandle::published),
/// [`RunHandle::watch`](crate::RunHandle::watch)) see the latest value. It becomes durable with the run's
/// next write and costs no record; it is part of the run and goes with it.
///
/// ```
/// # use workflow_runtime::{Result, publish, step, workflow};
/// # #[step] async fn convert(_page: u32) -> Result<()> { Ok(()) }
/// #[workflow]
/// async fn convert_all(pages: u32) -> Result<()> {
///     for page in 0..pages {
///         publish("progress", &(page, pages));
///         convert(page).await?;
///     }
///     Ok(())
/// }
/// ```
///
/// A value that cannot be encoded fails the run.
///
/// # Panics
///
/// Panics outside a workflow.
#[track_caller]
pub fn publish<T: Serialize + ?Sized>(name: &str, value: &T) {
    let site = std::panic::Location::caller();
    let Some(scope) = current_scope() else {
        panic!(
            "publish(\"{name}\") at {site} was called outside a workflow: there is no run to publish for"
        )
    };
    let core = scope.core();
    match core.services.payloads.encode(value) {
        Ok(payload) => core.publish(name, payload),
        Err(problem) => core.trouble(Trouble::Fail(
            Error::fatal(problem).context(format!("what publish(\"{name}\") at {site} was given")),
        )),
    }
}
