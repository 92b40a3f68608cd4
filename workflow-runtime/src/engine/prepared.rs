//! A run that is ready to be created: its header and first record, without the user's types.
//!
//! Owns what a start, a schedule and a queue have in common: an encoded call becomes the first frame
//! of a journal. It never writes.

use std::marker::PhantomData;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{EngineError, Services};
use crate::call::args::{NamedWorkflowArgs, OrderedWorkflowArgs, WorkflowArgsSeed};
use crate::call::{Workflow, WorkflowDefinition};
use crate::clock::Timestamp;
use crate::digest::{Digest, InputDigest, digest_within};
use crate::ids::{DERIVATION_VERSION, RunId};
use crate::journal::{Chain, Draft, Event, Parent, RunStarted};
use crate::payload::{PayloadError, Payloads, Place};
use crate::store::{Durability, NewRun, Origin, RunHeader, RunState};

/// A workflow's call without its types, as notes keep it. Its fields' order is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EncodedCall {
    pub(super) workflow: Box<str>,
    pub(super) version: u32,
    pub(super) input_digest: Digest,
    pub(crate) input: Bytes,
}

impl EncodedCall {
    /// Encodes a call of a registered workflow.
    pub(crate) fn new<W: Workflow>(
        services: &Services,
        input: &W::Input,
    ) -> Result<Self, EngineError> {
        Self::encode::<W>(services, input).map(|(call, _)| call)
    }

    /// Encodes a call of a registered workflow, and gives the whole digest of its input.
    pub(crate) fn encode<W: Workflow>(
        services: &Services,
        input: &W::Input,
    ) -> Result<(Self, InputDigest), EngineError> {
        let digest = Self::digest::<W>(services, input)?;
        let call = Self::with_digest::<W>(services, input, digest)?;
        Ok((call, digest))
    }

    /// Computes the digest of a call's input, if its workflow is registered: enough to tell whether it was made
    /// before.
    pub(super) fn digest<W: Workflow>(
        services: &Services,
        input: &W::Input,
    ) -> Result<InputDigest, EngineError> {
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
        let payloads = &services.payloads;
        digest_within(&OrderedWorkflowArgs(input), payloads.limit()).map_err(|error| {
            // Where there is no payload either, that says it better.
            let encoded = payloads.encode(&NamedWorkflowArgs(args, input));
            let otherwise = || PayloadError::Serialize(error.to_string());
            EngineError::Input {
                workflow: name,
                problem: encoded.err().unwrap_or_else(otherwise),
            }
        })
    }

    /// Encodes a call whose digest is known.
    pub(super) fn with_digest<W: Workflow>(
        services: &Services,
        input: &W::Input,
        digest: InputDigest,
    ) -> Result<Self, EngineError> {
        let WorkflowDefinition {
            name,
            version,
            args,
            ..
        } = *W::DEFINITION;
        let unfit = |problem| EngineError::Input {
            workflow: name,
            problem,
        };
        let payloads = services.payloads.at(Place::call_input(&digest.strict));
        let input = payloads
            .encode(&NamedWorkflowArgs(args, input))
            .map_err(unfit)?;
        // What cannot be read back is refused now, not found at the first resume.
        let seed = WorkflowArgsSeed::<W::Input>(args, PhantomData);
        payloads.decode_seed(seed, &input).map_err(unfit)?;
        Ok(Self {
            workflow: name.into(),
            version,
            input_digest: digest.strict,
            input,
        })
    }
}

/// What names a run.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    pub(crate) run: RunId,
    pub(super) key: Option<Box<str>>,
    pub(super) generation: u64,
    /// The call that it is the child of.
    pub(super) parent: Option<Parent>,
}

impl Naming {
    /// A child, named by the call that it belongs to; a key only tells it from its siblings.
    pub(crate) fn child(parent: Parent, key: Option<Box<str>>) -> Self {
        Self {
            run: RunId::of_child(parent.call),
            key,
            generation: 0,
            parent: Some(parent),
        }
    }

    /// A run that continues another one of its line.
    pub(super) fn continued(
        run: RunId,
        key: Option<&str>,
        generation: u64,
        parent: Option<Parent>,
    ) -> Self {
        Self {
            run,
            key: key.map(Into::into),
            generation,
            parent,
        }
    }

    /// A run without a key.
    pub(super) fn unkeyed(run: RunId) -> Self {
        Self {
            run,
            key: None,
            generation: 0,
            parent: None,
        }
    }

    /// The run that a key names in one of its generations.
    pub(super) fn keyed(namespace: &str, workflow: &str, key: &str, generation: u64) -> Self {
        Self {
            run: RunId::derive(namespace, workflow, key, generation),
            key: Some(key.into()),
            generation,
            parent: None,
        }
    }
}

/// A run that is ready to be created.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) new: NewRun,
    pub(super) started: RunStarted,
    pub(super) chain: Chain,
}

impl Prepared {
    /// Makes a run's header and first record.
    pub(crate) fn new(
        services: &Services,
        call: &EncodedCall,
        naming: Naming,
        state: RunState,
    ) -> Self {
        Self::at(services.clock.now(), services, call, naming, state)
    }

    /// Makes a run's header and first record, as of a time.
    pub(super) fn at(
        created_at: Timestamp,
        services: &Services,
        call: &EncodedCall,
        naming: Naming,
        state: RunState,
    ) -> Self {
        let Naming {
            run,
            key,
            generation,
            parent,
        } = naming;
        let header = RunHeader {
            run,
            namespace: (*services.namespace).into(),
            workflow: call.workflow.clone(),
            version: call.version,
            key: key.clone(),
            input_digest: call.input_digest,
            created_at,
            origin: parent.map(|parent| Origin::Child(parent.run)),
            state,
        };
        let started = RunStarted {
            namespace: (*services.namespace).into(),
            workflow: call.workflow.clone(),
            version: call.version,
            key,
            generation,
            derivation: DERIVATION_VERSION,
            input_digest: call.input_digest,
            input: bound_input(services, call, run),
            parent,
        };
        let mut chain = Chain::new(run, services.audit_key.clone());
        let first = Draft::of(&Event::RunStarted(started.clone())).seal(created_at, &mut chain);
        let new = NewRun {
            header,
            first,
            rest: Vec::new(),
            durability: Durability::Synced, // whoever was told of a start relies on it
        };
        Self {
            new,
            started,
            chain,
        }
    }
}

/// Binds the input of a call to its run. One that cannot be opened is left as it is: the run is parked when it
/// reads it, with the reason, and nothing is lost.
fn bound_input(services: &Services, call: &EncodedCall, run: RunId) -> Bytes {
    let payloads = services.payloads.at(Place::run_input(run));
    let moved = payloads.moved_from(Place::call_input(&call.input_digest), &call.input);
    moved.unwrap_or_else(|_| call.input.clone())
}

/// Where the input of a run stands: at the run, or, if it could not be brought there, where its call left it.
pub(super) fn input_place(payloads: &Payloads, run: RunId, started: &RunStarted) -> Place {
    let (own, left) = (
        Place::run_input(run),
        Place::call_input(&started.input_digest),
    );
    let opens = |place| payloads.at(place).uncode(&started.input).is_ok();
    match payloads.binds() && !opens(own) && opens(left) {
        true => left,
        false => own,
    }
}
