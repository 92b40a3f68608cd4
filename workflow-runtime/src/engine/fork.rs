//! Forking: a new run that shares another one's history up to a step.
//!
//! Owns where a run can be forked and what is copied. The copied records are chained anew, under the
//! new run's id, and are written together with its creation: it is there with all of them or not at all.
//! The origin is only read.

mod moving;

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use self::moving::Moving;
use super::task::take_up;
use super::{Engine, EngineError, Shared, handle};
use crate::ids::{RunId, StepId};
use crate::journal::{Chain, Draft, Event, Reader, Record, RunForked, RunReopened, UndoCarried};
use crate::store::{
    BoxFuture, Creation, Durability, KeptJournal, NewRun, Origin, RunHeader, RunState,
};

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
    /// At the end: all that is recorded is shared, but for how the run ended, and what it undid because of that.
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
        return Err(shared.refusal("it is shutting down"));
    }
    let header = handle::header(shared, origin).await?;
    let kept = shared.store.journal(origin).await?;
    let reader = Reader::of(origin, shared.services.audit_key.clone(), &kept);
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
    let mut copied = copy(&kept, &records[..shared_records], &moving, &mut chain)?;
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
    // What is undone is undone by the origin, once: a fork that shared the decision would do it again, under ids of its own.
    let closes = |record: &Record| matches!(record.event, Event::RunClosing(_));
    let closing = records.iter().position(closes);
    let shared = match at {
        ForkPoint::Step(step) => outcome_of(records, step).ok_or(
            "its journal has no outcome of it; `engine.journal(run)` lists the ids that it has",
        )?,
        ForkPoint::Record(seq) => before(records, seq)?,
        ForkPoint::End => {
            closing.unwrap_or(records.len() - usize::from(records.last().is_some_and(ends)))
        }
    };
    match shared {
        0 => Err(
            "record 0 is the start of the run, which is always shared; start a new run instead"
                .to_owned(),
        ),
        shared if closing.is_some_and(|closing| shared > closing) => Err(format!(
            "from record {} on the run undid what it had done; fork it there or before",
            records[closing.unwrap_or_default()].seq
        )),
        shared if ends(&records[shared - 1]) => Err(format!(
            "the run had ended with record {}; fork it there or before",
            records[shared - 1].seq
        )),
        shared => Ok(shared),
    }
}

/// How many records there are before one.
fn before(records: &[Record], seq: u64) -> Result<usize, String> {
    let end = records.last().map_or(0, |last| last.seq + 1);
    if seq > end {
        return Err(format!("it has {end} records"));
    }
    let place = records.partition_point(|record| record.seq < seq);
    match records[..place].last() {
        Some(last) if last.seq + 1 < seq => Err(format!(
            "the run forgot record {} when it began anew; fork it behind record {}",
            seq - 1,
            records[place].seq
        )),
        _ => Ok(place),
    }
}

/// Frames records of a run anew for another, with what is bound to its run brought over. If it forgot some, those
/// behind move up, and what they say of each other with them.
fn copy(
    kept: &KeptJournal,
    records: &[Record],
    moving: &Moving<'_>,
    chain: &mut Chain,
) -> Result<Vec<Bytes>, EngineError> {
    // Of the last record that was forgotten only the link is there.
    let link = (kept.kept_from > 0).then_some(2);
    let frames = kept.frames.iter().enumerate();
    let frames = frames.filter(|(place, _)| Some(*place) != link);
    let frames = frames.map(|(_, frame)| frame);
    let first = records.get(2).map_or(2, |first| first.seq);
    let copied = records.iter().zip(frames).map(|(record, frame)| {
        let event = match renumbered(&record.event, first) {
            None => moving.event(&record.event)?,
            renumbered => renumbered,
        };
        Ok(match event {
            None => chain.copy(frame),
            Some(event) => Draft::of(&event).seal(record.time, chain),
        })
    });
    copied.collect()
}

/// What names other records by their numbers, when the third record was the one with the number `first`; `None` if
/// nothing changes.
fn renumbered(event: &Event, first: u64) -> Option<Event> {
    let moved = |seq: u64| seq - (first - 2);
    match event {
        _ if first == 2 => None,
        Event::UndoCarried(carried) => Some(Event::UndoCarried(UndoCarried {
            since: moved(carried.since),
            before: carried.before.map(moved),
            ..carried.clone()
        })),
        Event::RunReopened(reopened) => Some(Event::RunReopened(RunReopened {
            voided: {
                let there = reopened.voided.iter().filter(|seq| **seq >= first);
                there.map(|seq| moved(*seq)).collect()
            },
        })),
        _ => None,
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
