//! What earlier passes of a run did, read back to be undone.
//!
//! Owns the way from an `undo carried` record to calls that can be made: the record is read from the journal, and
//! the function of each step is had by replaying the pass that called it. That replay runs no step and writes nothing;
//! if the code no longer fits, what it called before that still counts, and the rest is looked for by name
//! (`undo_steps`). A step that was registered needs no replay. It never undoes anything itself.

use std::sync::Arc;

use super::begun::{Begun, read_history};
use super::core::undo::Undo;
use super::driver::AfterCrash;
use super::obstacle::Obstacle;
use super::progress::Progress;
use super::undo_steps::UndoWay;
use super::{RunEntry, Services, Shared, lines};
use crate::id_map::IdMap;
use crate::ids::{RunId, StepId};
use crate::journal::{CarriedUndo, Event, Reader, UndoCarried};
use crate::store::{Epoch, ParkReason, StoreError};

/// Steps that are to be undone, in that order, and the record that has those before them.
pub(crate) struct OwedSteps {
    pub(crate) undo: Vec<Undo>,
    pub(crate) before: Option<u64>,
}

/// Why they could not be had.
pub(crate) enum Unread {
    /// The store did not give them.
    Store(StoreError),
    /// A person has to help.
    Park(Obstacle),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Reads the steps of one record.
pub(crate) async fn read(
    services: Arc<Services>,
    run: RunId,
    seq: u64,
) -> Result<OwedSteps, Unread> {
    let shared = services.engine().ok_or_else(|| StoreError::Stopped {
        reason: "the engine was dropped".to_owned(),
    })?;
    let carried = record(&shared, run, seq).await?;
    let steps = &services.undo_steps;
    let registered = |step: &CarriedUndo| steps.registered(&step.name);
    let mut replayed = IdMap::default();
    if carried.steps.iter().any(|step| registered(step).is_none()) {
        replayed = replay(&shared, run, carried.since, seq).await?;
    }
    let mut undo = Vec::with_capacity(carried.steps.len());
    for step in carried.steps.into_iter().rev() {
        let way = registered(&step)
            .or_else(|| replayed.get(&step.step).copied())
            .or_else(|| steps.find(&step.name, &step.module));
        let way = way.ok_or_else(|| Unread::Park(unknown(&step)))?;
        undo.push(Undo::carried(step, way));
    }
    let before = carried.before;
    Ok(OwedSteps { undo, before })
}

/// Reads the record itself.
async fn record(shared: &Shared, run: RunId, seq: u64) -> Result<UndoCarried, Unread> {
    // The record before it is needed for its link in the chain.
    let from = seq.saturating_sub(1);
    let frames = shared.store.frames(run, from, 2).await?;
    let mut reader = Reader::behind(run, shared.services.audit_key.clone(), from, &frames);
    let problem = match reader.next() {
        Some(Ok(record)) => match record.event {
            Event::UndoCarried(carried) => return Ok(carried),
            _ => format!("record {seq} should say what is to be undone, and says something else"),
        },
        Some(Err(error)) => error.to_string(),
        None => format!("record {seq} is missing, which says what is to be undone"),
    };
    Err(Unread::Park(Obstacle::new(ParkReason::Corrupt, problem)))
}

/// Replays the pass that ended with a record, as far as its code goes, and says how the steps that it called are undone.
async fn replay(
    shared: &Arc<Shared>,
    run: RunId,
    since: u64,
    end: u64,
) -> Result<IdMap<StepId, UndoWay>, Unread> {
    let from = since.saturating_sub(1);
    let read = |from: u64, until: u64| {
        let count = usize::try_from(until.saturating_sub(from)).unwrap_or(usize::MAX);
        shared.store.frames(run, from, count)
    };
    let frames = if from > 1 {
        let mut frames = read(0, 1).await?;
        frames.extend(read(from, end).await?);
        frames
    } else {
        read(0, end).await?
    };
    let key = shared.services.audit_key.clone();
    let (history, chain) = read_history(run, key, &frames, from).map_err(Unread::Park)?;
    // Nothing is written under this epoch.
    let mail = (Vec::new(), 0);
    let crash = AfterCrash::default();
    let line = match shared.store.header(run).await? {
        Some(header) => lines::place_of(shared, &header).await?,
        None => Ok(None),
    };
    let begun = Begun::again(history, Epoch::FIRST, chain, mail, crash);
    let begun = begun.in_line(line.map_err(Unread::Park)?);
    let entry = RunEntry::new(Progress::Active);
    Ok(match begun.into_driver(shared, &entry) {
        Ok(driver) => driver.probe_undo(),
        Err(_) => IdMap::default(), // the code of that pass is gone
    })
}

fn unknown(step: &CarriedUndo) -> Obstacle {
    let CarriedUndo {
        step, name, module, ..
    } = step;
    let report = format!(
        "step `{name}` ({step}) of an earlier pass is to be undone, and this process does not know how: the code \
         does not come to it any more when that pass is replayed, and no step of that name of the module `{module}` was \
         called or registered\n  \
         add `.register_step::<{name}>()` to `Engine::builder()`: the run goes on when that engine is opened; \
         nothing is lost"
    );
    Obstacle::new(ParkReason::Unregistered, report)
}
