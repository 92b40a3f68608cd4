//! Looking after a schedule: pause, resume, trigger, delete, describe.

use std::fmt;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::note::{ScheduleNote, note_key, trigger_key};
use super::serve;
use super::timing::Timing;
use super::{CatchUp, Overlap};
use crate::clock::Timestamp;
use crate::engine::prepared::{Naming, Prepared};
use crate::engine::{EngineError, Shared, queues, waking};
use crate::ids::RunId;
use crate::store::{Changes, Commit, Committed, Guard, NewRun, NoteChange};

/// How many of the next ticks a description names.
const NEXT: usize = 5;

/// A handle to one schedule, by its name. It does not keep the engine alive.
pub struct ScheduleHandle {
    shared: Weak<Shared>,
    name: Box<str>,
}

impl Clone for ScheduleHandle {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Debug for ScheduleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScheduleHandle({})", self.name)
    }
}

/// How a schedule stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleDescription {
    /// Its name.
    pub name: Box<str>,
    /// The workflow that it starts.
    pub workflow: Box<str>,
    /// The workflow's version.
    pub version: u32,
    /// When it ticks, for people: a cron expression with its time zone, or an interval.
    pub timing: Box<str>,
    /// What a tick does while the previous run goes on.
    pub overlap: Overlap,
    /// What becomes of missed ticks.
    pub catch_up: CatchUp,
    /// Before this it has no tick.
    pub start_at: Option<Timestamp>,
    /// After this it has no tick.
    pub end_at: Option<Timestamp>,
    /// The queue that its runs wait in.
    pub queue: Option<Box<str>>,
    /// Whether it is paused.
    pub paused: bool,
    /// The next five ticks; none if it is paused or over.
    pub next: Vec<Timestamp>,
    /// The newest tick that was run.
    pub last_tick: Option<Timestamp>,
    /// The newest run, of a tick or triggered by hand.
    pub last_run: Option<RunId>,
    /// The tick that waits for the previous run to end.
    pub buffered: Option<Timestamp>,
    /// How many ticks were not run because the previous run went on.
    pub skipped: u64,
}

impl ScheduleDescription {
    fn new(name: &str, note: &ScheduleNote, now: Timestamp) -> Result<Self, String> {
        let clockwork = note.clockwork()?;
        let definition = &note.definition;
        let timing = match &definition.timing {
            Timing::Cron { pattern, zone } => format!("{pattern} {zone}"),
            Timing::Every { micros } => {
                format!("every {:?}", std::time::Duration::from_micros(*micros))
            }
        };
        let from = note.cursor.max(now);
        let ticks = std::iter::successors(clockwork.next_after(from), |tick| {
            clockwork.next_after(*tick)
        });
        let next = ticks
            .take_while(|tick| !note.paused && definition.end_at.is_none_or(|end| *tick <= end))
            .take(NEXT)
            .collect();
        Ok(Self {
            name: name.into(),
            workflow: definition.call.workflow.clone(),
            version: definition.call.version,
            timing: timing.into(),
            overlap: definition.overlap,
            catch_up: definition.catch_up,
            start_at: definition.start_at,
            end_at: definition.end_at,
            queue: definition.queue.clone(),
            paused: note.paused,
            next,
            last_tick: note.last_tick,
            last_run: note.last_run,
            buffered: note.buffered,
            skipped: note.skipped,
        })
    }
}

