//! Publishing: what a workflow says about itself to whoever asks.

use serde::Serialize;

use super::home::refuse_outside;
use crate::context::current_scope;
use crate::engine::core::Trouble;
use crate::engine::letters::check_name;
use crate::error::Error;
use crate::payload::Place;
use crate::store::NoteChange;

/// The most bytes of a published value: what a store keeps in one note. Found out here, because a store that
/// is given more refuses the whole write, and the run could not go on.
const LARGEST: usize = NoteChange::MAX_VALUE_BYTES;

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
/// After a crash, what was published last is published again: a reader sees no older value for long, and
/// never one of another run. A value that cannot be encoded, or takes more than 256 KiB, fails the run, and
/// so does a name that is empty or longer than 256 bytes.
///
/// # Panics
///
/// Panics outside a workflow.
#[track_caller]
pub fn publish<T: Serialize + ?Sized>(name: &str, value: &T) {
    let site = std::panic::Location::caller();
    let Some(scope) = current_scope() else {
        refuse_outside(
            format_args!("publish(\"{name}\") at {site}"),
            "there is no run to publish for; call it in the workflow",
        )
    };
    let core = scope.core();
    if let Err(problem) = check_name("published value", name) {
        let error = Error::fatal(problem).context(format!("publish() at {site}"));
        return core.trouble(Trouble::Fail(error));
    }
    let payloads = core.services.payloads.at(Place::published(core.line().0));
    let problem = match payloads.encode(value) {
        Ok(payload) if payload.len() <= LARGEST => return core.publish(name, payload),
        Ok(payload) => Error::fatal(format!(
            "it takes {} bytes, and a published value may take {LARGEST}: publish a summary, or where the \
             rest is",
            payload.len()
        )),
        Err(problem) => Error::fatal(problem),
    };
    let what = format!("what publish(\"{name}\") at {site} was given");
    core.trouble(Trouble::Fail(problem.context(what)));
}
