//! Forking: a new run that shares another one's history up to a step.
//!
//! Owns where a run can be forked and what is copied. The copied records are chained anew, under the
//! new run's id, and are written together with its creation: it is there with all of them or not at all.
//! The origin is only read.

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::prepared::input_place;
use super::task::take_up;
use super::{Engine, EngineError, Shared, handle};
use crate::ids::{RunId, StepId};
use crate::journal::{Chain, Draft, Event, Reader, Record, RunForked};
use crate::payload::{PayloadError, Payloads, Place};
use crate::store::{BoxFuture, Creation, Durability, NewRun, Origin, RunHeader, RunState};

impl Engine {
    /// Makes a new run that shares a run's history up to a step; await it, after saying where.
    ///
    /// The new run has an id of its own and no key. It is given the outcomes that are copied, and runs
    /// everything from there on itself, with the workflow's code of today and under step ids of its
    /// own. The origin, which may be active, parked or ended, is left as it is.
    ///
    /// ```no_run
    /// # use workflow_runtime::{Engine, Result, RunId, StepId};
    /// # async fn example(engine: Engine, run: RunId, charge: StepId) -> Result<()> {
    /// let again = engine.fork(run).at(charge).await?; // all before the charge, then the charge anew
    /// # let _ = again;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fork(&self, run: RunId) -> Fork<RunId> {
        Fork::new(Arc::downgrade(self.shared()), run, |_, fork| fork)
    }
}

/// Where a run is forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkPoint {
    /// Before the outcome of this step or timer: it is the first thing that is not shared.
    Step(StepId),
    /// Before the record with this sequence number.
    Record(u64),
    /// At the end: all that is recorded is shared, but for how the run ended.
    End,
}

impl From<StepId> for ForkPoint {
    fn from(step: StepId) -> Self {
        Self::Step(step)
    }
}

impl From<u64> for ForkPoint {
    fn from(seq: u64) -> Self {
        Self::Record(seq)
    }
}

impl fmt::Display for ForkPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => step.fmt(f),
            Self::Record(seq) => write!(f, "record {seq}"),
            Self::End => write!(f, "its end"),
        }
    }
}

/// A run about to be forked; see [`Engine::fork`]. Awaiting it gives `R`: the new run's id, or a
/// handle to it.
#[must_use = "nothing is forked until this is awaited"]
pub struct Fork<R> {
    shared: Weak<Shared>,
    origin: RunId,
    at: ForkPoint,
    made: fn(&Arc<Shared>, RunId) -> R,
}

impl<R> Fork<R> {
    pub(super) fn new(
        shared: Weak<Shared>,
        origin: RunId,
        made: fn(&Arc<Shared>, RunId) -> R,
    ) -> Self {
        Self {
            shared,
            origin,
            at: ForkPoint::End,
            made,
        }
    }

    /// Says where: before the outcome of a step, or before a record. Otherwise at the end.
    pub fn at(mut self, at: impl Into<ForkPoint>) -> Self {
        self.at = at.into();
        self
    }

    async fn make(self) -> Result<R, EngineError> {
        let shared = self.shared.upgrade();
        let shared = shared.ok_or_else(|| EngineError::Stopped("it was dropped".into()))?;
        let run = fork(&shared, self.origin, self.at).await?;
        Ok((self.made)(&shared, run))
    }
}

impl<R: 'static> IntoFuture for Fork<R> {
    type Output = Result<R, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

async fn fork(shared: &Arc<Shared>, origin: RunId, at: ForkPoint) -> Result<RunId, EngineError> {
    if shared.is_closing() {
        return Err(EngineError::Stopped("it is shutting down".into()));
    }
    let header = handle::header(shared, origin).await?;
    let frames = shared.store.frames(origin, 0, usize::MAX).await?;
    let reader = Reader::new(origin, shared.services.audit_key.clone(), &frames);
    let records: Vec<Record> = reader.collect::<Result<_, _>>()?;
    let shared_records = place(&records, at).map_err(|problem| EngineError::NoForkPoint {
        run: origin,
        at,
        problem,
    })?;

    let (run, now) = (shared.services.new_run_id(), shared.services.clock.now());
    let mut chain = Chain::new(run, shared.services.audit_key.clone());
    let moving = Moving {
        payloads: &shared.services.payloads,
        from: (origin, header.first_of_line()),
        to: run,
    };
    let mut copied = Vec::with_capacity(shared_records + 1);
    for (frame, record) in frames.iter().zip(&records).take(shared_records) {
        copied.push(match moving.event(&record.event)? {
            None => chain.copy(frame),
            Some(moved) => Draft::of(&moved).seal(record.time, &mut chain),
        });
    }
    let made_by = made_by(origin, &records[shared_records..]);
    let last = records[shared_records - 1].time;
    let forked = Event::RunForked(RunForked { origin: made_by });
    copied.push(Draft::of(&forked).seal(now.max(last), &mut chain));
    let rest = copied.split_off(1);
    let new = NewRun {
        header: RunHeader {
            run,
            key: None,
            created_at: now,
            origin: Some(Origin::Forked(origin)),
            state: RunState::Active,
            ..header
        },
        first: copied.remove(0),
        rest,
        durability: Durability::Synced,
    };
    match shared.store.create(new).await? {
        Creation::Created(_) => {}
        Creation::Exists(_) => unreachable!("a random id is new"),
    }
    take_up(shared, run, false);
    Ok(run)
}

