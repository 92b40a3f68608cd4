//! One task per run: create or claim it, replay its journal, drive it, and file how it went.
//!
//! A run is created inside its own task, so that a caller who stops waiting for the start leaves
//! no orphan behind: what became durable is driven.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::core::{Phase, RunCore};
use super::driver::{Driver, Exit};
use super::start::Prepared;
use super::writer::Writer;
use super::{EngineError, Progress, RunEntry, Shared};
use crate::clock::{Timestamp, wall_clock};
use crate::context::WorkflowMetadata;
use crate::ids::{DERIVATION_VERSION, RunId, StepId};
use crate::journal::{self, Chain, RunStarted};
use crate::replay::{Delivery, History, Known};
use crate::store::{Creation, Epoch, ParkReason, Parking, RunHeader, RunState, StoreError};

type Created = Result<Option<RunHeader>, EngineError>;

/// Creates a run in a task of its own. `Some` if a run of that id is in the store already.
pub(super) async fn create(
    shared: &Arc<Shared>,
    entry: &Arc<RunEntry>,
    prepared: Prepared,
) -> Created {
    let (answer, created) = oneshot::channel();
    let run = prepared.new.header.run;
    spawn(shared, run, entry, |shared, entry| {
        create_and_drive(shared, entry, prepared, answer)
    });
    created
        .await
        .unwrap_or_else(|_| Err(EngineError::Stopped("it was dropped".into())))
}

async fn create_and_drive(
    shared: Arc<Shared>,
    entry: Arc<RunEntry>,
    prepared: Prepared,
    answer: oneshot::Sender<Created>,
) -> Progress {
    let Prepared {
        new,
        started,
        chain,
    } = prepared;
    let created_at = new.header.created_at;
    let refused = Progress::Stopped("it was not created".into());
    match shared.store.create(new).await {
        Ok(Creation::Created(epoch)) => {
            entry.set(Progress::Active);
            let _ = answer.send(Ok(None));
            let begun = Begun::fresh(started, created_at, epoch, chain);
            begun.drive(&shared, &entry).await
        }
        Ok(Creation::Exists(header)) => {
            let _ = answer.send(Ok(Some(*header)));
            refused
        }
        Err(error) => {
            let _ = answer.send(Err(error.into()));
            refused
        }
    }
}

/// Takes up every unfinished run in the store.
pub(super) async fn resume_all(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let after_crash = !shared.store.stopped_cleanly();
    for header in shared.store.unfinished().await? {
        if header.namespace != (*shared.namespace).into() {
            continue;
        }
        match &header.state {
            RunState::Active => {}
            // What a new process may have been given; the rest waits for a person.
            RunState::Parked(parking)
                if matches!(
                    parking.reason,
                    ParkReason::Unregistered | ParkReason::MissingResource
                ) => {}
            RunState::Parked(_) | RunState::Ended(_) => continue,
        }
        take_up(shared, header.run, after_crash);
    }
    Ok(())
}

/// Takes a parked run up again.
pub(super) async fn resume(shared: &Arc<Shared>, run: RunId) -> Result<(), EngineError> {
    let header = shared
        .store
        .header(run)
        .await?
        .filter(|header| *header.namespace == *shared.namespace)
        .ok_or(EngineError::UnknownRun(run))?;
    match header.state {
        RunState::Ended(_) => Err(EngineError::Ended(run)),
        RunState::Active | RunState::Parked(_) => {
            take_up(shared, run, false);
            Ok(())
        }
    }
}

/// Drives a stored run in a task of its own, unless it is in memory already.
fn take_up(shared: &Arc<Shared>, run: RunId, after_crash: bool) {
    let entry = RunEntry::new(Progress::Active);
    {
        let mut runs = shared.runs();
        if runs.contains_key(&run) {
            return;
        }
        runs.insert(run, entry.clone());
    }
    spawn(shared, run, &entry, |shared, entry| async move {
        match claim(&shared, run, after_crash).await {
            Ok(begun) => begun.drive(&shared, &entry).await,
            Err(progress) => progress,
        }
    });
}

/// Runs a task that ends in a progress, and files it; also when the task is aborted or panics.
fn spawn<F>(
    shared: &Arc<Shared>,
    run: RunId,
    entry: &Arc<RunEntry>,
    work: impl FnOnce(Arc<Shared>, Arc<RunEntry>) -> F,
) where
    F: Future<Output = Progress> + Send + 'static,
{
    let work = work(shared.clone(), entry.clone());
    let mut filing = Filing {
        shared: shared.clone(),
        entry: entry.clone(),
        run,
        progress: Some(Progress::Stopped("its task was stopped".into())),
    };
    // Without tokio's budget: a poll that is cut short in the middle would look like a wake-up of
    // the workflow's own, for ever.
    let task = tokio::spawn(tokio::task::unconstrained(async move {
        filing.progress = Some(work.await);
        drop(filing);
    }));
    entry.set_task(task.abort_handle());
}

struct Filing {
    shared: Arc<Shared>,
    entry: Arc<RunEntry>,
    run: RunId,
    progress: Option<Progress>,
}

impl Drop for Filing {
    fn drop(&mut self) {
        if let Some(progress) = self.progress.take() {
            self.shared.leave(self.run, &self.entry, progress);
        }
    }
}

