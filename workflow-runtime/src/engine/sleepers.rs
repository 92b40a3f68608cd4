//! Runs that left memory: who is to be woken when, and who waits for them.
//!
//! Owns the line of those that are due next and the task that takes them up again, a bounded number at a time. All
//! others are in the store alone: what a sleeping run takes in memory does not depend on how many there are. A
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
use crate::store::{Sleeper, StoreResult};

/// How long the line may go unlooked at: a clock that was set forward is noticed after this.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// How many sleepers are read from the store at a time.
const PAGE: usize = 1_000;

/// If fewer are in line, more are read from the store.
const SHORT_LINE: usize = 1_024;

/// If more are in line, those at its end are left to the store.
const LONG_LINE: usize = 4 * SHORT_LINE;

/// How many awaited runs are kept before those are looked for that nobody awaits any more.
const AWAITED_AT_LEAST: usize = 256;

/// The sleeping runs of an engine.
#[derive(Default)]
pub(super) struct Sleepers {
    index: Mutex<Index>,
    earlier: Notify,
}

#[derive(Default)]
struct Index {
    line: Line,
    /// Entries of sleeping runs that somebody waits for.
    awaited: IdMap<RunId, Weak<RunEntry>>,
    /// When to look through them again.
    prune_at: usize,
}

/// A run's place in line.
type Place = (Timestamp, RunId);

/// The sleeping runs that are due next. Every one that sleeps is in line or behind its end, where the store has it.
#[derive(Default)]
struct Line {
    due: BTreeSet<Place>,
    /// When each of them is due: a run that a letter woke leaves no time behind.
    at: IdMap<RunId, Timestamp>,
    end: End,
}

/// Up to where the line is complete.
#[derive(Debug, Default, Clone, PartialEq)]
enum End {
    /// Nothing was read of the store yet.
    #[default]
    Unread,
    /// The store is being read. Whoever falls asleep meanwhile stands in line, wherever that is: it depends on the
    /// moment whether it is in what is read.
    Reading,
    /// Those behind this one are in the store only.
    Behind(Sleeper),
    /// Nobody is.
    All,
}

impl Line {
    /// The run is not waited for any more.
    fn forget(&mut self, run: RunId) {
        if let Some(at) = self.at.remove(&run) {
            self.due.remove(&(at, run));
        }
    }

    /// Has a run woken at a time, and at no other.
    fn set(&mut self, at: Timestamp, run: RunId) {
        self.forget(run);
        if let End::Behind(last) = &self.end
            && (at, run) > place(last)
        {
            return; // the store has it
        }
        self.at.insert(run, at);
        self.due.insert((at, run));
    }

    /// Begins to read behind its end, and says where that is. `None`: there are enough, or no more.
    fn begin_reading(&mut self) -> Option<Option<Sleeper>> {
        let behind = match &self.end {
            End::Unread => None,
            End::Behind(last) if self.due.len() < SHORT_LINE => Some(last.clone()),
            End::Behind(_) | End::Reading | End::All => return None,
        };
        self.end = End::Reading;
        Some(behind)
    }

    /// What was read is in line; behind `last` there may be more.
    fn end_reading(&mut self, last: Option<Sleeper>) {
        self.end = last.map_or(End::All, End::Behind);
        if let End::Behind(last) = &self.end {
            let last = place(last);
            self.cut(last);
        }
        self.keep_short();
    }

    /// Nothing could be read: whoever is behind `behind` is read later.
    fn read_nothing(&mut self, behind: Option<Sleeper>) {
        match behind {
            None => self.end = End::Unread,
            Some(_) => self.end_reading(behind),
        }
    }

    /// Leaves all behind a place to the store.
    fn cut(&mut self, last: Place) {
        while let Some(found) = self.due.last().copied()
            && found > last
        {
            self.forget(found.1);
        }
    }

    /// Leaves the end of a line that is too long to the store.
    fn keep_short(&mut self) {
        if self.due.len() <= LONG_LINE || matches!(self.end, End::Unread | End::Reading) {
            return;
        }
        if let Some(last) = self.due.iter().nth(SHORT_LINE).copied() {
            self.cut(last);
            self.end = End::Behind(Sleeper {
                wake_at: Some(last.0),
                run: last.1,
                namespace: Box::default(), // no part of a place
            });
        }
    }
}

/// Where a sleeper with a time stands.
fn place(sleeper: &Sleeper) -> Place {
    (sleeper.wake_at.unwrap_or_default(), sleeper.run)
}

