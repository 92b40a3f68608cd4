//! What an engine remembers of the runs that it took over from an earlier process.
//!
//! Owns the line between this process and the ones before it, and which of their outcomes were
//! found fresh since: each is judged once, however often its run leaves memory and comes back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Timestamp;
use crate::id_map::{IdMap, IdSet};
use crate::ids::{RunId, StepId};

/// What an engine remembers since it was opened.
pub(crate) struct Recovery {
    opened_at: Timestamp,
    /// Only runs with an outcome whose age counts are in here, until they end.
    fresh: Mutex<IdMap<RunId, IdSet<StepId>>>,
}

impl Recovery {
    /// Begins now.
    pub(crate) fn begin(opened_at: Timestamp) -> Self {
        Self {
            opened_at,
            fresh: Mutex::default(),
        }
    }

    pub(crate) fn opened_at(&self) -> Timestamp {
        self.opened_at
    }

    /// Says whether an outcome was found fresh already.
    pub(crate) fn is_fresh(&self, run: RunId, step: StepId) -> bool {
        let fresh = self.fresh();
        fresh.get(&run).is_some_and(|steps| steps.contains(&step))
    }

    /// Remembers that an outcome was found fresh. One that was found stale is not remembered here: the
    /// journal does that.
    pub(crate) fn found_fresh(&self, run: RunId, step: StepId) {
        self.fresh().entry(run).or_default().insert(step);
    }

    /// Forgets a run that has ended.
    pub(crate) fn forget(&self, run: RunId) {
        self.fresh().remove(&run);
    }

    fn fresh(&self) -> MutexGuard<'_, IdMap<RunId, IdSet<StepId>>> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
