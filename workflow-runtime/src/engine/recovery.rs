//! What an engine remembers of the runs that it took over from an earlier process.
//!
//! Owns the line between this process and the ones before it, and which runs were judged for
//! stale outcomes since: each is judged once, however often it leaves memory and comes back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::{Timestamp, wall_clock};
use crate::id_map::IdSet;
use crate::ids::RunId;

/// What an engine remembers since it was opened.
pub(crate) struct Recovery {
    opened_at: Timestamp,
    /// Only runs with an outcome whose age counts are in here, until they end.
    judged: Mutex<IdSet<RunId>>,
}

impl Recovery {
    /// Begins now.
    pub(crate) fn begin() -> Self {
        Self {
            opened_at: wall_clock(),
            judged: Mutex::default(),
        }
    }

    pub(crate) fn opened_at(&self) -> Timestamp {
        self.opened_at
    }

    pub(crate) fn has_judged(&self, run: RunId) -> bool {
        self.set().contains(&run)
    }

    pub(crate) fn judged(&self, run: RunId) {
        self.set().insert(run);
    }

    /// Forgets a run that has ended.
    pub(crate) fn forget(&self, run: RunId) {
        self.set().remove(&run);
    }

    fn set(&self) -> MutexGuard<'_, IdSet<RunId>> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
