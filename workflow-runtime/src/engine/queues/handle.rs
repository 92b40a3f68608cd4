//! Looking after a queue: change its limits, pause, resume, describe.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::limits::{Limits, Queue};
use super::note::{Pages, Settings, Slot, read};
use super::round::is_held;
use super::{change, refuse, settings};
use crate::engine::notes::Space;
use crate::engine::{EngineError, Shared};

/// A handle to one queue, by its name. It does not keep the engine alive.
#[derive(Clone)]
pub struct QueueHandle {
    shared: Weak<Shared>,
    name: Box<str>,
}

impl fmt::Debug for QueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueHandle({})", self.name)
    }
}

/// How a queue stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueDescription {
    /// Its name.
    pub name: Box<str>,
    /// Whether it is paused.
    pub paused: bool,
    /// How many of its runs may go on at once.
    pub concurrency: Option<u32>,
    /// How many of them with the same key.
    pub per_key: Option<u32>,
    /// How many may begin in which time.
    pub rate: Option<(u32, Duration)>,
    /// How long a run holds its slot at most.
    pub lease: Duration,
    /// Runs that wait for their turn.
    pub waiting: u64,
    /// Runs whose delay is not over.
    pub delayed: u64,
    /// Debounced starts that wait for quiet.
    pub debounced: u64,
    /// Runs that hold a slot.
    pub running: u64,
}

impl QueueHandle {
    pub(super) fn new(shared: &Arc<Shared>, name: &str) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            name: name.into(),
        }
    }

    /// Returns the queue's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes the limits of the queue, from now on and durably: `set(|queue| queue.concurrency(2))`. A queue that
    /// is not there is made, without limits but those given. The change holds until the queue's
    /// declaration on the builder is another one than before.
    ///
    /// # Errors
    ///
    /// If the limits cannot work or the store fails.
    pub async fn set(&self, limits: impl Fn(Queue) -> Queue) -> Result<(), EngineError> {
        let shared = self.shared()?;
        let changed = |known: Option<&Settings>| {
            let mut queue = Queue::named(&self.name);
            if let Some(known) = known {
                queue.limits = known.live.clone();
            }
            limits(queue)
        };
        let trial = changed(None);
        if *trial.name != *self.name {
            return Err(refuse(&self.name, "a queue cannot be renamed"));
        }
        if let Some(problem) = trial.problem() {
            return Err(refuse(&self.name, problem));
        }
        change(&shared, &self.name, |known| {
            let live = changed(known.as_ref()).limits;
            match known {
                Some(known) => Settings { live, ..known },
                None => Settings {
                    declared: Queue::named(&self.name).limits,
                    live,
                    paused: false,
                },
            }
        })
        .await
    }

    /// Lets no run begin until the queue is resumed, durably. Runs that have begun go on, and runs can be
    /// put in.
    ///
    /// # Errors
    ///
    /// If there is no such queue or the store fails.
    pub async fn pause(&self) -> Result<(), EngineError> {
        self.set_paused(true).await
    }

    /// Lets runs begin again.
    ///
    /// # Errors
    ///
    /// If there is no such queue or the store fails.
    pub async fn resume(&self) -> Result<(), EngineError> {
        self.set_paused(false).await
    }

    async fn set_paused(&self, paused: bool) -> Result<(), EngineError> {
        let shared = self.shared()?;
        let before = settings(&shared, &self.name).await?;
        change(&shared, &self.name, |known| Settings {
            paused,
            ..known.unwrap_or_else(|| before.clone())
        })
        .await
    }

    /// Says how the queue stands. It counts what waits, so that a long queue takes a while.
    ///
    /// # Errors
    ///
    /// If there is no such queue or the store fails.
    pub async fn describe(&self) -> Result<QueueDescription, EngineError> {
        let shared = self.shared()?;
        let Settings { live, paused, .. } = settings(&shared, &self.name).await?;
        let running = self.running(&shared, &live).await?;
        let rate = live
            .rate
            .map(|rate| (rate.count, Duration::from_micros(rate.per_micros)));
        Ok(QueueDescription {
            name: self.name.clone(),
            paused,
            concurrency: live.concurrency,
            per_key: live.per_key,
            rate,
            lease: live.lease(),
            waiting: self.count(&shared, Space::QueueWaiting).await?,
            delayed: self.count(&shared, Space::QueueDelayed).await?,
            debounced: self.count(&shared, Space::QueuePending).await?,
            running,
        })
    }

    async fn count(&self, shared: &Shared, space: Space) -> Result<u64, EngineError> {
        let mut pages = Pages::new(space, &shared.services.namespace, &self.name);
        let mut count = 0;
        loop {
            match pages.next(shared).await?.len() {
                0 => return Ok(count),
                more => count += more as u64,
            }
        }
    }

    async fn running(&self, shared: &Shared, limits: &Limits) -> Result<u64, EngineError> {
        let mut pages = Pages::new(Space::QueueSlot, &shared.services.namespace, &self.name);
        let mut running = 0;
        loop {
            let page = pages.next(shared).await?;
            if page.is_empty() {
                return Ok(running);
            }
            for (_, bytes) in page {
                let slot: Slot = read(&self.name, &bytes)?;
                let over = slot.since.after(limits.lease()) <= shared.services.clock.now();
                running += u64::from(!over && is_held(shared, slot.run).await?);
            }
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
