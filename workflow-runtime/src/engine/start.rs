//! Starting a run: derive its id, make its first record durable, hand it to a task.

use std::future::IntoFuture;
use std::sync::Arc;

use super::prepared::{EncodedCall, Naming, Prepared};
use super::progress::Progress;
use super::{EngineError, RunEntry, RunHandle, Shared, task};
use crate::call::{Workflow, WorkflowCall};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{BoxFuture, RunState};

/// A run about to be started; see [`Engine::start`](super::Engine::start).
#[must_use = "nothing is started until this is awaited"]
pub struct Start<W: Workflow> {
    shared: Arc<Shared>,
    call: WorkflowCall<W>,
    key: Option<Key>,
}

impl<W: Workflow> Start<W> {
    pub(super) fn new(shared: Arc<Shared>, call: WorkflowCall<W>) -> Self {
        Self {
            shared,
            call,
            key: None,
        }
    }

    /// Names the run by a business key: the same key with the same input gives the same run, at
    /// any concurrency and across restarts; with another input it is refused.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes the run's header and first record.
    fn prepare(&self) -> Result<Prepared, EngineError> {
        let shared = &self.shared;
        let call = EncodedCall::new(shared, &self.call)?;
        if let Some(problem) = self.key.as_ref().and_then(Key::problem) {
            return Err(EngineError::Key(problem));
        }
        let naming = match &self.key {
            Some(key) => Naming::keyed(&shared.namespace, &call.workflow, key.as_str(), 0),
            None => Naming::unkeyed(RunId::random()),
        };
        Ok(Prepared::new(shared, &call, naming, RunState::Active))
    }

    async fn run(self) -> Result<RunHandle<W>, EngineError> {
        let prepared = self.prepare()?;
        let run = prepared.new.header.run;
        let now = prepared.new.header.input_digest;
        let shared = &self.shared;
        loop {
            if shared.is_closing() {
                return Err(EngineError::Stopped("it is shutting down".into()));
            }
            let entry = RunEntry::new(Progress::Creating);
            let known = {
                let mut runs = shared.runs();
                match runs.get(&run) {
                    Some(known) => Some(known.clone()),
                    None => {
                        runs.insert(run, entry.clone());
                        None
                    }
                }
            };
            let existing = match known {
                // Another start of the same key is under way, or the run is in memory.
                Some(known) => {
                    let created = |progress: &Progress| !matches!(progress, Progress::Creating);
                    known.progress.wait_for(created).await;
                    match shared.store.header(run).await? {
                        Some(header) => header,
                        None => continue, // that start failed: try ourselves
                    }
                }
                None => match task::create(shared, &entry, prepared.clone()).await? {
                    None => return Ok(RunHandle::new(shared, run, Some(entry))),
                    Some(header) => header,
                },
            };
            return if existing.input_digest == now {
                Ok(RunHandle::new(shared, run, shared.entry(run)))
            } else {
                Err(EngineError::Conflict {
                    key: existing.key.unwrap_or_default().into(),
                    run,
                    workflow: existing.workflow.into(),
                    started_at: existing.created_at,
                    first: existing.input_digest,
                    now,
                })
            };
        }
    }
}

impl<W: Workflow> IntoFuture for Start<W> {
    type Output = Result<RunHandle<W>, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
