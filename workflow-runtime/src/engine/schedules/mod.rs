//! Schedules: a workflow's call, started again and again by the clock.
//!
//! A schedule is a note: its call, its timing, and how far it has come. Advancing it and creating the
//! run of a tick is one commit that is refused if the note has changed, and the run's id is
//! derived from the schedule's name and the tick; so a tick has one run, whatever crashes and however many
//! processes look at it. The files: `timing` says when it ticks, `note` is what is kept, `declare` makes
//! and changes it, `serve` is the task that starts what is due, `handle` is for whoever looks after it.

mod declare;
mod handle;
mod note;
mod serve;

#[cfg(test)]
mod tests;
mod timing;

use serde::{Deserialize, Serialize};

pub use declare::Schedule;
pub use handle::{ScheduleDescription, ScheduleHandle};
pub(super) use serve::serve;

use super::{Engine, EngineError};
use crate::call::{Workflow, WorkflowCall};

/// What a schedule does when it ticks while its previous run goes on. A parked run goes on.
// The order is on disk: new variants go to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Overlap {
    /// The tick is not run.
    #[default]
    Skip,
    /// The tick is run beside the previous run.
    Allow,
    /// One tick is kept and run as soon as the previous run has ended; further ones are not run.
    BufferOne,
    /// The previous run is asked to stop (it is undone as any cancelled run), and the tick is run beside its
    /// end.
    CancelPrevious,
}

/// What becomes of ticks that were missed while no engine ran.
///
/// A tick is missed when nobody came to it for ten seconds; until then it is only late, and is run.
/// Those that are run obey [`Overlap`] like any other: with [`Overlap::Skip`] the first of them runs and
/// those that find it running are skipped.
// The order is on disk: new variants go to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CatchUp {
    /// Missed ticks are not run.
    None,
    /// Of all missed ticks the latest is run.
    #[default]
    Last,
    /// The latest missed ticks are run, oldest first.
    All {
        /// How many of them.
        at_most: u32,
    },
}

impl Engine {
    /// Declares a schedule that starts a workflow again and again; await it.
    ///
    /// Declaring it again as before changes nothing, so that a process can do so whenever it starts;
    /// declared otherwise, it is changed. The run of a tick has a key of its own (the schedule's name and
    /// the tick's time), so a tick has one run.
    ///
    /// ```no_run
    /// # use workflow_runtime::{workflow, CatchUp, Engine, Overlap, Result};
    /// # #[workflow]
    /// # async fn report(city: String) -> Result<()> { let _ = city; Ok(()) }
    /// # async fn example(engine: Engine) -> Result<()> {
    /// let nightly = engine
    ///     .schedule("nightly", report("Berlin".into()))
    ///     .cron("0 2 * * *")
    ///     .time_zone("Europe/Berlin")
    ///     .overlap(Overlap::Skip)
    ///     .catch_up(CatchUp::Last)
    ///     .await?;
    /// println!("next: {:?}", nightly.describe().await?.next);
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedule<W: Workflow>(&self, name: &str, call: WorkflowCall<W>) -> Schedule<W> {
        Schedule::new(self.shared().clone(), name, call)
    }

    /// Returns a handle to a schedule that was declared before, by this process or another one.
    pub fn schedule_handle(&self, name: &str) -> ScheduleHandle {
        ScheduleHandle::new(self.shared(), name)
    }

    /// Describes all schedules of the engine's namespace, by name. One that cannot be read is left out,
    /// and named by [`Engine::warnings`].
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn schedules(&self) -> Result<Vec<ScheduleDescription>, EngineError> {
        handle::describe_all(self.shared()).await
    }
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let _ = note::ScheduleNote::decode(bytes);
}