impl Sleepers {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a run woken when the wall clock has reached `at`. The store knows that it sleeps.
    pub(super) fn add(&self, at: Timestamp, run: RunId) {
        let is_first = {
            let mut index = self.index();
            index.line.set(at, run);
            index.line.keep_short();
            index.line.due.first() == Some(&(at, run))
        };
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Says whether a run that sleeps is woken at a time: it is in line, or behind its end.
    #[cfg(feature = "testing")]
    pub(super) fn will_wake(&self, at: Timestamp, run: RunId) -> bool {
        let line = &self.index().line;
        match &line.end {
            _ if line.at.contains_key(&run) => true,
            End::Behind(last) => (at, run) > place(last),
            End::Unread | End::Reading => true,
            End::All => false,
        }
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
        index.line.forget(run);
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

    /// Takes what is due, and says when the next one in line is.
    fn take_due(&self, now: Timestamp) -> (Vec<Place>, Option<Timestamp>) {
        let line = &mut self.index().line;
        let mut due = Vec::new();
        while let Some(&(at, run)) = line.due.first() {
            if at > now {
                return (due, Some(at));
            }
            line.forget(run);
            due.push((at, run));
        }
        (due, None)
    }
}

/// Wakes sleeping runs when they are due.
pub(super) fn start(shared: &Arc<Shared>) {
    tokio::spawn(serve(Arc::downgrade(shared)));
}

/// Reads more of the store's sleepers if the line is short. Says whether it has to be looked at again.
async fn lengthen(shared: &Shared) -> bool {
    let Some(behind) = shared.sleepers.index().line.begin_reading() else {
        return false;
    };
    let page = match shared.store.asleep(behind.clone(), PAGE).await {
        Ok(page) => page,
        Err(error) => {
            tracing::error!(%error, "the sleeping runs cannot be read: trying again after a nap");
            shared.sleepers.index().line.read_nothing(behind);
            return false;
        }
    };
    // Those without a time come last, and are nobody's to wake.
    let goes_on = |last: &&Sleeper| page.len() == PAGE && last.wake_at.is_some();
    let last = page.last().filter(goes_on).cloned();
    // Under the lock of those in memory: who is there comes in line when it leaves, and who is taken up leaves it.
    let runs = shared.runs();
    let line = &mut shared.sleepers.index().line;
    for sleeper in &page {
        if let Some(at) = sleeper.wake_at
            && !seeded!(OrphanedRun)
            && *sleeper.namespace == *shared.services.namespace
            && !runs.contains_key(&sleeper.run)
        {
            line.set(at, sleeper.run);
        }
    }
    line.end_reading(last);
    true
}

async fn serve(shared: Weak<Shared>) {
    loop {
        let Some(alive) = shared.upgrade() else {
            return;
        };
        if alive.is_closing() {
            return;
        }
        let more = lengthen(&alive).await;
        let (due, next) = alive.sleepers.take_due(alive.services.clock.now());
        for (at, run) in due {
            // Claims queue up behind a bounded number of them; see `task`.
            if at == Timestamp::default() {
                waking::mail_arrived(&alive, run); // so the store names those that have letters
            } else {
                waking::wake(&alive, run);
            }
        }
        if more {
            continue;
        }
        let clock = &alive.services.clock;
        let longest = clock.nap(LONGEST_NAP);
        let nap = next.map_or(longest, |at| at.since(clock.now()).min(longest));
        // Waiting keeps the engine alive for one nap at most; then a dropped one is noticed.
        let _ = tokio::time::timeout(clock.pace(nap), alive.sleepers.earlier.notified()).await;
    }
}

/// Counts the runs that are to be woken at a time.
pub(super) async fn count(shared: &Shared) -> StoreResult<u64> {
    let (mut last, mut count) = (None, 0);
    loop {
        let page = shared.store.asleep(last.take(), PAGE).await?;
        let with_time = page.iter().filter(|sleeper| {
            sleeper.wake_at.is_some() && *sleeper.namespace == *shared.services.namespace
        });
        count += with_time.count() as u64;
        last = page.last().cloned();
        if page.len() < PAGE || last.as_ref().is_some_and(|last| last.wake_at.is_none()) {
            return Ok(count);
        }
    }
}

impl Shared {
    /// The entry of a run in memory, or one to wait with for a run that sleeps.
    pub(super) fn entry_or_sleeper(&self, run: RunId) -> Result<Arc<RunEntry>, EngineError> {
        if self.is_closing() {
            return Err(self.refusal("it is shutting down"));
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
mod tests;