/// Claims a stored run and reads its journal as history.
async fn claim(shared: &Shared, run: RunId, after_crash: bool) -> Result<Begun, Progress> {
    let stopped = |error: StoreError| Progress::Stopped(error.to_string());
    let claim = match shared.store.claim(run).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return Err(Progress::Stopped(format!("{run} is gone"))),
        Err(error) => return Err(stopped(error)),
    };
    if let RunState::Parked(_) = claim.header.state {
        shared
            .store
            .park(run, claim.epoch, None)
            .await
            .map_err(stopped)?;
    }
    let read = journal::read(run, shared.audit_key.clone(), &claim.frames)
        .map_err(|error| {
            let newer = error.is_newer();
            let reason = if newer {
                ParkReason::Undecodable
            } else {
                ParkReason::Corrupt
            };
            (reason, error.to_string())
        })
        .and_then(|(records, chain)| match History::read(records) {
            Some(history) if history.started.derivation == DERIVATION_VERSION => {
                Ok((history, chain))
            }
            Some(history) => Err((
                ParkReason::Undecodable,
                format!(
                    "its ids are of derivation {}, this release knows {DERIVATION_VERSION}: \
                     upgrade workflow-runtime",
                    history.started.derivation
                ),
            )),
            None => Err((
                ParkReason::Corrupt,
                "its journal does not begin with its start".to_owned(),
            )),
        });
    match read {
        Ok((history, chain)) => Ok(Begun {
            started: history.started,
            started_at: history.started_at,
            epoch: claim.epoch,
            chain,
            recorded: history.deliveries,
            known: history.known,
            last_time: history.last_time,
            phase: Phase::Replaying,
            after_crash,
        }),
        Err((reason, report)) => Err(park(shared, run, claim.epoch, reason, report).await),
    }
}

/// A run that is owned and ready to be driven.
struct Begun {
    started: RunStarted,
    started_at: Timestamp,
    epoch: Epoch,
    chain: Chain,
    recorded: VecDeque<Delivery>,
    known: HashMap<StepId, Known>,
    last_time: Timestamp,
    phase: Phase,
    after_crash: bool,
}

impl Begun {
    fn fresh(started: RunStarted, created_at: Timestamp, epoch: Epoch, chain: Chain) -> Self {
        Self {
            started,
            started_at: created_at,
            epoch,
            chain,
            recorded: VecDeque::new(),
            known: HashMap::new(),
            last_time: created_at,
            phase: Phase::Live,
            after_crash: false,
        }
    }

    async fn drive(self, shared: &Arc<Shared>, entry: &RunEntry) -> Progress {
        let (run, epoch) = (self.chain.run(), self.epoch);
        let driver = match self.into_driver(shared, entry) {
            Ok(driver) => driver,
            Err((reason, report)) => return park(shared, run, epoch, reason, report).await,
        };
        match driver.await {
            Exit::Ended(end) => {
                tracing::debug!(%run, "run ended");
                Progress::Ended(end)
            }
            Exit::Park(parking) => file_parking(shared, run, epoch, parking).await,
            Exit::StoreFailed(error) => {
                tracing::error!(%run, %error, "the store stopped acknowledging");
                Progress::Stopped(error.to_string())
            }
            Exit::Left => Progress::Stopped("the engine was shut down".into()),
        }
    }

    fn into_driver(
        self,
        shared: &Arc<Shared>,
        entry: &RunEntry,
    ) -> Result<Driver, (ParkReason, String)> {
        let started = self.started;
        let make = shared
            .registry
            .find(&started.workflow, started.version)
            .ok_or_else(|| {
                let report = shared.registry.missing(&started.workflow, started.version);
                (ParkReason::Unregistered, report)
            })?;
        let workflow = make(&shared.services.payloads, &started.input).map_err(|problem| {
            (
                ParkReason::Undecodable,
                format!("the recorded input of `{}`: {problem}", started.workflow),
            )
        })?;
        let identity = WorkflowMetadata {
            run_id: self.chain.run(),
            workflow_name: (*started.workflow).into(),
            version: started.version,
            namespace: shared.namespace.clone(),
            key: started.key.as_deref().map(Into::into),
            run_started_at: self.started_at.into(),
        };
        // `now()` is the time of the last delivery, and the start is the first one.
        let core = RunCore::new(
            identity,
            shared.services.clone(),
            self.known,
            self.started_at,
            self.phase,
        );
        entry.set_core(core.clone());
        if shared.is_closing() {
            core.set_phase(Phase::Closing);
        }
        let writer = Writer {
            store: shared.store.clone(),
            run: self.chain.run(),
            epoch: self.epoch,
            chain: self.chain,
            last_time: self.last_time,
            durability: shared.services.config.durability,
        };
        Ok(Driver::new(
            core,
            workflow,
            writer,
            self.recorded,
            self.after_crash,
        ))
    }
}

async fn park(
    shared: &Shared,
    run: RunId,
    epoch: Epoch,
    reason: ParkReason,
    report: String,
) -> Progress {
    let parking = Parking {
        reason,
        at: wall_clock(),
        report: report.into(),
        detail: None,
    };
    file_parking(shared, run, epoch, parking).await
}

async fn file_parking(shared: &Shared, run: RunId, epoch: Epoch, parking: Parking) -> Progress {
    tracing::error!(%run, reason = ?parking.reason, "run parked: {}", parking.report);
    match shared.store.park(run, epoch, Some(parking)).await {
        Ok(()) => Progress::Parked,
        Err(error) => Progress::Stopped(error.to_string()),
    }
}
