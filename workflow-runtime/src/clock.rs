//! Time as the engine sees it: one type, one place that reads the wall clock.
//!
//! Owns [`Timestamp`] and the clocks. Nothing else in the crate asks the system for the
//! time, so that a journal never mixes two clocks. An engine has one `Clock`, and asks only that.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// A moment of the wall clock: microseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Makes a timestamp from microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the moment `duration` later, or the last representable one.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Returns the moment `duration` earlier, or the first representable one.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// Returns how long after `earlier` this is, or zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_micros(time.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_microsecond(micros) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{} µs after 1970", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the machine's wall clock: for what happens outside an engine, or to this very process.
///
/// Whatever an engine decides or records it takes from its own `Clock`.
pub(crate) fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}

/// The clock of one engine: the machine's, or one that follows tokio's and can be turned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Option<Arc<Virtual>>);

/// A clock that begins at a moment of its own and goes as tokio's does: when that is paused, it jumps
/// from timer to timer.
#[derive(Debug)]
struct Virtual {
    base: Timestamp,
    began: Instant,
    /// How far it was turned, in microseconds.
    turned: AtomicI64,
}

impl Clock {
    #[cfg(feature = "testing")]
    /// Makes a clock that shows `base` now and goes as tokio's does.
    pub(crate) fn virtual_from(base: Timestamp) -> Self {
        Self(Some(Arc::new(Virtual {
            base,
            began: Instant::now(),
            turned: AtomicI64::new(0),
        })))
    }

    /// Reads the clock.
    pub(crate) fn now(&self) -> Timestamp {
        match &self.0 {
            None => wall_clock(),
            Some(clock) => {
                let gone = clock.base.after(clock.began.elapsed());
                let turned = clock.turned.load(Ordering::Relaxed);
                Timestamp(gone.0.saturating_add_signed(turned))
            }
        }
    }

    #[cfg(feature = "testing")]
    /// Turns a virtual clock, as a machine's clock is turned: no timer goes with it.
    ///
    /// # Panics
    ///
    /// If it is the machine's.
    pub(crate) fn turn(&self, micros: i64) {
        let clock = self.0.as_ref().expect("only a virtual clock is turned");
        clock.turned.fetch_add(micros, Ordering::Relaxed);
    }

    /// Says how long to have tokio wait so that this time has passed.
    ///
    /// Tokio's timers end at whole milliseconds of its own count. Its paused time may be between two, if a test paused it
    /// itself; then a wait of whole milliseconds would end one too late.
    pub(crate) fn pace(&self, time: Duration) -> Duration {
        const STEP: Duration = Duration::from_millis(1);
        match &self.0 {
            None => time,
            Some(_) if time > STEP => time - STEP,
            Some(_) => time.min(Duration::from_nanos(1)),
        }
    }

    /// Lets this much time pass, for tests.
    #[cfg(feature = "testing")]
    pub(crate) async fn pass(&self, time: Duration) {
        let until = self.now().after(time);
        while self.now() < until {
            tokio::time::sleep(self.pace(until.since(self.now()))).await;
        }
    }

    /// Says how long to wait between two rounds of housekeeping that nobody waits for. By a virtual clock it is a day at
    /// least: a month has thousands of rounds otherwise, and to jump over it would take as long as they do.
    pub(crate) fn chore(&self, usual: Duration) -> Duration {
        match &self.0 {
            None => usual,
            Some(_) => usual.max(Duration::from_secs(86_400)),
        }
    }

    /// Says how long one may wait without looking at the clock: `usual` by the machine's, which others
    /// turn. Nobody turns a virtual one unseen, and a month of short naps would be a million of them.
    pub(crate) fn nap(&self, usual: Duration) -> Duration {
        match &self.0 {
            None => usual,
            Some(_) => Duration::from_secs(10 * 365 * 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_prints_as_rfc_3339() {
        assert_eq!(
            Timestamp::from_micros(1_700_000_000_123_456).to_string(),
            "2023-11-14T22:13:20.123Z"
        );
    }

    #[test]
    fn time_never_runs_below_zero_or_past_the_end() {
        let t = Timestamp::from_micros(5);
        assert_eq!(t.since(Timestamp::from_micros(9)), Duration::ZERO);
        assert_eq!(t.after(Duration::MAX), Timestamp::from_micros(u64::MAX));
        assert!(!Timestamp::from_micros(u64::MAX).to_string().is_empty());
    }
}
