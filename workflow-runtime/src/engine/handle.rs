//! A handle to one run: its id, how it stands, its result.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::progress::Progress;
use super::{EngineError, RunEntry, RunError, Services, Shared, inspect};
use crate::call::Workflow;
use crate::call::returns::Decoded;
use crate::error::Error;
use crate::ids::RunId;
use crate::journal::Outcome;
use crate::payload::PayloadError;
use crate::replay::End;
use crate::store::{EndKind, Parking, RunHeader, RunState};

/// How soon a handle looks again at a run that is not in memory, should nobody tell it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunStatus {
    /// It runs, waits, or is queued.
    Active,
    /// It cannot go on without help.
    Parked(Box<Parking>),
    /// The workflow returned a value.
    Completed,
    /// The workflow failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// The workflow ended itself with a reason.
    Aborted,
    /// The workflow went on as a new run.
    Continued,
}

impl From<RunState> for RunStatus {
    fn from(state: RunState) -> Self {
        match state {
            RunState::Active | RunState::Asleep { .. } => Self::Active,
            RunState::Parked(parking) => Self::Parked(Box::new(parking)),
            RunState::Ended(end) => match end.kind {
                EndKind::Completed => Self::Completed,
                EndKind::Failed => Self::Failed,
                EndKind::Cancelled => Self::Cancelled,
                EndKind::Aborted => Self::Aborted,
                EndKind::Continued => Self::Continued,
            },
        }
    }
}

/// A handle to one run of a workflow.
///
/// It does not keep the engine or its store alive.
pub struct RunHandle<W: Workflow> {
    shared: Weak<Shared>,
    /// Enough to read a result that is known already.
    services: Arc<Services>,
    run: RunId,
    entry: Option<Arc<RunEntry>>,
    _workflow: PhantomData<fn() -> W>,
}

impl<W: Workflow> Clone for RunHandle<W> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            services: self.services.clone(),
            run: self.run,
            entry: self.entry.clone(),
            _workflow: PhantomData,
        }
    }
}

impl<W: Workflow> fmt::Debug for RunHandle<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHandle<{}>({})", W::DEFINITION.name, self.run)
    }
}

