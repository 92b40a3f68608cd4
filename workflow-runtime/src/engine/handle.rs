//! A handle to one run: its id, how it stands, its result.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::letters::{Body, Cancel, SendSignal};
use super::progress::Progress;
use super::published::{self, Watch};
use super::{
    Duplicates, EngineError, Fork, RunEntry, RunError, Services, Shared, duplicates, inspect,
    lines, retry,
};
use crate::call::Workflow;
use crate::call::returns::Decoded;
use crate::error::Error;
use crate::ids::RunId;
use crate::journal::{End, Outcome};
use crate::payload::{PayloadError, Payloads, Place};
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

    /// Returns how the run stands; if it went on as a new one, how the newest of its line does.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn status(&self) -> Result<RunStatus, EngineError> {
        let shared = self.shared()?;
        status(&shared, lines::newest(&shared, self.run).await?).await
    }

    /// Sends the run a signal, for [`wait_for`](crate::wait_for) and [`signals`](crate::signals).
    ///
    /// See [`Engine::signal`](super::Engine::signal).
    #[track_caller]
    pub fn signal<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> SendSignal {
        let body = Body::of(&self.services.payloads, value);
        SendSignal::new(self.shared(), self.run, name, body, Location::caller())
    }

    /// Returns the duplicates that were seen of the run; see [`Engine::duplicates`](super::Engine::duplicates).
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn duplicates(&self) -> Result<Duplicates, EngineError> {
        duplicates::of_run(&*self.shared()?, self.run).await
    }

    /// Asks for the run to be cancelled; see [`Engine::cancel`](super::Engine::cancel).
    pub fn cancel(&self) -> Cancel {
        Cancel::new(self.shared(), self.run)
    }

    /// Returns what the workflow last published under a name, without disturbing it.
    ///
    /// # Errors
    ///
    /// If the value is not of that type, or the store fails.
    pub async fn published<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, EngineError> {
        let shared = self.shared()?;
        let payload = published::latest(&shared, self.run, name).await?;
        let read =
            payload.map(|(payload, first)| published::read(&shared, self.run, (&payload, first)));
        read.transpose()
    }

    /// Follows what the workflow publishes under a name.
    pub fn watch<T: DeserializeOwned>(&self, name: &str) -> Watch<T> {
        Watch::new(self.shared.clone(), self.run, name)
    }

    fn shared(&self) -> Result<Arc<Shared>, EngineError> {
        self.shared
            .upgrade()
            .ok_or_else(|| EngineError::Stopped("it was dropped".into()))
    }

    /// Waits for the run to end and returns what the workflow returned. If it goes on as a new run, that is what
    /// the last run of its line returns.
    ///
    /// # Errors
    ///
    /// The workflow's own error; or that the run was aborted, and why; or that the run is parked (it has not ended, and can be asked
    /// again after `engine.resume`); or that the engine stopped first.
    pub async fn result(&self) -> Result<W::Ok, RunError<W::Error>> {
        let end = match self.end().await? {
            Ok(end) => end,
            Err(parking) => return Err(RunError::Parked(Box::new(parking))),
        };
        let outcome = match end {
            End::Completed(output) => Outcome::Ok(output),
            End::Failed(failure) => failure,
            End::Aborted(aborted) => {
                let reason = aborted.reason.into();
                return Err(RunError::Aborted { reason });
            }
            End::Cancelled(cancelled) => {
                let reason = cancelled.reason.into();
                return Err(RunError::Cancelled { reason });
            }
            End::Continued(_) => unreachable!("a line is followed to its last run"),
        };
        let payloads = self.end_payloads().await;
        match W::returns().decode(&payloads, &outcome) {
            Ok(Decoded::Value(output)) => match &outcome {
                // The crate's own error may have a place in the workflow's type; that it was not the
                // workflow's code that returned it is still worth knowing.
                Outcome::Broken(payload) => Err(self.broken(&payloads, payload)?),
                _ => W::split(output).map_err(RunError::Failed),
            },
            Ok(Decoded::NoValue(error)) => Err(RunError::Broken(error)),
            Err(problem) => Err(self.unreadable(problem).into()),
        }
    }

    /// How what the run ended with is read. Nothing is asked of the store unless it matters.
    async fn end_payloads(&self) -> Payloads {
        let payloads = &self.services.payloads;
        let mut first = self.run;
        if payloads.binds()
            && let Some(shared) = self.shared.upgrade()
            && let Ok(line) = lines::Line::of(&shared, self.run).await
        {
            first = line.first;
        }
        payloads.at(Place::run_end(first))
    }

    fn broken(
        &self,
        payloads: &Payloads,
        payload: &Bytes,
    ) -> Result<RunError<W::Error>, EngineError> {
        let decoded = payloads.decode::<Error>(payload);
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

    /// Takes a failed run up again from its failed step; see [`Engine::retry`](super::Engine::retry).
    ///
    /// [`result`](Self::result) waits for the new end from then on.
    ///
    /// # Errors
    ///
    /// As [`Engine::retry`](super::Engine::retry).
    pub async fn retry(&self) -> Result<(), EngineError> {
        retry::retry(&self.shared()?, self.run).await
    }

    /// Makes a new run that shares this one's history up to a step; see
    /// [`Engine::fork`](super::Engine::fork).
    pub fn fork(&self) -> Fork<Self> {
        let make = |shared: &Arc<Shared>, run| Self::new(shared, run, shared.entry(run));
        Fork::new(self.shared.clone(), self.run, make)
    }

    /// How the store says that a run ended, if it can be asked.
    async fn newest_end(&self, run: RunId) -> Option<End> {
        let shared = self.shared.upgrade()?;
        let records = inspect::records(&shared, run).await.ok()?;
        inspect::end_of(records)
    }

    /// Waits until the last run of the line has ended, or is parked.
    async fn end(&self) -> Result<Result<End, Parking>, EngineError> {
        let (mut run, mut entry) = (self.run, self.entry.clone());
        loop {
            match self.end_of(run, entry).await? {
                Ok(End::Continued(continued)) => {
                    // Those in between may be deleted by now.
                    let newest = lines::noted(&*self.shared()?, continued.first).await?;
                    run = newest.map_or(continued.next, |newest| newest.run);
                    entry = None;
                }
                ended => return Ok(ended),
            }
        }
    }

    /// Waits until one run has ended or is parked.
    async fn end_of(
        &self,
        run: RunId,
        first_entry: Option<Arc<RunEntry>>,
    ) -> Result<Result<End, Parking>, EngineError> {
        let settled = |p: &Progress| !matches!(p, Progress::Creating | Progress::Active);
        let mut waited_for: Option<Arc<RunEntry>> = None;
        let mut asleep: Option<Arc<RunEntry>> = None;
        let mut strayed = false;
        loop {
            // A run that was taken up again has a newer entry than this handle.
            let newest = self.shared.upgrade().and_then(|shared| shared.entry(run));
            let is_newest = newest.is_some();
            let entry = newest.or_else(|| asleep.take().or_else(|| first_entry.clone()));
            let is_new = match (&entry, &waited_for) {
                (Some(entry), Some(known)) => !Arc::ptr_eq(entry, known),
                (Some(_), None) => true,
                (None, _) => false,
            };
            if let Some(entry) = entry.filter(|_| is_new) {
                match entry.progress.wait_for(settled).await {
                    // A failure that this handle remembers may have been retried since.
                    Progress::Ended(end @ End::Failed(_)) if !is_newest => {
                        return Ok(Ok(self.newest_end(run).await.unwrap_or(end)));
                    }
                    Progress::Ended(end) => return Ok(Ok(end)),
                    Progress::Stopped(error) => return Err(*error),
                    // Parked once; by now it may have been taken up, or have ended. Or this was
                    // the entry of a start that found the run in the store.
                    Progress::Creating
                    | Progress::Active
                    | Progress::Asleep(_)
                    | Progress::Parked
                    | Progress::NotCreated => waited_for = Some(entry),
                }
            }
            let shared = self.shared()?;
            // Enlisted before looking, so that no wake-up in between is missed. Held without the
            // engine, which a handle does not keep alive.
            let arrival = shared.plan.arrivals.of(run);
            let mut told = std::pin::pin!(arrival.told());
            told.as_mut().enable();
            if shared.entry(run).is_some() && !is_new {
                continue;
            }
            let header = header(&shared, run).await?;
            match header.state {
                RunState::Parked(parking) => return Ok(Err(parking)),
                RunState::Ended(_) => {
                    let records = inspect::records(&shared, run).await?;
                    return inspect::end_of(records)
                        .map(Ok)
                        .ok_or(EngineError::UnknownRun(run));
                }
                RunState::Asleep { .. } => {
                    let entry = shared.entry_or_sleeper(run)?;
                    // If it sleeps still, it is taken up with this entry; else look again.
                    if let RunState::Asleep { .. } = self::header(&shared, run).await?.state {
                        asleep = Some(entry);
                    }
                }
                // Taken up since: wait for that.
                RunState::Active if is_new => {}
                RunState::Active if shared.is_closing() => {
                    return Err(shared.refusal("it is shutting down"));
                }
                // Active, and looked for before: nobody here drives it.
                RunState::Active if std::mem::replace(&mut strayed, true) => {
                    return Err(EngineError::Stopped(format!(
                        "{} is unfinished and not driven by this engine",
                        run
                    )));
                }
                // It was just created by a schedule: until it comes into memory.
                RunState::Active => {
                    drop(shared);
                    let _ = tokio::time::timeout(LOOK_AGAIN, told).await;
                }
            }
        }
    }
}

pub(super) async fn header(shared: &Shared, run: RunId) -> Result<RunHeader, EngineError> {
    shared
        .store
        .header(run)
        .await?
        .filter(|header| *header.namespace == *shared.services.namespace)
        .ok_or(EngineError::UnknownRun(run))
}

pub(super) async fn status(shared: &Shared, run: RunId) -> Result<RunStatus, EngineError> {
    Ok(header(shared, run).await?.state.into())
}

pub(super) async fn parked_detail(
    shared: &Shared,
    run: RunId,
) -> Result<Option<String>, EngineError> {
    let header = header(shared, lines::newest(shared, run).await?).await?;
    let RunState::Parked(Parking {
        detail: Some(detail),
        ..
    }) = header.state
    else {
        return Ok(None);
    };
    let payloads = shared.services.payloads.at(Place::parking(header.run));
    let decoded = payloads.decode(&detail);
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
