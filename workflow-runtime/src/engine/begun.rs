//! A run that is owned: from its journal, or from nothing, to a driver.
//!
//! Owns the reading of a journal as history, and what of it the core, the writer and the driver of the
//! run are made of. It never claims a run and never drives one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::core::{Phase, RunCore};
use super::driver::{AfterCrash, Driver, Inherited};
use super::obstacle::Obstacle;
use super::prepared::input_place;
use super::registry::Ways;
use super::writer::Writer;
use super::{RunEntry, Shared};
use crate::call::CodeChanges;
use crate::clock::Timestamp;
use crate::context::WorkflowMetadata;
use crate::id_map::IdMap;
use crate::ids::{DERIVATION_VERSION, RunId, StepId};
use crate::journal::{AuditKey, Chain, Checkpoint, Links, Reader, RunStarted, RunSucceeds};
use crate::payload::Place;
use crate::replay::{Delivery, History, Known, Owed, Past};
use crate::store::{Durability, Epoch, Mail, ParkReason};

/// Reads a journal as history, or says why the run has to be parked.
pub(super) fn read_history(
    run: RunId,
    key: Option<AuditKey>,
    frames: &[Bytes],
    from: u64,
) -> Result<(History, Chain), Obstacle> {
    let links = Links::new(Chain::new(run, key.clone()), frames);
    let mut reader = Reader::new(run, key, frames);
    let history = match from > 1 {
        true => {
            reader = reader.leaving_out(from);
            History::read(reader.entries())
        }
        false => std::thread::scope(|scope| {
            links.call_help(scope);
            reader.share_with(&links);
            History::read(reader.entries())
        }),
    };
    let history = history.map_err(|error| {
        let reason = if error.is_newer() {
            ParkReason::Undecodable
        } else {
            ParkReason::Corrupt
        };
        Obstacle::new(reason, error.to_string())
    })?;
    match history {
        Some(history) if history.started.derivation == DERIVATION_VERSION => {
            Ok((history, reader.into_chain()))
        }
        Some(history) => Err(Obstacle::new(
            ParkReason::Undecodable,
            format!(
                "its ids are of derivation {}, this release knows {DERIVATION_VERSION}: upgrade \
                 workflow-runtime",
                history.started.derivation
            ),
        )),
        None => Err(Obstacle::new(
            ParkReason::Corrupt,
            "its journal does not begin with its start".to_owned(),
        )),
    }
}

/// A run that is owned and ready to be driven.
pub(super) struct Begun {
    started: RunStarted,
    started_at: Timestamp,
    pub(super) epoch: Epoch,
    pub(super) chain: Chain,
    recorded: VecDeque<Delivery>,
    intents: IdMap<StepId, Delivery>,
    known: IdMap<StepId, Known>,
    mail: Vec<Mail>,
    past: Past,
    checkpoint: Option<Box<(Checkpoint, u64)>>,
    /// What the run that this one continues has left it.
    succeeds: Option<Box<RunSucceeds>>,
    /// The first run of the line that it continues, and how many came before it.
    line: Option<(RunId, u64)>,
    owed: Option<Owed>,
    next_letter: u64,
    last_time: Timestamp,
    phase: Phase,
    crash: AfterCrash,
}

impl Begun {
    pub(super) fn fresh(
        started: RunStarted,
        created_at: Timestamp,
        epoch: Epoch,
        chain: Chain,
    ) -> Self {
        Self {
            started,
            started_at: created_at,
            epoch,
            chain,
            recorded: VecDeque::new(),
            intents: IdMap::default(),
            known: IdMap::default(),
            mail: Vec::new(),
            past: Past::default(),
            checkpoint: None,
            succeeds: None,
            line: None,
            owed: None,
            next_letter: 0,
            last_time: created_at,
            phase: Phase::Live,
            crash: AfterCrash::default(),
        }
    }

