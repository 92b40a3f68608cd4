//! Poison runs: those whose own code kills the process, again and again.
//!
//! Owns the marks that say how often the process died while a run was driven. They are notes, not
//! records, so that a workflow which kills the process while it is replayed is caught too. After an
//! unclean stop every run that was driven is marked, durably and before any of them is polled. From the
//! second time on a run is a *suspect*: suspects are driven one at a time, and only a crash in that
//! time counts; the third parks the run. The mark goes with the next thing that the run achieves. A run
//! without a mark costs nothing.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::obstacle::Obstacle;
use super::progress::Progress;
use super::{EngineError, Shared, notes};
use crate::clock::Timestamp;
use crate::id_map::IdMap;
use crate::ids::{RunId, StepId};
use crate::journal::{AuditKey, Event, Reader};
use crate::store::{Changes, Commit, NoteChange, ParkReason, RunHeader, RunState, StoreResult};

/// From this many crashes on, a run is driven only when no other suspect is.
const SUSPECT_AT: u32 = 2;

/// This many crashes while it was the only suspect, and the run is parked.
const POISON_AT: u32 = 3;

/// How many notes are read or written at a time.
const BATCH: usize = 1_000;

/// The layout of a mark.
const FORMAT: u8 = 1;

/// What is known against a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// How often the process died while it was driven, with others; not counted beyond what makes
    /// a suspect.
    together: u32,
    /// How often the process died while it was the only suspect.
    alone: u32,
    /// It is the only suspect now.
    isolated: bool,
    /// When the first of these deaths was noticed.
    since: Timestamp,
}

impl Mark {
    fn first(since: Timestamp) -> Self {
        Self {
            together: 1,
            alone: 0,
            isolated: false,
            since,
        }
    }

    /// The process has died once more.
    fn after_crash(mut self) -> Self {
        if self.isolated {
            self.isolated = false;
            self.alone += 1;
        } else {
            self.together = (self.together + 1).min(SUSPECT_AT);
        }
        self
    }

    fn is_suspect(self) -> bool {
        self.together >= SUSPECT_AT
    }

    fn encode(self) -> Bytes {
        let mut bytes = vec![FORMAT, u8::from(self.isolated)];
        bytes.extend_from_slice(&self.together.to_be_bytes());
        bytes.extend_from_slice(&self.alone.to_be_bytes());
        bytes.extend_from_slice(&self.since.as_micros().to_be_bytes());
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[FORMAT, isolated], rest) = bytes.split_first_chunk()? else {
            return None;
        };
        let (together, rest) = rest.split_first_chunk()?;
        let (alone, since) = rest.split_first_chunk()?;
        Some(Self {
            together: u32::from_be_bytes(*together),
            alone: u32::from_be_bytes(*alone),
            isolated: isolated != 0,
            since: Timestamp::from_micros(u64::from_be_bytes(since.try_into().ok()?)),
        })
    }
}

