//! Pausing: runs, workflows or the whole engine begin nothing more until they are resumed.
//!
//! Owns two ways. One run is stopped like at a shutdown, and parked. A workflow, or all of them, stay
//! as they are, and no body of a step begins: a note says so, so that it holds across restarts, and a
//! flag in memory is what calls look at. It never drops a body that has begun.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::obstacle::Obstacle;
use super::progress::Progress;
use super::taking::Taking;
use super::{Engine, EngineError, Shared, lines, notes, poison};
use crate::ids::RunId;
use crate::journal::End;
use crate::store::{
    Changes, Commit, NoteChange, NoteKey, ParkReason, RunPosition, RunQuery, RunState, StateKind,
};

/// How many notes or headers are read at a time.
const PAGE: usize = 1_000;

/// What is paused; see [`Engine::paused`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Paused {
    /// Whether everything in the engine's namespace is.
    pub all: bool,
    /// Workflows that were paused by name, sorted.
    pub workflows: Vec<String>,
    /// Runs that were paused one by one, newest first.
    pub runs: Vec<RunId>,
}

/// Which workflows are paused.
pub(crate) struct Pauses {
    /// Whether there is any pause: what nearly every look finds.
    any: AtomicBool,
    held: Mutex<Held>,
    /// One change at a time, so that memory and store say the same.
    turn: Semaphore,
}

#[derive(Default)]
struct Held {
    all: bool,
    workflows: BTreeSet<String>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            held: Mutex::default(),
            turn: Semaphore::new(1),
        }
    }
}

/// Whose steps begin or do not.
#[derive(Clone, Copy)]
enum Whose<'a> {
    All,
    Workflow(&'a str),
}

impl Whose<'_> {
    fn key(self, namespace: &str) -> NoteKey {
        match self {
            Self::All => notes::engine_paused(namespace),
            Self::Workflow(name) => notes::workflow_paused(namespace, name),
        }
    }
}

impl Pauses {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether no body of the workflow's steps may begin.
    pub(crate) fn holds(&self, workflow: &str) -> bool {
        self.any.load(Ordering::Acquire) && {
            let held = self.held();
            held.all || held.workflows.contains(workflow)
        }
    }

    fn set(&self, whose: Whose<'_>, paused: bool) {
        let mut held = self.held();
        match whose {
            Whose::All => held.all = paused,
            Whose::Workflow(name) if paused => drop(held.workflows.insert(name.to_owned())),
            Whose::Workflow(name) => drop(held.workflows.remove(name)),
        }
        let any = held.all || !held.workflows.is_empty();
        self.any.store(any, Ordering::Release);
    }
}

/// Reads what is paused. Before the first run is taken up.
pub(super) async fn read(shared: &Shared) -> Result<(), EngineError> {
    let namespace = &shared.services.namespace;
    let mut after = None;
    loop {
        let prefix = notes::pauses(namespace);
        let page = shared.store.notes(prefix, after.take(), PAGE).await?;
        for (key, _) in &page {
            let parts = key.parts().unwrap_or_default();
            match parts.get(2).map(|name| String::from_utf8_lossy(name)) {
                None => shared.services.pauses.set(Whose::All, true),
                Some(name) => shared.services.pauses.set(Whose::Workflow(&name), true),
            }
        }
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.into_iter().next_back().map(|(key, _)| key);
    }
}

async fn write(shared: &Shared, whose: Whose<'_>, paused: bool) -> Result<(), EngineError> {
    let note = NoteChange {
        key: whose.key(&shared.services.namespace),
        value: paused.then(Bytes::new),
    };
    let commit = Commit {
        guards: Vec::new(),
        changes: Changes {
            notes: vec![note],
            ..Changes::default()
        },
    };
    shared.store.commit(commit).await?;
    Ok(())
}

async fn change(shared: &Shared, whose: Whose<'_>, paused: bool) -> Result<(), EngineError> {
    let pauses = &shared.services.pauses;
    let _turn = pauses.turn.acquire().await;
    write(shared, whose, paused).await?;
    pauses.set(whose, paused);
    // Every call looks again. A body that was about to begin has begun when this has passed its run.
    let entries: Vec<_> = shared.runs().values().cloned().collect();
    for core in entries.iter().filter_map(|entry| entry.core()) {
        core.wake_calls();
    }
    Ok(())
}

/// Pauses one run.
async fn pause(shared: &Arc<Shared>, run: RunId) -> Result<(), EngineError> {
    loop {
        let run = lines::newest(shared, run).await?;
        let header = super::handle::header(shared, run).await?;
        match header.state {
            RunState::Ended(_) => return Err(EngineError::Ended(run)),
            // Unless it is in memory: then somebody is about to resume it.
            RunState::Parked(parking)
                if parking.reason == ParkReason::Paused && shared.entry(run).is_none() =>
            {
                return Ok(());
            }
            RunState::Active | RunState::Asleep { .. } | RunState::Parked(_) => {}
        }
        if shared.is_closing() {
            return Err(shared.refusal("it is shutting down"));
        }
        let taking = match Taking::vacant(shared, run) {
            Ok(taking) => taking,
            Err(entry) if entry.begin_pausing() => {
                let settled = |p: &Progress| !matches!(p, Progress::Creating | Progress::Active);
                match entry.progress.wait_for(settled).await {
                    Progress::Stopped(error) => return Err(*error),
                    Progress::Ended(End::Continued(_)) => continue, // the next run is the one
                    Progress::Ended(_) => return Err(EngineError::Ended(run)),
                    _ => continue, // parked; or it slept or changed hands: look again
                }
            }
            Err(_) => Taking::by_force(shared, run).await, // none of its code runs yet
        };
        let within = shared.clone();
        let parking = async move { park(&within, run).await.map(|()| Progress::Parked) };
        return taking.settle(parking).await;
    }
}

