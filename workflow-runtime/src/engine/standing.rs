//! How a run stands and what it waits for, for a test that drives it (feature `testing`).
//!
//! Owns one look at one run, wherever it is. A run that left memory is brought back to be looked at, as a letter would.

use std::sync::Arc;

use tokio::sync::futures::Notified;

use super::core::waits::{Awaited, Wait};
use super::{Engine, EngineError, RunHandle, Shared, handle, inspect, lines, notes, waking};
use crate::call::Workflow;
use crate::clock::Timestamp;
use crate::ids::RunId;
use crate::journal::{End, Event};
use crate::payload::{Payloads, Place};
use crate::store::{Parking, RunState};

/// How a run stands.
pub(crate) enum Standing {
    /// With how what it ended with is read.
    Ended(End, Payloads),
    /// With how the report's detail is read.
    Parked(Box<Parking>, Payloads),
    Waits(Vec<Wait>),
    /// It is on its way into memory, or to its first wait.
    OnItsWay,
    /// It has left memory with so many records: what it waits for is known once it is [woken](Engine::wake).
    Asleep(usize),
}

/// A child that a run has started.
pub(crate) struct StartedChild {
    pub(crate) run: RunId,
    pub(crate) ended: bool,
}

impl Engine {
    /// Looks at a run; at the newest of its line, if it is part of one.
    pub(crate) async fn standing(&self, run: RunId) -> Result<Standing, EngineError> {
        let shared = self.shared();
        let run = lines::newest(shared, run).await?;
        if let Some(entry) = shared.entry(run) {
            let waits = entry.core().and_then(|core| core.waits());
            let known = waits.map(Standing::Waits);
            return Ok(known.unwrap_or(Standing::OnItsWay));
        }
        let header = handle::header(shared, run).await?;
        let first = header.first_of_line();
        let payloads = &shared.services.payloads;
        let standing = match header.state {
            RunState::Parked(parking) => {
                Standing::Parked(Box::new(parking), payloads.at(Place::parking(run)))
            }
            RunState::Ended(_) => {
                let end = inspect::end_of(inspect::records(shared, run).await?);
                let end = end.ok_or(EngineError::UnknownRun(run))?;
                Standing::Ended(end, payloads.at(Place::run_end(first)))
            }
            RunState::Asleep { wake_at } => match unstarted(shared, run, wake_at).await? {
                Some(start) => Standing::Waits(vec![start]),
                None => Standing::Asleep(shared.store.frames(run, 0, usize::MAX).await?.len()),
            },
            RunState::Active => Standing::OnItsWay,
        };
        Ok(standing)
    }

    /// Brings a run back that has left memory.
    pub(crate) async fn wake(&self, run: RunId) -> Result<(), EngineError> {
        let run = lines::newest(self.shared(), run).await?;
        waking::wake(self.shared(), run);
        Ok(())
    }

    /// The children of a workflow that a run has started, in order.
    pub(crate) async fn children_of(
        &self,
        run: RunId,
        workflow: &str,
    ) -> Result<Vec<StartedChild>, EngineError> {
        let shared = self.shared();
        let run = lines::newest(shared, run).await?;
        let mut children = Vec::new();
        for record in inspect::records(shared, run).await? {
            if let Event::ChildStarted(started) = record.event
                && *started.workflow == *workflow
            {
                let newest = lines::newest(shared, started.child).await?;
                let state = handle::header(shared, newest).await?.state;
                let ended = matches!(state, RunState::Ended(_));
                children.push(StartedChild {
                    run: started.child,
                    ended,
                });
            }
        }
        Ok(children)
    }

    /// Makes the handle of a run that is known to be one of `W`.
    pub(crate) fn handle_of<W: Workflow>(&self, run: RunId) -> RunHandle<W> {
        RunHandle::new(self.shared(), run, self.shared().entry(run))
    }

    /// Tells when a run leaves the engine.
    pub(crate) fn run_left(&self) -> Notified<'_> {
        self.shared().left.notified()
    }

    /// Says whether a blocking body runs: nobody is polled for it until it returns.
    pub(crate) fn has_blocking_bodies(&self) -> bool {
        let entries: Vec<_> = self.shared().runs().values().cloned().collect();
        let mut cores = entries.iter().filter_map(|entry| entry.core());
        cores.any(|core| core.blocking() > 0)
    }
}

/// What a run waits for that has not begun: to wake it would begin it before its time.
async fn unstarted(
    shared: &Arc<Shared>,
    run: RunId,
    wake_at: Option<Timestamp>,
) -> Result<Option<Wait>, EngineError> {
    if !shared.store.frames(run, 1, 1).await?.is_empty() {
        return Ok(None);
    }
    let queued = shared.store.note(notes::queued(run)).await?.is_some();
    Ok((queued || wake_at.is_some()).then_some(Wait {
        what: Awaited::Start(wake_at),
        site: None,
    }))
}
