//! Declaring a schedule: checked, then one commit.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::note::{Definition, ScheduleNote, note_key};
use super::timing::Timing;
use super::{CatchUp, Overlap, ScheduleHandle};
use crate::call::{Workflow, WorkflowCall};
use crate::clock::Timestamp;
use crate::engine::prepared::EncodedCall;
use crate::engine::{EngineError, Shared, queues};
use crate::store::{BoxFuture, Changes, Commit, Committed, Guard, NoteChange};

/// The longest name, in bytes: it is a part of every run's key.
const MAX_NAME: usize = 256;

/// The time zone of cron expressions that name none.
const DEFAULT_ZONE: &str = "UTC";

/// A schedule about to be declared; see [`Engine::schedule`](crate::Engine::schedule).
#[must_use = "nothing is scheduled until this is awaited"]
pub struct Schedule<W: Workflow> {
    shared: Arc<Shared>,
    name: Box<str>,
    call: WorkflowCall<W>,
    cron: Option<Box<str>>,
    zone: Option<Box<str>>,
    every: Option<Duration>,
    overlap: Overlap,
    catch_up: CatchUp,
    start_at: Option<Timestamp>,
    end_at: Option<Timestamp>,
    queue: Option<Box<str>>,
}

impl<W: Workflow> Schedule<W> {
    pub(super) fn new(shared: Arc<Shared>, name: &str, call: WorkflowCall<W>) -> Self {
        Self {
            shared,
            name: name.into(),
            call,
            cron: None,
            zone: None,
            every: None,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            start_at: None,
            end_at: None,
            queue: None,
        }
    }

    /// Ticks by a cron expression: minute, hour, day of month, month, day of week; with six fields,
    /// seconds come first. If both days are given, either may match, as in Vixie cron.
    ///
    /// An expression that names its times of day (no `*`, `?` or `/` in seconds, minutes and hours) has each
    /// of them once on every day: when clocks go forward over one, at the first moment after the gap; when they
    /// go back over it, the first time. Any other follows the clock: it has no tick in the gap, and ticks in both
    /// of the repeated hours.
    pub fn cron(mut self, expression: &str) -> Self {
        self.cron = Some(expression.into());
        self
    }

    /// Sets the time zone of the cron expression; `UTC` otherwise. The zones' data comes with this
    /// library, the machine's is not used.
    pub fn time_zone(mut self, name: &str) -> Self {
        self.zone = Some(name.into());
        self
    }

    /// Ticks in intervals, counted from [`start_at`](Self::start_at), which is the first tick; without it,
    /// from the declaration, and the first tick is one interval later.
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = Some(interval);
        self
    }

    /// Sets what a tick does while the previous run goes on; [`Overlap::Skip`] otherwise.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets what becomes of missed ticks; [`CatchUp::Last`] otherwise.
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// Has no tick before this moment. If it is past, the ticks since then are missed ones, and
    /// [`catch_up`](Self::catch_up) decides.
    pub fn start_at(mut self, time: SystemTime) -> Self {
        self.start_at = Some(time.into());
        self
    }

    /// Has no tick after this moment.
    pub fn end_at(mut self, time: SystemTime) -> Self {
        self.end_at = Some(time.into());
        self
    }

    /// Has the runs wait for their turn in a [queue](crate::Queue), in the order of their ticks. A run that waits there
    /// goes on, for [`overlap`](Self::overlap).
    pub fn queue(mut self, name: &str) -> Self {
        self.queue = Some(name.into());
        self
    }

    fn refuse(&self, problem: impl Into<String>) -> EngineError {
        EngineError::Schedule {
            name: (*self.name).into(),
            problem: problem.into(),
        }
    }

    fn timing(&self) -> Result<Timing, EngineError> {
        match (&self.cron, self.every) {
            (Some(_), Some(_)) => {
                Err(self.refuse("it has both `.cron(..)` and `.every(..)`: leave one out"))
            }
            (None, None) => Err(self.refuse(
                "it has no timing: add `.cron(\"0 2 * * *\")` or `.every(Duration::from_secs(60))`",
            )),
            (None, Some(_)) if self.zone.is_some() => Err(self.refuse(
                "an interval has no time zone: leave `.time_zone(..)` out, or use `.cron(..)`",
            )),
            (None, Some(interval)) => Ok(Timing::Every {
                micros: u64::try_from(interval.as_micros()).unwrap_or(u64::MAX),
            }),
            (Some(pattern), None) => Ok(Timing::Cron {
                pattern: pattern.clone(),
                zone: self.zone.clone().unwrap_or_else(|| DEFAULT_ZONE.into()),
            }),
        }
    }

    /// Checks the whole declaration.
    fn definition(&self, now: Timestamp) -> Result<Definition, EngineError> {
        match self.name.len() {
            0 => return Err(self.refuse("a name cannot be empty")),
            len if len > MAX_NAME => {
                return Err(self.refuse(format!(
                    "a name of {len} bytes is too long: at most {MAX_NAME} are allowed"
                )));
            }
            _ => {}
        }
        if let (Some(start), Some(end)) = (self.start_at, self.end_at)
            && end < start
        {
            return Err(self.refuse(format!("it ends ({end}) before it starts ({start})")));
        }
        let definition = Definition {
            call: EncodedCall::new::<W>(&self.shared.services, &self.call.input)?,
            timing: self.timing()?,
            overlap: self.overlap,
            catch_up: self.catch_up,
            start_at: self.start_at,
            end_at: self.end_at,
            queue: self.queue.clone(),
        };
        let fresh = ScheduleNote::new(definition, now);
        let clockwork = fresh.clockwork().map_err(|problem| self.refuse(problem))?;
        if clockwork.next_after(fresh.cursor).is_none() {
            return Err(self.refuse("it would never tick: no day fits its expression"));
        }
        Ok(fresh.definition)
    }

    async fn declare(self) -> Result<ScheduleHandle, EngineError> {
        let shared = &self.shared;
        let definition = self.definition(shared.services.clock.now())?;
        if let Some(queue) = &self.queue {
            queues::is_declared(shared, queue).await?;
        }
        let key = note_key(&shared.services.namespace, &self.name);
        let mut found = shared.store.note(key.clone()).await?;
        loop {
            if shared.is_closing() {
                return Err(shared.refusal("it is shutting down"));
            }
            let now = shared.services.clock.now();
            let known = found.as_ref().map(|bytes| ScheduleNote::decode(bytes));
            let note = match known {
                Some(Ok(mut known)) => {
                    known.redeclare(definition.clone(), now);
                    known
                }
                Some(Err(problem)) => {
                    return Err(self.refuse(format!(
                        "what is kept of it cannot be read ({problem}): delete it first"
                    )));
                }
                None => ScheduleNote::new(definition.clone(), now),
            };
            let value = note.encode();
            if found.as_ref() == Some(&value) {
                break;
            }
            let commit = Commit {
                guards: vec![Guard {
                    key: key.clone(),
                    expected: found,
                }],
                changes: Changes {
                    notes: vec![NoteChange {
                        key: key.clone(),
                        value: Some(value),
                    }],
                    ..Changes::default()
                },
            };
            match shared.store.commit(commit).await? {
                Committed::Done => break,
                Committed::Refused(_) => found = shared.store.note(key.clone()).await?,
            }
        }
        shared.plan.schedules.ring();
        Ok(ScheduleHandle::new(shared, &self.name))
    }
}

impl<W: Workflow> IntoFuture for Schedule<W> {
    type Output = Result<ScheduleHandle, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.declare())
    }
}
