//! Patches: new code beside old code, in one workflow, for runs that were begun with the old.
//!
//! Owns the two functions and their messages. What a patch comes out as is decided in `replay::past`;
//! the marker is an annotation that goes into the journal with the next batch.

use std::panic::Location;
use std::sync::Arc;

use crate::context::{Scope, current_scope};
use crate::engine::core::Trouble;
use crate::engine::obstacle::Obstacle;
use crate::store::ParkReason;

/// Longest name of a patch: it is written into journals and reports.
const MAX_NAME_BYTES: usize = 200;

/// Says whether this run takes new code: put it around a change of a workflow that has runs under way.
///
/// A run that gets here for the first time takes the new code, and its journal says so from then on. A
/// run that had gone past this place before the change takes the old code. Once it is decided for a
/// run it stays so, in every replay and for every later call with the same name.
///
/// ```
/// # use workflow_runtime::{patched, step, workflow, Result};
/// # #[step] async fn pay(_cents: u64) -> Result<u32> { Ok(1) }
/// # #[step] async fn check_fraud(_cents: u64) -> Result<()> { Ok(()) }
/// #[workflow]
/// async fn order(cents: u64) -> Result<u32> {
///     if patched("fraud check") {
///         check_fraud(cents).await?;
///     }
///     pay(cents).await
/// }
/// ```
///
/// When no run of the old code is left, put [`deprecate_patch`] in its place.
///
/// # Panics
///
/// Panics outside a workflow, and if the name is empty, longer than 200 bytes or has control characters.
#[track_caller]
pub fn patched(name: &str) -> bool {
    workflow("patched()", name).core().patched(name)
}

/// Says that only the new code of a patch is left: the step between [`patched`] and no trace of it.
///
/// In runs that took the patch, and in new ones, it does nothing (new ones are marked, so that
/// going back to [`patched`] is possible). A run that took the old code is parked with a report, before
/// anything is run: the old code is not there any more.
///
/// # Panics
///
/// As [`patched`].
#[track_caller]
pub fn deprecate_patch(name: &str) {
    let site = Location::caller();
    let scope = workflow("deprecate_patch()", name);
    if !scope.core().patched(name) {
        let report = format!(
            "the run took the old code of patch {name:?}, which is gone at {site}\n  nothing was run or \
             written; to go on: put `if patched({name:?}) {{ new }} else {{ old }}` back, deploy, then \
             `engine.resume(run)`; remove the old code when no run is left that needs it"
        );
        let obstacle = Obstacle::new(ParkReason::Diverged, report);
        scope.core().trouble(Trouble::Park(obstacle));
    }
}

#[track_caller]
fn workflow(what: &str, name: &str) -> Arc<Scope> {
    assert!(
        !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control),
        "{what} takes a name of 1 to {MAX_NAME_BYTES} bytes without control characters: it is \
         written into journals"
    );
    current_scope().unwrap_or_else(|| {
        panic!(
            "{what} was called outside a workflow: it says which code a run takes, so it needs \
             one; call it in the body of a #[workflow] function and pass the answer on"
        )
    })
}
