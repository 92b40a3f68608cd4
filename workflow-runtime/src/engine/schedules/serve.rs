//! The task that starts what is due: one per engine, for all its schedules.
//!
//! It keeps a copy of every schedule's note, and believes it only as far as a commit with the note as its
//! guard is accepted. A schedule that cannot be served is reported once and left as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Overlap;
use super::note::{ScheduleNote, note_key, tick_key};
use super::timing::Clockwork;
use crate::clock::Timestamp;
use crate::engine::keyed::Promise;
use crate::engine::notes::{self, Space};
use crate::engine::prepared::{Naming, Prepared};
use crate::engine::warnings::Warning;
use crate::engine::{Cancel, EngineError, Shared, generations, lines, queues, waking};
use crate::ids::RunId;
use crate::store::{
    Changes, Commit, Committed, Guard, NewRun, NoteChange, NoteKey, Refusal, RunState,
};

/// How long the clock may go unlooked at: one that was set is noticed after this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// How often all notes are read again, for changes that another process made.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// Notes that are read at a time.
const PAGE: usize = 256;

/// Starts the task.
pub(in crate::engine) fn serve(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    let bell = shared.plan.schedules.clone();
    shared.plan.spawn(async move {
        let mut server = Server::default();
        loop {
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_closing()) else {
                return;
            };
            let nap = match server.look(&shared).await {
                Ok(nap) => nap,
                Err(error) if shared.store.failure().is_some() => {
                    tracing::debug!(%error, "schedules stop: the store has");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "schedules could not be served: trying again");
                    LONGEST_NAP
                }
            };
            let nap = shared.services.clock.pace(nap);
            drop(shared);
            bell.wait(nap).await;
            if bell.take_changed() {
                server.read_at = None;
            }
        }
    });
}

#[derive(Default)]
struct Server {
    known: BTreeMap<Box<str>, Known>,
    /// When all notes were read last; `None`: they have to be.
    read_at: Option<Timestamp>,
}

/// A schedule, as it was when its note was read.
struct Known {
    key: NoteKey,
    bytes: Bytes,
    state: Result<(ScheduleNote, Clockwork), String>,
    warned: bool,
}

/// What became of an attempt to change a note.
enum Written {
    Done,
    /// The tick has a run already.
    HasRun(RunId),
    /// The tick had a run, and it was deleted.
    HadRun,
    /// Somebody else changed the schedule.
    Changed,
}

impl Known {
    fn read(key: NoteKey, bytes: Bytes) -> Self {
        let state = ScheduleNote::decode(&bytes)
            .map_err(|problem| format!("what is kept of it cannot be read: {problem}"))
            .and_then(|note| {
                let clockwork = note.clockwork()?;
                Ok((note, clockwork))
            });
        Self {
            key,
            bytes,
            state,
            warned: false,
        }
    }
}

impl Server {
    /// Starts what is due, and says when to look again.
    async fn look(&mut self, shared: &Arc<Shared>) -> Result<Duration, EngineError> {
        let now = shared.services.clock.now();
        let stale = |at: Timestamp| now.since(at) >= READ_AGAIN || at > now;
        if self.read_at.is_none_or(stale) {
            self.read_all(shared).await?;
            self.read_at = Some(now);
        }
        let names: Vec<_> = self.known.keys().cloned().collect();
        let mut nap = shared.services.clock.nap(LONGEST_NAP);
        let mut awaits_runs = false;
        for name in names {
            self.advance(shared, &name).await?;
            let Some(Known {
                state: Ok((note, clockwork)),
                ..
            }) = self.known.get(&name)
            else {
                continue;
            };
            awaits_runs |= note.buffered.is_some();
            if !note.paused
                && let Some(next) = clockwork.next_after(note.cursor)
                && note.definition.end_at.is_none_or(|end| next <= end)
            {
                nap = nap.min(next.since(shared.services.clock.now()));
            }
        }
        shared.plan.schedules.await_runs(awaits_runs);
        Ok(nap)
    }

    /// Reads all notes; what has not changed stays as it is known.
    async fn read_all(&mut self, shared: &Shared) -> Result<(), EngineError> {
        let mut before = std::mem::take(&mut self.known);
        for (name, key, bytes) in all(shared).await? {
            let known = before.remove(&name).filter(|known| known.bytes == bytes);
            let known = known.unwrap_or_else(|| Known::read(key, bytes));
            self.known.insert(name, known);
        }
        Ok(())
    }

