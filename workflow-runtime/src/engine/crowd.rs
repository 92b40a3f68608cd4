//! How many runs in memory only wait, and how long each of them may.
//!
//! Owns the count and the rule. A few runs that wait stay for a moment, because to be woken is dearer out of memory than in it. Of many,
//! most go sooner: what they take at once, the process keeps for good, whatever becomes of them. Never looks at a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// With more runs than this that only wait, those that come do not stay for their whole moment. Each takes
/// some 4 KiB in memory; to leave it and to come back is a record in the log and a read of it.
const CROWD: usize = 64;

/// The moment that is left in a crowd for a run that a letter may wake. Long enough for an answer that comes
/// at once, and it is not known to be far away.
const MOMENT_FOR_LETTERS: Duration = Duration::from_secs(1);

/// The runs of an engine that only wait.
#[derive(Debug, Default)]
pub(crate) struct Crowd(AtomicUsize);

/// One of them, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Waiting(Arc<Crowd>);

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Times alone, of which the next is behind its moment.
    Times,
    /// A letter may come.
    Letters,
}

impl Crowd {
    /// Adds a run that would stay for `moment`, and says for how long it does.
    pub(crate) fn join(self: &Arc<Self>, moment: Duration, waits: For) -> (Waiting, Duration) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let moment = match waits {
            _ if before < CROWD => moment,
            For::Times => Duration::ZERO,
            For::Letters => moment.min(MOMENT_FOR_LETTERS),
        };
        (Waiting(self.clone()), moment)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Duration = Duration::from_secs(10);

    #[test]
    fn a_few_stay_for_their_whole_moment_and_of_many_those_that_come_later_do_not() {
        let crowd = Arc::new(Crowd::default());
        let few: Vec<_> = (0..CROWD).map(|_| crowd.join(MOMENT, For::Times)).collect();
        assert!(few.iter().all(|(_, moment)| *moment == MOMENT));
        let (_late, moment) = crowd.join(MOMENT, For::Times);
        assert_eq!(moment, Duration::ZERO);
        let (_later, moment) = crowd.join(MOMENT, For::Letters);
        assert_eq!(moment, MOMENT_FOR_LETTERS);
        let (_last, moment) = crowd.join(Duration::from_millis(2), For::Letters);
        assert_eq!(
            moment,
            Duration::from_millis(2),
            "never longer than asked for"
        );
    }

    #[test]
    fn whoever_leaves_makes_room() {
        let crowd = Arc::new(Crowd::default());
        let mut all: Vec<_> = (0..2 * CROWD)
            .map(|_| crowd.join(MOMENT, For::Times))
            .collect();
        all.truncate(CROWD - 1);
        assert_eq!(crowd.join(MOMENT, For::Times).1, MOMENT);
        drop(all);
        assert_eq!(crowd.0.load(Ordering::Relaxed), 0);
    }
}