impl<W: Workflow> RunHandle<W> {
    pub(super) fn new(shared: &Arc<Shared>, run: RunId, entry: Option<Arc<RunEntry>>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            services: shared.services.clone(),
            run,
            entry,
            _workflow: PhantomData,
        }
    }

    /// Returns the run's id.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Returns how the run stands.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn status(&self) -> Result<RunStatus, EngineError> {
        status(&*self.shared()?, self.run).await
    }

    fn shared(&self) -> Result<Arc<Shared>, EngineError> {
        self.shared
            .upgrade()
            .ok_or_else(|| EngineError::Stopped("it was dropped".into()))
    }

    /// Waits for the run to end and returns what the workflow returned.
    ///
    /// # Errors
    ///
    /// The workflow's own error; or that the run is parked (it has not ended, and can be asked
    /// again after `engine.resume`); or that the engine stopped first.
    pub async fn result(&self) -> Result<W::Ok, RunError<W::Error>> {
        let end = match self.end().await? {
            Ok(end) => end,
            Err(parking) => return Err(RunError::Parked(Box::new(parking))),
        };
        let outcome = match end {
            End::Completed(output) => Outcome::Ok(output),
            End::Failed(failure) => failure,
        };
        let payloads = &self.services.payloads;
        match W::returns().decode(payloads, &outcome) {
            // The crate's own error may have a place in the workflow's type; that it was not the
            // workflow's code that returned it is still worth knowing.
            Ok(Decoded::Value(_)) if matches!(outcome, Outcome::Broken(_)) => {
                Err(self.broken(&outcome)?)
            }
            Ok(Decoded::Value(output)) => W::split(output).map_err(RunError::Failed),
            Ok(Decoded::NoValue(error)) => Err(RunError::Broken(error)),
            Err(problem) => Err(self.unreadable(problem).into()),
        }
    }

    fn broken(&self, outcome: &Outcome) -> Result<RunError<W::Error>, EngineError> {
        let (Outcome::Ok(payload) | Outcome::Err(payload) | Outcome::Broken(payload)) = outcome;
        let decoded = self.services.payloads.decode::<Error>(payload);
        decoded
            .map(RunError::Broken)
            .map_err(|problem| self.unreadable(problem))
    }

    fn unreadable(&self, problem: PayloadError) -> EngineError {
        EngineError::Payload {
            what: "result",
            run: self.run,
            problem,
        }
    }

    /// Waits until the run has ended or is parked.
    async fn end(&self) -> Result<Result<End, Parking>, EngineError> {
        let settled = |p: &Progress| !matches!(p, Progress::Creating | Progress::Active);
        let mut waited_for: Option<Arc<RunEntry>> = None;
        let mut strayed = false;
        loop {
            // A run that was taken up again has a newer entry than this handle.
            let newest = self
                .shared
                .upgrade()
                .and_then(|shared| shared.entry(self.run));
            let entry = newest.or_else(|| self.entry.clone());
            let is_new = match (&entry, &waited_for) {
                (Some(entry), Some(known)) => !Arc::ptr_eq(entry, known),
                (Some(_), None) => true,
                (None, _) => false,
            };
            if let Some(entry) = entry.filter(|_| is_new) {
                match entry.progress.wait_for(settled).await {
                    Progress::Ended(end) => return Ok(Ok(end)),
                    Progress::Stopped(reason) => return Err(EngineError::Stopped(reason.into())),
                    // Parked once; by now it may have been taken up, or have ended. Or this was
                    // the entry of a start that found the run in the store.
                    Progress::Creating
                    | Progress::Active
                    | Progress::Parked
                    | Progress::NotCreated => waited_for = Some(entry),
                }
            }
            let shared = self.shared()?;
            // Enlisted before looking, so that no wake-up in between is missed. Held without the
            // engine, which a handle does not keep alive.
            let arrival = shared.plan.arrivals.of(self.run);
            let mut told = std::pin::pin!(arrival.told());
            told.as_mut().enable();
            if shared.entry(self.run).is_some() && !is_new {
                continue;
            }
            let header = header(&shared, self.run).await?;
            match header.state {
                RunState::Parked(parking) => return Ok(Err(parking)),
                RunState::Ended(_) => {
                    let records = inspect::records(&shared, self.run).await?;
                    return inspect::end_of(records)
                        .map(Ok)
                        .ok_or(EngineError::UnknownRun(self.run));
                }
                // Taken up since: wait for that.
                RunState::Active | RunState::Asleep { .. } if is_new => {}
                RunState::Active | RunState::Asleep { .. } if shared.is_closing() => {
                    return Err(EngineError::Stopped("it is shutting down".into()));
                }
                // Active, and looked for before: nobody here drives it.
                RunState::Active if std::mem::replace(&mut strayed, true) => {
                    return Err(EngineError::Stopped(format!(
                        "{} is unfinished and not driven by this engine",
                        self.run
                    )));
                }
                // It waits in a queue or for its time, or was just created by a schedule: until it
                // comes into memory.
                RunState::Active | RunState::Asleep { .. } => {
                    drop(shared);
                    let _ = tokio::time::timeout(LOOK_AGAIN, told).await;
                }
            }
        }
    }
}

async fn header(shared: &Shared, run: RunId) -> Result<RunHeader, EngineError> {
    shared
        .store
        .header(run)
        .await?
        .filter(|header| *header.namespace == *shared.namespace)
        .ok_or(EngineError::UnknownRun(run))
}

pub(super) async fn status(shared: &Shared, run: RunId) -> Result<RunStatus, EngineError> {
    Ok(header(shared, run).await?.state.into())
}

pub(super) async fn parked_detail(
    shared: &Shared,
    run: RunId,
) -> Result<Option<String>, EngineError> {
    let RunState::Parked(Parking {
        detail: Some(detail),
        ..
    }) = header(shared, run).await?.state
    else {
        return Ok(None);
    };
    let decoded = shared.services.payloads.decode(&detail);
    decoded.map_err(|problem| EngineError::Payload {
        what: "parking detail",
        run,
        problem,
    })
}

pub(super) async fn open<W: Workflow>(
    shared: &Arc<Shared>,
    run: RunId,
) -> Result<RunHandle<W>, EngineError> {
    let header = header(shared, run).await?;
    if *header.workflow != *W::DEFINITION.name {
        return Err(EngineError::OtherWorkflow {
            run,
            found: header.workflow.into(),
            asked: W::DEFINITION.name,
        });
    }
    Ok(RunHandle::new(shared, run, shared.entry(run)))
}