/// The marks of an engine's runs.
pub(super) struct Marks {
    /// All marks in the store.
    known: Mutex<IdMap<RunId, Mark>>,
    /// The right to be the only suspect.
    turn: Arc<Semaphore>,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Marks {
    fn known(&self) -> MutexGuard<'_, IdMap<RunId, Mark>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known against a run; nearly always nothing.
    fn of(&self, run: RunId) -> Option<Mark> {
        self.known().get(&run).copied()
    }

    /// How a run's mark is taken away, if it has one.
    pub(super) fn removal(&self, run: RunId) -> Option<NoteChange> {
        self.of(run).map(|_| removal(run))
    }

    /// A run's mark was taken away.
    pub(super) fn removed(&self, run: RunId) {
        self.known().remove(&run);
    }

    /// How many crashes count against a run; the fewer, the sooner it gets its turn.
    pub(super) fn weight(&self, run: RunId) -> u32 {
        self.of(run).map_or(0, |mark| mark.alone)
    }
}

fn removal(run: RunId) -> NoteChange {
    NoteChange {
        key: notes::mark(run),
        value: None,
    }
}

/// A run that is driven with a mark. While it is the only suspect, this holds the right to be.
pub(super) struct Marked {
    marks: Arc<Marks>,
    run: RunId,
    mark: Mark,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Marked {
    /// How the mark is taken away.
    pub(super) fn removal(&self) -> NoteChange {
        removal(self.run)
    }

    /// The mark was taken away, durably.
    pub(super) fn removed(self) {
        self.marks.removed(self.run);
    }

    /// Why the run is to be parked before any of its code runs, if it is.
    pub(super) fn poison(
        &self,
        key: Option<AuditKey>,
        frames: &[Bytes],
        from: u64,
    ) -> Option<Obstacle> {
        let Mark { alone, since, .. } = self.mark;
        if alone < POISON_AT {
            return None;
        }
        let mut report = format!(
            "the process died {alone} times while this run was driven and no other suspect was, and \
             before that {SUSPECT_AT} times while it was driven with others, since {since}"
        );
        let in_flight = in_flight(Reader::new(self.run, key, frames).leaving_out(from));
        if !in_flight.is_empty() {
            report.push_str("\n  steps in flight at the last recovery on record:");
            for step in in_flight {
                let _ = write!(report, " {step}");
            }
        }
        report.push_str(
            "\n  no step was lost; find what ends the process (an abort, a stack overflow, memory, a \
             loop that a watchdog kills), fix, deploy, then `engine.resume(run)`, or give the run up \
             with `engine.terminate(run)`",
        );
        Some(Obstacle::new(ParkReason::Poison, report))
    }
}

/// The steps that the journal's last recovery names, if nothing was achieved after it.
fn in_flight(records: Reader<'_>) -> Vec<StepId> {
    let mut found = Vec::new();
    for record in records {
        match record.map(|record| record.event) {
            Ok(Event::RunRecovered(recovered)) => found = recovered.in_flight,
            Ok(_) => found.clear(),
            Err(_) => break,
        }
    }
    found
}

/// Raises the marks of all runs that were driven when the process died. Durable when it returns.
pub(super) async fn mark_all(shared: &Shared, headers: &[RunHeader]) -> Result<(), EngineError> {
    let mut before = read(shared).await?;
    let now = shared.services.clock.now();
    let mut changes = Vec::new();
    let mut known = IdMap::default();
    for header in headers {
        let mark = before.remove(&header.run);
        let ours = *header.namespace == *shared.services.namespace;
        match &header.state {
            RunState::Active if ours => {
                // Nothing died where the store failed and the process went on.
                let raised = match (shared.reopened, mark) {
                    (true, None) => continue,
                    (true, Some(mark)) => mark,
                    (false, mark) => mark.map_or(Mark::first(now), Mark::after_crash),
                };
                known.insert(header.run, raised);
                if mark != Some(raised) {
                    changes.push(NoteChange {
                        key: notes::mark(header.run),
                        value: Some(raised.encode()),
                    });
                }
            }
            RunState::Active => {} // its own engine does that
            _ => changes.extend(mark.map(|_| removal(header.run))),
        }
    }
    // Marks of runs that have ended or fallen asleep and could not take them along.
    changes.extend(before.into_keys().map(removal));
    write(shared, changes).await?;
    *shared.marks.known() = known;
    Ok(())
}

async fn read(shared: &Shared) -> StoreResult<IdMap<RunId, Mark>> {
    let mut marks = IdMap::default();
    let mut after = None;
    loop {
        let page = shared
            .store
            .notes(notes::marks(), after.take(), BATCH)
            .await?;
        for (key, value) in &page {
            let run = key.parts().and_then(|parts| {
                let bytes = <[u8; 16]>::try_from(parts.first()?.as_slice()).ok()?;
                Some(RunId::from_bytes(bytes))
            });
            if let (Some(run), Some(mark)) = (run, Mark::decode(value)) {
                marks.insert(run, mark);
            }
        }
        if page.len() < BATCH {
            return Ok(marks);
        }
        after = page.into_iter().next_back().map(|(key, _)| key);
    }
}

async fn write(shared: &Shared, changes: Vec<NoteChange>) -> StoreResult<()> {
    let mut rest = changes.into_iter();
    loop {
        let notes: Vec<_> = rest.by_ref().take(BATCH).collect();
        if notes.is_empty() {
            return Ok(());
        }
        let commit = Commit {
            guards: Vec::new(),
            changes: Changes {
                notes,
                ..Changes::default()
            },
        };
        shared.store.commit(commit).await?;
    }
}

/// Lets a run be driven: at once if nothing is known against it, in its turn if it is a suspect.
pub(super) async fn admit(shared: &Shared, run: RunId) -> Result<Option<Box<Marked>>, Progress> {
    let Some(mut mark) = shared.marks.of(run) else {
        return Ok(None);
    };
    let mut turn = None;
    if mark.is_suspect() && mark.alone < POISON_AT {
        turn = shared.marks.turn.clone().acquire_owned().await.ok();
        if shared.is_closing() {
            return Err(Progress::stopped("the engine was shut down"));
        }
        mark.isolated = true;
        let note = NoteChange {
            key: notes::mark(run),
            value: Some(mark.encode()),
        };
        write(shared, vec![note]).await.map_err(Progress::from)?;
        tracing::warn!(
            %run, crashes = mark.alone,
            "the process died while this run was driven: it is driven as the only suspect"
        );
    }
    Ok(Some(Box::new(Marked {
        marks: shared.marks.clone(),
        run,
        mark,
        _turn: turn,
    })))
}

/// Takes a run's mark away that cannot go with an append.
pub(super) async fn forgive(shared: &Shared, run: RunId) -> StoreResult<()> {
    if let Some(removal) = shared.marks.removal(run) {
        write(shared, vec![removal]).await?;
        shared.marks.removed(run);
    }
    Ok(())
}

/// Takes all marks away: an engine that stops in an orderly way has nothing against its runs.
pub(super) async fn forgive_all(shared: &Shared) -> StoreResult<()> {
    let runs: Vec<RunId> = shared.marks.known().keys().copied().collect();
    write(shared, runs.into_iter().map(removal).collect()).await?;
    shared.marks.known().clear();
    Ok(())
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let _ = Mark::decode(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_and_anything_else_is_none() {
        let mark = Mark {
            together: 2,
            alone: 1,
            isolated: true,
            since: Timestamp::from_micros(1_700_000_000_000_000),
        };
        let bytes = mark.encode();
        assert_eq!(Mark::decode(&bytes), Some(mark));
        assert_eq!(bytes[..10], [1, 1, 0, 0, 0, 2, 0, 0, 0, 1]);
        assert_eq!(Mark::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Mark::decode(&[2; 18]), None);
        assert_eq!(Mark::decode(b""), None);
    }

    #[test]
    fn only_crashes_in_isolation_count_beyond_suspicion() {
        let mut mark = Mark::first(Timestamp::from_micros(1));
        for _ in 0..10 {
            mark = mark.after_crash();
        }
        assert!(mark.is_suspect());
        assert_eq!((mark.together, mark.alone), (SUSPECT_AT, 0));
        mark.isolated = true;
        let mark = mark.after_crash();
        assert_eq!((mark.alone, mark.isolated), (1, false));
    }
}