    /// A run that goes on from its history.
    pub(super) fn again(
        history: History,
        epoch: Epoch,
        chain: Chain,
        (mail, next_letter): (Vec<Mail>, u64),
        crash: AfterCrash,
    ) -> Self {
        Self {
            started: history.started,
            started_at: history.started_at,
            epoch,
            chain,
            recorded: history.deliveries,
            intents: history.intents,
            known: history.known,
            mail,
            next_letter,
            past: history.past,
            checkpoint: history.checkpoint,
            succeeds: history.succeeds,
            line: None,
            owed: history.owed,
            last_time: history.last_time,
            phase: Phase::Replaying,
            crash,
        }
    }

    /// The run continues a line.
    pub(super) fn in_line(mut self, line: Option<(RunId, u64)>) -> Self {
        self.line = line;
        self
    }

    pub(super) fn into_driver(
        self,
        shared: &Arc<Shared>,
        entry: &RunEntry,
    ) -> Result<Driver, Obstacle> {
        let started = self.started;
        let registered = shared
            .services
            .registry
            .find(&started.workflow, started.version)
            .ok_or_else(|| {
                let report = shared
                    .services
                    .registry
                    .missing(&started.workflow, started.version);
                Obstacle::new(ParkReason::Unregistered, report)
            })?;
        let run = self.chain.run();
        let first = self.line.map_or(run, |(first, _)| first);
        let payloads = &shared.services.payloads;
        let input = input_place(payloads, run, &started);
        let ways = Ways {
            input: payloads.at(input),
            end: payloads.at(Place::run_end(first)),
        };
        let workflow = (registered.make)(&ways, &started.input).map_err(|problem| {
            let what = format!("the recorded input of `{}`", started.workflow);
            Obstacle::unreadable(&what, &problem)
        })?;
        let identity = WorkflowMetadata {
            run_id: self.chain.run(),
            workflow_name: (*started.workflow).into(),
            version: started.version,
            namespace: shared.services.namespace.clone(),
            key: started.key.as_deref().map(Into::into),
            run_started_at: self.started_at.into(),
        };
        let mut past = self.past;
        if registered.changes == CodeChanges::Tolerant {
            past.tolerate();
        }
        // `now()` is the time of the last delivery, and the start is the first one.
        let core = RunCore::new(
            identity,
            shared.services.clone(),
            self.known,
            past,
            self.started_at,
            self.phase,
        );
        // What was only buffered, by this process or another, is not known any more: it may be all. An
        // engine that syncs has synced a record of its own before any body starts.
        let buffers = shared.services.config.durability == Durability::Buffered;
        if buffers && self.phase == Phase::Replaying {
            core.assume_buffered(self.chain.next_seq());
        }
        entry.set_core(core.clone());
        if shared.is_closing() {
            core.set_phase(Phase::Closing);
        }
        let writer = Writer {
            store: shared.store.clone(),
            run: self.chain.run(),
            epoch: self.epoch,
            chain: self.chain,
            clock: shared.services.clock.clone(),
            last_time: self.last_time,
            durability: shared.services.config.durability,
            taken: self
                .mail
                .first()
                .map_or(self.next_letter, |mail| mail.number),
            slot: None,
        };
        let mut driver = Driver::new(
            core.clone(),
            workflow,
            writer,
            registered.changes,
            Inherited {
                recorded: self.recorded,
                intents: self.intents,
                mail: self.mail,
                next_letter: self.next_letter,
                parent: started.parent,
                generation: started.generation,
                crash: self.crash,
            },
        );
        if let Some((first, ordinal)) = self.line {
            core.join_line(first, ordinal);
        }
        if let Some(left) = &self.succeeds {
            core.succeed(left);
        }
        if let Some((checkpoint, seq)) = self.checkpoint.as_deref() {
            core.carried(checkpoint, self.owed);
            driver.enter_pass(checkpoint, *seq)?;
        }
        Ok(driver)
    }
}