    /// Starts what is due of one schedule.
    async fn advance(&mut self, shared: &Arc<Shared>, name: &str) -> Result<(), EngineError> {
        while let Some(known) = self.known.get_mut(name) {
            let mut serving = Serving {
                shared,
                name,
                known,
            };
            if serving.all_due().await? {
                break;
            }
            // Somebody else changed it: what is due has to be judged anew.
            let key = note_key(&shared.services.namespace, name);
            match shared.store.note(key.clone()).await? {
                Some(bytes) => self.known.insert(name.into(), Known::read(key, bytes)),
                None => self.known.remove(name),
            };
        }
        Ok(())
    }
}

/// One schedule while it is being served.
struct Serving<'a> {
    shared: &'a Arc<Shared>,
    name: &'a str,
    known: &'a mut Known,
}

impl Serving<'_> {
    /// Does all that is due. `false`: the note is not as it was known.
    async fn all_due(&mut self) -> Result<bool, EngineError> {
        let (note, due) = match &self.known.state {
            Ok((note, _)) if note.paused => return Ok(true),
            Ok((note, clockwork)) => {
                let definition = &note.definition;
                let due = clockwork.due(
                    note.cursor,
                    self.shared.services.clock.now(),
                    definition.end_at,
                    definition.catch_up,
                );
                if due.is_none() && note.buffered.is_none() {
                    return Ok(true);
                }
                (note.clone(), due)
            }
            Err(problem) => {
                let problem = problem.clone();
                self.warn(&problem, "");
                return Ok(true);
            }
        };
        let call = &note.definition.call;
        let registry = &self.shared.services.registry;
        if registry.find(&call.workflow, call.version).is_none() {
            let problem = registry.missing(&call.workflow, call.version);
            self.warn(&problem, &call.workflow);
            return Ok(true);
        }
        let mut after = note;
        if let Some(tick) = after.buffered
            && !self.goes_on(after.last_run).await?
        {
            after.buffered = None;
            if !self.start(tick, &mut after).await? {
                return Ok(false);
            }
        }
        let Some(due) = due else {
            return Ok(true);
        };
        let last = due.ticks.last().copied();
        for tick in due.ticks {
            // The last one settles all that is due in the same write.
            after.cursor = if Some(tick) == last {
                due.settled
            } else {
                tick
            };
            let overlap = after.definition.overlap;
            let held_up = overlap != Overlap::Allow
                && (after.buffered.is_some() || self.goes_on(after.last_run).await?);
            match overlap {
                _ if !held_up => {
                    if !self.start(tick, &mut after).await? {
                        return Ok(false);
                    }
                }
                Overlap::CancelPrevious => {
                    self.cancel(after.last_run).await?;
                    if !self.start(tick, &mut after).await? {
                        return Ok(false);
                    }
                }
                Overlap::BufferOne if after.buffered.is_none() => after.buffered = Some(tick),
                _ => after.skipped += 1,
            }
        }
        after.cursor = due.settled;
        match &self.known.state {
            Ok((written, _)) if *written == after => Ok(true),
            _ => Ok(matches!(self.write(&after, None).await?, Written::Done)),
        }
    }

    /// Asks for the run of an earlier tick to be cancelled. Asked twice after a crash, it does no harm.
    async fn cancel(&self, run: Option<RunId>) -> Result<(), EngineError> {
        let Some(run) = run else {
            return Ok(());
        };
        let cancel = Cancel::new(Ok(self.shared.clone()), run);
        match cancel.reason("the next tick of its schedule is due").await {
            Ok(()) | Err(EngineError::Ended(_) | EngineError::UnknownRun(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the run of a tick, together with the note that says so. `false`: the note is not as it
    /// was known.
    async fn start(
        &mut self,
        tick: Timestamp,
        after: &mut ScheduleNote,
    ) -> Result<bool, EngineError> {
        let call = &after.definition.call;
        let key = tick_key(self.name, tick);
        let naming = Naming::keyed(&self.shared.services.namespace, &call.workflow, &key, 0);
        let queue = after.definition.queue.clone();
        let state = first_state(queue.as_deref());
        let prepared = Prepared::new(&self.shared.services, call, naming, state);
        let run = prepared.new.header.run;
        after.last_tick = Some(tick);
        let before = after.last_run.replace(run);
        match self.write(after, Some(prepared)).await? {
            Written::Done => {
                tracing::debug!(schedule = self.name, %run, %tick, "tick started");
                match queue {
                    Some(_) => self.shared.plan.queues.nudge(),
                    None => waking::wake(self.shared, run),
                }
                Ok(true)
            }
            // A schedule of this name ran it before it was deleted and declared again.
            Written::HasRun(run) => {
                after.last_run = Some(run);
                Ok(matches!(self.write(after, None).await?, Written::Done))
            }
            Written::HadRun => {
                after.last_run = before;
                Ok(matches!(self.write(after, None).await?, Written::Done))
            }
            Written::Changed => Ok(false),
        }
    }

    /// Writes the note, unless it is not as it was known.
    async fn write(
        &mut self,
        after: &ScheduleNote,
        run: Option<Prepared>,
    ) -> Result<Written, EngineError> {
        let value = after.encode();
        let mut guards = vec![Guard {
            key: self.known.key.clone(),
            expected: Some(self.known.bytes.clone()),
        }];
        if let Some(Prepared { started, .. }) = &run {
            // A tombstone says that the tick was run, and the run deleted since.
            let key = started.key.as_deref().unwrap_or_default();
            guards.push(Guard {
                key: generations::note_key(&started.namespace, &started.workflow, key),
                expected: None,
            });
        }
        let mut notes = vec![NoteChange {
            key: self.known.key.clone(),
            value: Some(value.clone()),
        }];
        notes.extend(run.as_ref().and_then(|run| promise(&run.new)));
        if let (Some(queue), Some(prepared)) = (&after.definition.queue, &run) {
            let run = prepared.new.header.run;
            notes.extend(queues::entry(self.shared, queue, run));
        }
        let commit = Commit {
            guards,
            changes: Changes {
                create: run.map(|prepared| prepared.new).into_iter().collect(),
                notes,
                ..Changes::default()
            },
        };
        match self.shared.store.commit(commit).await? {
            Committed::Done => {
                self.known.bytes = value;
                if let Ok((note, _)) = &mut self.known.state {
                    *note = after.clone();
                }
                Ok(Written::Done)
            }
            Committed::Refused(Refusal::Exists(header)) => Ok(Written::HasRun(header.run)),
            Committed::Refused(Refusal::Note { guard: 1, .. }) => Ok(Written::HadRun),
            Committed::Refused(_) => Ok(Written::Changed),
        }
    }

    /// Says whether a run, or one that continues it, has not ended.
    async fn goes_on(&self, run: Option<RunId>) -> Result<bool, EngineError> {
        let Some(run) = run else {
            return Ok(false);
        };
        Ok(lines::goes_on(self.shared, run).await?)
    }

    /// Reports once why the schedule is not served.
    fn warn(&mut self, problem: &str, workflow: &str) {
        if !std::mem::replace(&mut self.known.warned, true) {
            self.shared.services.warnings.push(Warning {
                run: None,
                workflow: workflow.into(),
                message: Cow::Owned(format!(
                    "schedule `{}` is not served, its ticks count as missed: {problem}",
                    self.name
                )),
            });
        }
    }
}

/// How the run of a tick begins: at once, or when its turn in the queue has come.
pub(super) fn first_state(queue: Option<&str>) -> RunState {
    match queue {
        Some(_) => RunState::Asleep { wake_at: None },
        None => RunState::Active,
    }
}

/// What the run of a tick is promised: nothing beyond its end. Its note says that the tick was run.
pub(super) fn promise(new: &NewRun) -> Option<NoteChange> {
    Promise::NONE.note(new.header.run)
}

/// Reads the notes of all schedules.
pub(super) async fn all(shared: &Shared) -> Result<Vec<(Box<str>, NoteKey, Bytes)>, EngineError> {
    let prefix = notes::key(Space::Schedule, &shared.services.namespace, &[]);
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = shared.store.notes(prefix.clone(), after, PAGE).await?;
        let full = page.len() == PAGE;
        after = page.last().map(|(key, _)| key.clone());
        for (key, bytes) in page {
            let name = key.parts().and_then(|parts| parts.into_iter().nth(1));
            if let Some(name) = name.and_then(|name| String::from_utf8(name).ok()) {
                found.push((name.into(), key, bytes));
            }
        }
        if !full {
            return Ok(found);
        }
    }
}
