//! What a queue allows: how many runs at once, how many per key, how many in a time. Pure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// How long a run holds its slot at most, unless the queue says otherwise.
const DEFAULT_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest name, in bytes.
const MAX_NAME: usize = 256;

/// A queue and its limits; without any it only orders.
///
/// ```
/// use std::time::Duration;
/// use workflow_runtime::{Engine, Queue};
///
/// let mail = Queue::named("mail")
///     .concurrency(10)
///     .per_key(1)
///     .rate(100, Duration::from_secs(1));
/// let builder = Engine::builder().queue(mail);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub(super) name: Box<str>,
    pub(super) limits: Limits,
}

/// The limits, as notes keep them. The order of fields is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limits {
    pub(super) concurrency: Option<u32>,
    pub(super) per_key: Option<u32>,
    pub(super) rate: Option<Rate>,
    pub(super) lease_micros: u64,
}

/// So many in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rate {
    pub(super) count: u32,
    pub(super) per_micros: u64,
}

impl Queue {
    /// Names a queue.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            limits: Limits {
                concurrency: None,
                per_key: None,
                rate: None,
                lease_micros: micros(DEFAULT_LEASE),
            },
        }
    }

    /// Lets at most this many of its runs go on at once.
    #[must_use]
    pub fn concurrency(mut self, runs: u32) -> Self {
        self.limits.concurrency = Some(runs);
        self
    }

    /// Lets at most this many of its runs go on at once that have the same `queue_key`. Runs without one are
    /// not counted.
    #[must_use]
    pub fn per_key(mut self, runs: u32) -> Self {
        self.limits.per_key = Some(runs);
        self
    }

    /// Lets at most this many runs begin in a time, evenly: a bucket of `runs` tokens that is refilled over
    /// `per`. After a rest, a whole bucket may begin at once. The bucket's level is kept with every
    /// dispatch, so that a restart neither fills nor empties it.
    #[must_use]
    pub fn rate(mut self, runs: u32, per: Duration) -> Self {
        self.limits.rate = Some(Rate {
            count: runs,
            per_micros: micros(per),
        });
        self
    }

    /// Sets how long a run holds its slot at most; 24 hours otherwise. After that its slot is given to
    /// the next one, with a warning, and the run itself goes on: so a run that is parked or stuck
    /// cannot block the queue for ever, and the limits may be passed for as long as it goes on.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.limits.lease_micros = micros(lease);
        self
    }

    /// Says what is wrong with the queue, if anything is.
    pub(in crate::engine) fn problem(&self) -> Option<String> {
        let name = &self.name;
        let Limits {
            concurrency,
            per_key,
            rate,
            lease_micros,
        } = &self.limits;
        let none_may_run = *concurrency == Some(0)
            || *per_key == Some(0)
            || rate.is_some_and(|rate| rate.count == 0);
        if name.is_empty() {
            Some("a queue's name cannot be empty".into())
        } else if name.len() > MAX_NAME {
            Some(format!(
                "a queue's name of {} bytes is too long: at most {MAX_NAME} are allowed",
                name.len()
            ))
        } else if none_may_run {
            Some(format!(
                "queue `{name}` lets no run begin with a limit of 0: to stop it for a while, pause it"
            ))
        } else if rate.is_some_and(|rate| rate.per_micros == 0) || *lease_micros == 0 {
            Some(format!(
                "queue `{name}`: a rate's time and a lease cannot be zero"
            ))
        } else {
            None
        }
    }

    /// Returns the queue's name.
    pub(in crate::engine) fn name(&self) -> &str {
        &self.name
    }
}

impl Limits {
    pub(super) fn lease(&self) -> Duration {
        Duration::from_micros(self.lease_micros)
    }
}

/// Nanoseconds of a microsecond.
const NANOS: u128 = 1000;

impl Rate {
    /// The time one run takes of the bucket, in nanoseconds.
    fn share(self) -> u128 {
        (u128::from(self.per_micros) * NANOS / u128::from(self.count.max(1))).max(1)
    }

    /// The moment at which a bucket would be full again, if it is not one that lies further ahead than
    /// an empty bucket's: then the clock was set back, or the rate was changed.
    fn full_at(self, level: Level, now: Timestamp) -> u128 {
        let now = u128::from(now.as_micros()) * NANOS;
        let latest = now + u128::from(self.per_micros) * NANOS;
        u128::from(level.full_at_nanos).clamp(now, latest)
    }

    /// How many runs may begin now.
    pub(super) fn room(self, level: Level, now: Timestamp) -> u32 {
        let empty = (u128::from(now.as_micros()) + u128::from(self.per_micros)) * NANOS;
        let left = empty.saturating_sub(self.full_at(level, now)) / self.share();
        u32::try_from(left).unwrap_or(u32::MAX).min(self.count)
    }

    /// The bucket after so many runs began.
    pub(super) fn take(self, level: Level, now: Timestamp, count: u32) -> Level {
        let full_at = self.full_at(level, now) + self.share() * u128::from(count);
        Level {
            full_at_nanos: u64::try_from(full_at).unwrap_or(u64::MAX),
        }
    }

    /// How long until one more run may begin.
    pub(super) fn wait(self, level: Level, now: Timestamp) -> Duration {
        let needed = self.full_at(level, now) + self.share();
        let empty = (u128::from(now.as_micros()) + u128::from(self.per_micros)) * NANOS;
        let nanos = needed.saturating_sub(empty);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// How full a bucket is: the moment at which it will be full again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Level {
    pub(super) full_at_nanos: u64,
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
