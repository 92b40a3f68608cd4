//! Starting a run: derive its id, make its first record durable, hand it to a task.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;

use super::progress::Progress;
use super::{EngineError, RunEntry, RunHandle, Services, Shared, task};
use crate::call::args::{NamedWorkflowArgs, OrderedWorkflowArgs, WorkflowArgsSeed};
use crate::call::{Workflow, WorkflowCall, WorkflowDefinition};
use crate::clock::wall_clock;
use crate::digest::{InputDigest, digest};
use crate::ids::{DERIVATION_VERSION, RunId};
use crate::journal::{Chain, Draft, Event, Parent, RunStarted};
use crate::key::Key;
use crate::payload::PayloadError;
use crate::store::{BoxFuture, Durability, NewRun, Origin, RunHeader, RunState};

/// A run about to be started; see [`Engine::start`](super::Engine::start).
#[must_use = "nothing is started until this is awaited"]
pub struct Start<W: Workflow> {
    shared: Arc<Shared>,
    call: WorkflowCall<W>,
    key: Option<Key>,
}

impl<W: Workflow> Start<W> {
    pub(super) fn new(shared: Arc<Shared>, call: WorkflowCall<W>) -> Self {
        let key = call.key.clone();
        Self { shared, call, key }
    }

    /// Names the run by a business key: the same key with the same input gives the same run, at
    /// any concurrency and across restarts; with another input it is refused.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes the run's header and first record.
    fn prepare(&self) -> Result<Prepared, EngineError> {
        if let Some(problem) = self.key.as_ref().and_then(Key::problem) {
            return Err(EngineError::Key(problem));
        }
        let services = &self.shared.services;
        let run = match &self.key {
            Some(key) => RunId::derive(&services.namespace, W::DEFINITION.name, key.as_str(), 0),
            None => RunId::random(),
        };
        let identity = NewIdentity {
            run,
            key: self.key.as_ref().map(|key| key.as_str().into()),
            parent: None,
            origin: None,
        };
        prepare::<W>(services, &self.call.input, identity)
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

/// A run that is ready to be created.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) new: NewRun,
    pub(crate) started: RunStarted,
    pub(crate) digest: InputDigest,
    pub(super) chain: Chain,
}

/// What tells a new run from others.
pub(crate) struct NewIdentity {
    pub(crate) run: RunId,
    pub(crate) key: Option<Box<str>>,
    pub(crate) parent: Option<Parent>,
    pub(crate) origin: Option<Origin>,
}

/// Makes a run's header and first record.
pub(crate) fn prepare<W: Workflow>(
    services: &Services,
    input: &W::Input,
    identity: NewIdentity,
) -> Result<Prepared, EngineError> {
    let WorkflowDefinition {
        name,
        version,
        args,
        ..
    } = *W::DEFINITION;
    if services.registry.find(name, version).is_none() {
        return Err(EngineError::NotRegistered {
            workflow: name,
            version,
        });
    }
    let unfit = |problem| EngineError::Input {
        workflow: name,
        problem,
    };
    let payloads = &services.payloads;
    let digest = digest(&OrderedWorkflowArgs(input))
        .map_err(|error| unfit(PayloadError::Serialize(error.to_string())))?;
    let input_digest = digest.strict;
    let input = payloads
        .encode(&NamedWorkflowArgs(args, input))
        .map_err(unfit)?;
    // What cannot be read back is refused now, not found at the first resume.
    let seed = WorkflowArgsSeed::<W::Input>(args, PhantomData);
    payloads.decode_seed(seed, &input).map_err(unfit)?;
    let created_at = wall_clock();
    let header = RunHeader {
        run: identity.run,
        namespace: (*services.namespace).into(),
        workflow: name.into(),
        version,
        key: identity.key.clone(),
        input_digest,
        created_at,
        origin: identity.origin,
        state: RunState::Active,
    };
    let started = RunStarted {
        namespace: (*services.namespace).into(),
        workflow: name.into(),
        version,
        key: identity.key,
        generation: 0,
        derivation: DERIVATION_VERSION,
        input_digest,
        input,
        parent: identity.parent,
    };
    let mut chain = Chain::new(identity.run, services.audit_key.clone());
    let first = Draft::of(&Event::RunStarted(started.clone())).seal(created_at, &mut chain);
    let new = NewRun {
        header,
        first,
        durability: Durability::Synced, // whoever was told of a start relies on it
    };
    Ok(Prepared {
        new,
        started,
        digest,
        chain,
    })
}

impl<W: Workflow> IntoFuture for Start<W> {
    type Output = Result<RunHandle<W>, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
