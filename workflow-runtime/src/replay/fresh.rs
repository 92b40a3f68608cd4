//! Whether a recorded outcome is too old to be relied on.
//!
//! Owns the judgement of one outcome, purely. Where and how often it is asked for is the driver's
//! business.

use std::time::Duration;

use crate::clock::Timestamp;

/// How long a step's outcome may be relied on by a resumed run, and what is done about an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshFor {
    /// How long.
    pub limit: Duration,
    /// What is done about an older one.
    pub on_stale: OnStale,
}

/// What is done about an outcome that is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStale {
    /// It is discarded on the record, and the step runs again under its id.
    Rerun,
    /// The run ends with a reason.
    Abort,
}

impl FreshFor {
    /// Says how old an outcome of `recorded` is `now`, if that is too old.
    pub(crate) fn too_old(&self, recorded: Timestamp, now: Timestamp) -> Option<Duration> {
        let age = now.since(recorded);
        (age > self.limit).then_some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_stale_only_past_its_limit() {
        let fresh = FreshFor {
            limit: Duration::from_secs(30),
            on_stale: OnStale::Rerun,
        };
        let recorded = Timestamp::from_micros(1_000_000);
        let after = |seconds| recorded.after(Duration::from_secs(seconds));
        assert_eq!(fresh.too_old(recorded, after(30)), None);
        assert_eq!(
            fresh.too_old(recorded, after(31)),
            Some(Duration::from_secs(31))
        );
        assert_eq!(
            fresh.too_old(recorded, Timestamp::from_micros(0)),
            None,
            "a clock that was set back makes nothing stale"
        );
    }
}
