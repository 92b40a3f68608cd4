//! Runs that left memory: who is to be woken when, and who waits for them.
//!
//! Owns the index of sleeping runs by the time they are due (a few dozen bytes each; the rest of
//! them is in the store) and the task that takes them up again, a bounded number at a time. A
//! letter wakes a run as well, which is `waking::mail_arrived`. It never reads a journal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
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

/// How many sleepers are read from the store at a time: what a page takes is scattered over memory that the index grows
/// into, so it is to be little.
const PAGE: usize = 1_000;

/// So many times more than there are sleepers may be in line before those are taken out that woke up otherwise.
const STALE_AT_LEAST: usize = 1_024;

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
    /// Times in line, the soonest first. A heap, which takes less than a tree does; one that `at` does not know is of a run
    /// that woke up otherwise, and means nothing.
    due: BinaryHeap<Reverse<(Timestamp, RunId)>>,
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
        let was_there = self.at.remove(&run).is_some();
        if was_there && self.due.len() > 2 * self.at.len() + STALE_AT_LEAST {
            let due = self.at.iter().map(|(run, at)| Reverse((*at, *run)));
            self.due = due.collect();
        }
    }

    /// Has a run woken at a time, and at no other.
    fn set(&mut self, at: Timestamp, run: RunId) {
        if self.at.insert(run, at) != Some(at) {
            self.due.push(Reverse((at, run)));
        }
    }

    /// Who is due first.
    fn first(&mut self) -> Option<(Timestamp, RunId)> {
        while let Some(Reverse((at, run))) = self.due.peek().copied() {
            if self.at.get(&run) == Some(&at) {
                return Some((at, run));
            }
            self.due.pop();
        }
        None
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
            index.set(at, run);
            index.first() == Some((at, run))
        };
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// How many runs are to be woken at a time.
    pub(super) fn count(&self) -> usize {
        self.index().at.len()
    }

    /// When a run is to be woken, if it is to be at a time.
    #[cfg(feature = "testing")]
    pub(super) fn due_at(&self, run: RunId) -> Option<Timestamp> {
        self.index().at.get(&run).copied()
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
        while let Some((at, run)) = index.first() {
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
                && !seeded!(OrphanedRun)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: u64) -> RunId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&n.to_be_bytes());
        RunId::from_bytes(bytes)
    }

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn each_run_is_due_once_at_its_newest_time() {
        let sleepers = Sleepers::default();
        for n in 0..100 {
            sleepers.add(at(1_000 + n), run(n));
        }
        for n in 0..50 {
            sleepers.add(at(5_000 - n), run(n));
        }
        sleepers.add(at(1_060), run(60)); // the same once more
        assert!(sleepers.take(run(99)).is_none(), "nobody waits for it");
        assert_eq!(sleepers.count(), 99);
        let (due, next) = sleepers.take_due(at(2_000));
        let expected: Vec<_> = (50..99).map(|n| (at(1_000 + n), run(n))).collect();
        assert_eq!(due, expected);
        assert_eq!(next, Some(at(4_951)));
        sleepers.add(at(10), run(200));
        let (due, _) = sleepers.take_due(at(9_000));
        assert_eq!(due[0], (at(10), run(200)));
        let expected: Vec<_> = (0..50).rev().map(|n| (at(5_000 - n), run(n))).collect();
        assert_eq!(due[1..], expected);
        assert_eq!(
            (sleepers.count(), sleepers.take_due(at(9_999)).0.len()),
            (0, 0)
        );
    }

    #[test]
    fn times_of_runs_that_woke_up_otherwise_do_not_pile_up() {
        let sleepers = Sleepers::default();
        sleepers.add(at(1), run(0));
        for n in 1..20_000 {
            sleepers.add(at(1_000 + n), run(n % 10 + 1));
            sleepers.take(run(n % 10 + 1));
        }
        assert_eq!(sleepers.count(), 1);
        let in_line = sleepers.index().due.len();
        assert!(in_line <= 2 + STALE_AT_LEAST, "{in_line} in line");
        assert_eq!(sleepers.take_due(at(1)).0, [(at(1), run(0))]);
    }
}
