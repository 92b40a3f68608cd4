//! A run that is ready to be created: its header and first record, without the user's types.
//!
//! Owns what a start, a schedule and a queue have in common: an encoded call becomes the first frame
//! of a journal. It never writes.

use std::marker::PhantomData;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{EngineError, Shared};
use crate::call::args::{NamedWorkflowArgs, OrderedWorkflowArgs, WorkflowArgsSeed};
use crate::call::{Workflow, WorkflowCall, WorkflowDefinition};
use crate::clock::wall_clock;
use crate::digest::{Digest, digest};
use crate::ids::{DERIVATION_VERSION, RunId};
use crate::journal::{Chain, Draft, Event, RunStarted};
use crate::payload::PayloadError;
use crate::store::{Durability, NewRun, RunHeader, RunState};

/// A workflow's call without its types, as notes keep it. Its fields' order is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EncodedCall {
    pub(super) workflow: Box<str>,
    pub(super) version: u32,
    pub(super) input_digest: Digest,
    pub(super) input: Bytes,
}

impl EncodedCall {
    /// Encodes a call of a registered workflow.
    pub(super) fn new<W: Workflow>(
        shared: &Shared,
        call: &WorkflowCall<W>,
    ) -> Result<Self, EngineError> {
        let WorkflowDefinition {
            name,
            version,
            args,
            ..
        } = *W::DEFINITION;
        if shared.registry.find(name, version).is_none() {
            return Err(EngineError::NotRegistered {
                workflow: name,
                version,
            });
        }
        let unfit = |problem| EngineError::Input {
            workflow: name,
            problem,
        };
        let payloads = &shared.services.payloads;
        let input_digest = digest(&OrderedWorkflowArgs(&call.input))
            .map_err(|error| unfit(PayloadError::Serialize(error.to_string())))?
            .strict;
        let input = payloads
            .encode(&NamedWorkflowArgs(args, &call.input))
            .map_err(unfit)?;
        // What cannot be read back is refused now, not found at the first resume.
        let seed = WorkflowArgsSeed::<W::Input>(args, PhantomData);
        payloads.decode_seed(seed, &input).map_err(unfit)?;
        Ok(Self {
            workflow: name.into(),
            version,
            input_digest,
            input,
        })
    }
}

/// What names a run.
#[derive(Debug, Clone)]
pub(super) struct Naming {
    pub(super) run: RunId,
    pub(super) key: Option<Box<str>>,
    pub(super) generation: u64,
}

impl Naming {
    /// A run without a key.
    pub(super) fn unkeyed(run: RunId) -> Self {
        Self {
            run,
            key: None,
            generation: 0,
        }
    }

    /// The run that a key names in one of its generations.
    pub(super) fn keyed(namespace: &str, workflow: &str, key: &str, generation: u64) -> Self {
        Self {
            run: RunId::derive(namespace, workflow, key, generation),
            key: Some(key.into()),
            generation,
        }
    }
}

/// A run that is ready to be created.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) new: NewRun,
    pub(super) started: RunStarted,
    pub(super) chain: Chain,
}

impl Prepared {
    /// Makes a run's header and first record.
    pub(super) fn new(
        shared: &Shared,
        call: &EncodedCall,
        naming: Naming,
        state: RunState,
    ) -> Self {
        let created_at = wall_clock();
        let Naming {
            run,
            key,
            generation,
        } = naming;
        let header = RunHeader {
            run,
            namespace: (*shared.namespace).into(),
            workflow: call.workflow.clone(),
            version: call.version,
            key: key.clone(),
            input_digest: call.input_digest,
            created_at,
            origin: None,
            state,
        };
        let started = RunStarted {
            namespace: (*shared.namespace).into(),
            workflow: call.workflow.clone(),
            version: call.version,
            key,
            generation,
            derivation: DERIVATION_VERSION,
            input_digest: call.input_digest,
            input: call.input.clone(),
        };
        let mut chain = Chain::new(run, shared.audit_key.clone());
        let first = Draft::of(&Event::RunStarted(started.clone())).seal(created_at, &mut chain);
        let new = NewRun {
            header,
            first,
            durability: Durability::Synced, // whoever was told of a start relies on it
        };
        Self {
            new,
            started,
            chain,
        }
    }
}