/// How many records are shared when a run is forked there.
fn place(records: &[Record], at: ForkPoint) -> Result<usize, String> {
    let ends = |record: &Record| record.event.is_end();
    let shared = match at {
        ForkPoint::Step(step) => outcome_of(records, step).ok_or(
            "its journal has no outcome of it; `engine.journal(run)` lists the ids that it has",
        )?,
        ForkPoint::Record(seq) => usize::try_from(seq).unwrap_or(usize::MAX),
        ForkPoint::End => records.len() - usize::from(records.last().is_some_and(ends)),
    };
    match shared {
        0 => Err(
            "record 0 is the start of the run, which is always shared; start a new run instead"
                .to_owned(),
        ),
        shared if shared > records.len() => Err(format!("it has {} records", records.len())),
        shared if ends(&records[shared - 1]) => Err(format!(
            "the run had ended with record {}; fork it there or before",
            shared - 1
        )),
        shared => Ok(shared),
    }
}

/// The place of the outcome of a call, the one that counts if there were several.
fn outcome_of(records: &[Record], call: StepId) -> Option<usize> {
    records.iter().rposition(|record| match &record.event {
        Event::StepCompleted(step) => step.step == call,
        Event::TimerFired(fired) => fired.timer == call,
        _ => false,
    })
}

/// The run whose ids are in the copied records: the origin's own, or, if all of them were copied
/// before, those of the run that it was forked from.
fn made_by(origin: RunId, not_shared: &[Record]) -> RunId {
    let forks = not_shared.iter().find_map(|record| match &record.event {
        Event::RunForked(fork) => Some(fork.origin),
        _ => None,
    });
    forks.unwrap_or(origin)
}

/// Brings payloads that are bound to a run to another one. Those of steps are bound to their ids, which stay.
struct Moving<'a> {
    payloads: &'a Payloads,
    /// The run that had them, and the first one of its line.
    from: (RunId, RunId),
    to: RunId,
}

impl Moving<'_> {
    /// The record with its payloads brought over; `None` if it can stay as it is.
    fn event(&self, event: &Event) -> Result<Option<Event>, EngineError> {
        if !self.payloads.binds() {
            return Ok(None);
        }
        let (origin, first) = self.from;
        let mut event = event.clone();
        let moved = match &mut event {
            Event::RunStarted(started) => {
                let from = input_place(self.payloads, origin, started);
                self.payload(from, Place::run_input(self.to), &mut started.input)
            }
            Event::Checkpoint(checkpoint) => {
                let (from, to) = (Place::checkpoint(origin), Place::checkpoint(self.to));
                let input = self.payload(from, to, &mut checkpoint.input);
                input.and_then(|()| self.signals(first, &mut checkpoint.signals))
            }
            Event::RunSucceeds(succeeds) => self.signals(first, &mut succeeds.signals),
            Event::SignalReceived(signal) => self.payload(
                Place::signal(first),
                Place::signal(self.to),
                &mut signal.payload,
            ),
            _ => return Ok(None),
        };
        match moved {
            Ok(()) => Ok(Some(event)),
            Err(problem) => Err(EngineError::Payload {
                what: "record to be copied",
                run: origin,
                problem,
            }),
        }
    }

    fn signals(
        &self,
        first: RunId,
        unread: &mut [(Box<str>, Vec<Bytes>)],
    ) -> Result<(), PayloadError> {
        let mut payloads = unread.iter_mut().flat_map(|(_, payloads)| payloads);
        payloads.try_for_each(|payload| {
            self.payload(Place::signal(first), Place::signal(self.to), payload)
        })
    }

    fn payload(&self, from: Place, to: Place, payload: &mut Bytes) -> Result<(), PayloadError> {
        *payload = self.payloads.at(to).moved_from(from, payload)?;
        Ok(())
    }
}