impl ScheduleHandle {
    pub(super) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            name: name.into(),
        }
    }

    /// Returns the schedule's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Has no tick run until it is resumed. Runs that were started go on.
    ///
    /// # Errors
    ///
    /// If there is no such schedule or the store fails.
    pub async fn pause(&self) -> Result<(), EngineError> {
        self.change(|note| note.paused = true).await
    }

    /// Lets it tick again, from now on: ticks that fell into the pause are not made up.
    ///
    /// # Errors
    ///
    /// If there is no such schedule or the store fails.
    pub async fn resume(&self) -> Result<(), EngineError> {
        let now = self.shared()?.services.clock.now();
        self.change(|note| {
            if std::mem::take(&mut note.paused) {
                note.cursor = note.cursor.max(now);
            }
        })
        .await
    }

    /// Deletes the schedule. Runs that were started go on.
    ///
    /// # Errors
    ///
    /// If there is no such schedule or the store fails.
    pub async fn delete(&self) -> Result<(), EngineError> {
        let shared = self.shared()?;
        loop {
            let found = self.bytes(&shared).await?;
            if self.commit(&shared, found, None, None).await? {
                return Ok(());
            }
        }
    }

    /// Starts a run now, whatever the clock, a pause or the overlap policy say. It counts as the previous run of
    /// the next tick.
    ///
    /// # Errors
    ///
    /// If there is no such schedule, its workflow is not registered, or the store fails.
    pub async fn trigger(&self) -> Result<RunId, EngineError> {
        let shared = self.shared()?;
        loop {
            let found = self.bytes(&shared).await?;
            let mut note = self.read(&found)?;
            let call = &note.definition.call;
            if shared
                .services
                .registry
                .find(&call.workflow, call.version)
                .is_none()
            {
                return Err(self.refuse(
                    shared
                        .services
                        .registry
                        .missing(&call.workflow, call.version),
                ));
            }
            let newer = |at: Timestamp| Timestamp::from_micros(at.as_micros() + 1);
            let at = note.triggered_at.map_or(Timestamp::default(), newer);
            let at = at.max(shared.services.clock.now());
            let key = trigger_key(&self.name, at);
            let naming = Naming::keyed(&shared.services.namespace, &call.workflow, &key, 0);
            let queue = note.definition.queue.clone();
            let state = serve::first_state(queue.as_deref());
            let new = Prepared::new(&shared.services, call, naming, state).new;
            let run = new.header.run;
            note.triggered_at = Some(at);
            note.last_run = Some(run);
            if self
                .commit(
                    &shared,
                    found,
                    Some(note.encode()),
                    Some((new, queue.as_deref())),
                )
                .await?
            {
                match queue {
                    Some(_) => shared.plan.queues.nudge(),
                    None => waking::wake(&shared, run),
                }
                return Ok(run);
            }
        }
    }

    /// Says how the schedule stands.
    ///
    /// # Errors
    ///
    /// If there is no such schedule or the store fails.
    pub async fn describe(&self) -> Result<ScheduleDescription, EngineError> {
        let shared = self.shared()?;
        let note = self.read(&self.bytes(&shared).await?)?;
        ScheduleDescription::new(&self.name, &note, shared.services.clock.now())
            .map_err(|problem| self.refuse(problem))
    }

    async fn change(&self, change: impl Fn(&mut ScheduleNote)) -> Result<(), EngineError> {
        let shared = self.shared()?;
        loop {
            let found = self.bytes(&shared).await?;
            let mut note = self.read(&found)?;
            change(&mut note);
            if self
                .commit(&shared, found, Some(note.encode()), None)
                .await?
            {
                return Ok(());
            }
        }
    }

    /// Writes the note, or with `None` removes it. `false`: it has changed.
    async fn commit(
        &self,
        shared: &Shared,
        expected: Bytes,
        value: Option<Bytes>,
        run: Option<(NewRun, Option<&str>)>,
    ) -> Result<bool, EngineError> {
        let key = note_key(&shared.services.namespace, &self.name);
        let mut notes = vec![NoteChange {
            key: key.clone(),
            value,
        }];
        notes.extend(run.as_ref().and_then(|(new, _)| serve::promise(new)));
        if let Some((new, Some(queue))) = &run {
            notes.extend(queues::entry(shared, queue, new.header.run));
        }
        let commit = Commit {
            guards: vec![Guard {
                key,
                expected: Some(expected),
            }],
            changes: Changes {
                create: run.map(|(new, _)| new).into_iter().collect(),
                notes,
                ..Changes::default()
            },
        };
        let done = matches!(shared.store.commit(commit).await?, Committed::Done);
        if done {
            shared.plan.schedules.ring();
        }
        Ok(done)
    }

    async fn bytes(&self, shared: &Shared) -> Result<Bytes, EngineError> {
        let found = shared
            .store
            .note(note_key(&shared.services.namespace, &self.name))
            .await?;
        found.ok_or_else(|| EngineError::UnknownSchedule((*self.name).into()))
    }

    fn read(&self, bytes: &[u8]) -> Result<ScheduleNote, EngineError> {
        ScheduleNote::decode(bytes).map_err(|problem| {
            self.refuse(format!(
                "what is kept of it cannot be read ({problem}): delete it and declare it again"
            ))
        })
    }

    fn refuse(&self, problem: String) -> EngineError {
        EngineError::Schedule {
            name: (*self.name).into(),
            problem,
        }
    }

    fn shared(&self) -> Result<Arc<Shared>, EngineError> {
        const STOPPED: &str = "it was dropped or shut down";
        match self.shared.upgrade() {
            Some(shared) if shared.is_closing() => Err(shared.refusal(STOPPED)),
            Some(shared) => Ok(shared),
            None => Err(EngineError::Stopped(STOPPED.into())),
        }
    }
}

/// Describes all schedules that can be read.
pub(super) async fn describe_all(shared: &Shared) -> Result<Vec<ScheduleDescription>, EngineError> {
    let mut described = Vec::new();
    for (name, _, bytes) in serve::all(shared).await? {
        if let Ok(note) = ScheduleNote::decode(&bytes) {
            described
                .extend(ScheduleDescription::new(&name, &note, shared.services.clock.now()).ok());
        }
    }
    Ok(described)
}
