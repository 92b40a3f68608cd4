//! Runs that left memory: who is to be woken when, and who waits for them.
//!
//! Owns the index of sleeping runs by the time they are due (a few dozen bytes each; the rest of
//! them is in the store) and the task that takes them up again, a bounded number at a time. A
//! letter wakes a run as well, which is `waking::mail_arrived`. It never reads a journal.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::progress::Progress;
use super::{EngineError, RunEntry, Shared, waking};
use crate::clock::Timestamp;
use crate::id_map::IdMap;
use crate::ids::RunId;

/// How long the index may go unlooked at: a clock that was set forward is noticed after this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// How many sleepers are read from the store at a time.
const PAGE: usize = 10_000;

/// How many awaited runs are kept before those are looked for that nobody awaits any more.
const AWAITED_AT_LEAST: usize = 1_024;

/// The sleeping runs of an engine.
#[derive(Default)]
pub(super) struct Sleepers {
    index: Mutex<Index>,
    earlier: Notify,
}

#[derive(Default)]
struct Index {
    due: BTreeSet<(Timestamp, RunId)>,
    /// When each of them is due: a run that a letter woke leaves no time behind.
    at: IdMap<RunId, Timestamp>,
    /// Entries of sleeping runs that somebody waits for.
    awaited: IdMap<RunId, Weak<RunEntry>>,
    /// When to look through them again.
    prune_at: usize,
}

impl Index {
    /// The run is not waited for any more.
    fn forget(&mut self, run: RunId) {
        if let Some(at) = self.at.remove(&run) {
            self.due.remove(&(at, run));
        }
    }
}

impl Sleepers {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a run woken when the wall clock has reached `at`.
    pub(super) fn add(&self, at: Timestamp, run: RunId) {
        let is_first = {
            let mut index = self.index();
            let is_first = index.due.first().is_none_or(|first| (at, run) < *first);
            index.forget(run);
            index.due.insert((at, run));
            index.at.insert(run, at);
            is_first
        };
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// How many runs are to be woken at a time.
    pub(super) fn count(&self) -> usize {
        self.index().due.len()
    }

    /// Keeps the entry of a run that falls asleep, if somebody may wait for it.
    pub(super) fn keep(&self, run: RunId, entry: &Arc<RunEntry>) {
        let mut index = self.index();
        if index.awaited.len() >= index.prune_at.max(AWAITED_AT_LEAST) {
            index.awaited.retain(|_, entry| entry.strong_count() > 0);
            index.prune_at = 2 * index.awaited.len();
        }
        index.awaited.insert(run, Arc::downgrade(entry));
    }

    /// Takes the entry that somebody waits with, for a run that is taken up again.
    pub(super) fn take(&self, run: RunId) -> Option<Arc<RunEntry>> {
        let mut index = self.index();
        index.forget(run);
        index.awaited.remove(&run)?.upgrade()
    }

    /// The entry to wait with for a sleeping run.
    pub(super) fn entry(&self, run: RunId) -> Arc<RunEntry> {
        let known = self.index().awaited.get(&run).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let entry = RunEntry::new(Progress::Active);
            self.keep(run, &entry);
            entry
        })
    }

    /// Takes all entries that somebody waits with: the engine stops.
    pub(super) fn take_awaited(&self) -> Vec<Arc<RunEntry>> {
        let awaited = std::mem::take(&mut self.index().awaited);
        awaited.values().filter_map(Weak::upgrade).collect()
    }

    /// Takes what is due, and says when the next one is.
    fn take_due(&self, now: Timestamp) -> (Vec<(Timestamp, RunId)>, Option<Timestamp>) {
        let mut index = self.index();
        let mut due = Vec::new();
        while let Some((at, run)) = index.due.first().copied() {
            if at > now {
                return (due, Some(at));
            }
            index.forget(run);
            due.push((at, run));
        }
        (due, None)
    }
}

/// Reads which runs sleep in the store, and wakes them when they are due.
pub(super) fn start(shared: &Arc<Shared>) {
    tokio::spawn(read(Arc::downgrade(shared)));
    tokio::spawn(serve(Arc::downgrade(shared)));
}

/// Reads the sleeping runs, soonest first.
async fn read(shared: Weak<Shared>) {
    let mut last = None;
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let page = match shared.store.asleep(last.take(), PAGE).await {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "the sleeping runs cannot be read");
                return;
            }
        };
        for sleeper in &page {
            if let Some(at) = sleeper.wake_at
                && *sleeper.namespace == *shared.services.namespace
            {
                shared.sleepers.add(at, sleeper.run);
            }
        }
        if page.len() < PAGE {
            return;
        }
        last = page.into_iter().next_back();
    }
}

async fn serve(shared: Weak<Shared>) {
    loop {
        let Some(alive) = shared.upgrade() else {
            return;
        };
        if alive.is_closing() {
            return;
        }
        let (due, next) = alive.sleepers.take_due(alive.services.clock.now());
        for (at, run) in due {
            // Claims queue up behind a bounded number of them; see `task`.
            if at == Timestamp::default() {
                waking::mail_arrived(&alive, run); // so the store names those that have letters
            } else {
                waking::wake(&alive, run);
            }
        }
        let clock = &alive.services.clock;
        let longest = clock.nap(LONGEST_NAP);
        let nap = next.map_or(longest, |at| at.since(clock.now()).min(longest));
        // Waiting keeps the engine alive for one nap at most; then a dropped one is noticed.
        let _ = tokio::time::timeout(clock.pace(nap), alive.sleepers.earlier.notified()).await;
    }
}

impl Shared {
    /// The entry of a run in memory, or one to wait with for a run that sleeps.
    pub(super) fn entry_or_sleeper(&self, run: RunId) -> Result<Arc<RunEntry>, EngineError> {
        if self.is_closing() {
            return Err(EngineError::Stopped("it is shutting down".into()));
        }
        // Under one lock with those who fall asleep and wake up: else both could be missed.
        let runs = self.runs();
        Ok(match runs.get(&run) {
            Some(entry) => entry.clone(),
            None => self.sleepers.entry(run),
        })
    }
}