/// Parks a run that nobody drives.
async fn park(shared: &Shared, run: RunId) -> Result<(), EngineError> {
    let Some(claim) = shared.store.claim(run, u64::MAX).await? else {
        return Err(EngineError::UnknownRun(run));
    };
    let mut parking = obstacle().into_parking(&shared.services, run);
    match claim.header.state {
        RunState::Ended(_) => return Err(EngineError::Ended(run)),
        RunState::Parked(before) if before.reason != ParkReason::Paused => {
            parking.report = format!(
                "{}\n  before, it was parked: {}",
                parking.report, before.report
            )
            .into();
            parking.detail = before.detail;
        }
        RunState::Parked(_) | RunState::Active | RunState::Asleep { .. } => {}
    }
    shared.store.park(run, claim.epoch, Some(parking)).await?;
    poison::forgive(shared, run).await?;
    Ok(())
}

/// What a paused run is parked with.
pub(super) fn obstacle() -> Obstacle {
    let report = "it was paused: `engine.resume(run)` carries on";
    Obstacle::new(ParkReason::Paused, report.to_owned())
}

impl Engine {
    /// Pauses a run: bodies in flight finish and are journaled, none begins, then the run is parked.
    ///
    /// When it resolves, the run is parked, durably: it stays so across restarts, until
    /// [`Engine::resume`]. Its time goes on meanwhile: a timer that comes due fires when the run is
    /// resumed. Signals and a request to cancel wait in its mailbox; [`Engine::terminate`] works at
    /// once. Its children are runs of their own and are not paused. A run that is parked already stays
    /// so, with the old report behind the new one. If its future is dropped half-way, the run may be paused all the same.
    ///
    /// # Errors
    ///
    /// If there is no such run, it has ended or ends first, or the engine or its store stops first.
    pub async fn pause(&self, run: RunId) -> Result<(), EngineError> {
        pause(self.shared(), run).await
    }

    /// Pauses all runs of a workflow, present and future, in all its versions: no body of a step
    /// begins, an undoing one neither, until [`Engine::resume_workflow`].
    ///
    /// Bodies in flight go on and their outcomes are journaled. All else goes on too: runs are started,
    /// timers fire, signals are received, children are called, code between steps runs, and a run that
    /// needs no further step ends. It is durable and holds across restarts.
    ///
    /// # Errors
    ///
    /// If no version of the workflow is registered, or the store fails.
    pub async fn pause_workflow(&self, workflow: &str) -> Result<(), EngineError> {
        if !self.shared().services.registry.knows(workflow) {
            return Err(EngineError::UnknownWorkflow(workflow.to_owned()));
        }
        change(self.shared(), Whose::Workflow(workflow), true).await
    }

    /// Lets the steps of a paused workflow begin again. One that is not paused is left alone.
    ///
    /// Runs that were paused one by one stay paused, and so does all while [`Engine::pause_all`] holds.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn resume_workflow(&self, workflow: &str) -> Result<(), EngineError> {
        change(self.shared(), Whose::Workflow(workflow), false).await
    }

    /// Pauses every run in the engine's namespace, as [`Engine::pause_workflow`] does for one workflow.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn pause_all(&self) -> Result<(), EngineError> {
        change(self.shared(), Whose::All, true).await
    }

    /// Takes back [`Engine::pause_all`]. Workflows and runs that were paused by name stay paused.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn resume_all(&self) -> Result<(), EngineError> {
        change(self.shared(), Whose::All, false).await
    }

    /// Returns what is paused.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn paused(&self) -> Result<Paused, EngineError> {
        let shared = self.shared();
        let (all, workflows) = {
            let held = shared.services.pauses.held();
            (held.all, held.workflows.iter().cloned().collect())
        };
        let mut runs = Vec::new();
        let mut after: Option<RunPosition> = None;
        loop {
            let query = RunQuery {
                namespace: Some((*shared.services.namespace).into()),
                states: vec![StateKind::Parked],
                after,
                limit: PAGE,
                ..RunQuery::default()
            };
            let page = shared.store.list(query).await?;
            let paused = page.iter().filter(|header| {
                matches!(&header.state, RunState::Parked(parking) if parking.reason == ParkReason::Paused)
            });
            runs.extend(paused.map(|header| header.run));
            if page.len() < PAGE {
                return Ok(Paused {
                    all,
                    workflows,
                    runs,
                });
            }
            after = page.last().map(|header| header.position());
        }
    }
}
