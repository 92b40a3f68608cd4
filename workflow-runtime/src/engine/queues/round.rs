//! One look at one queue: what is ready, what goes on, and whose turn it is.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::debounce;
use super::limits::Rate;
use super::note::{
    Entry, Pages, Pending, Settings, Slot, Turn, delayed_key, read, settings_key, slot_key,
    turn_key, waiting_key,
};
use crate::clock::Timestamp;
use crate::engine::notes::{self, Space};
use crate::engine::warnings::Warning;
use crate::engine::{EngineError, Shared, lines, waking};
use crate::ids::RunId;
use crate::store::{Changes, Commit, Committed, Guard, NoteChange, NoteKey, RunState};

/// Runs that have their turn in one commit.
const BATCH: usize = 64;

/// One look at one queue.
pub(super) struct Round<'a> {
    shared: &'a Arc<Shared>,
    queue: &'a str,
    settings: &'a Settings,
    /// Runs whose lease is over, of which there was a warning.
    overdue: &'a mut HashSet<RunId>,
    now: Timestamp,
    nap: Duration,
}

/// How a queue is left until the next look.
pub(super) struct Rest {
    /// When to look again at the latest.
    pub(super) nap: Duration,
    /// Whether it is worth looking when a run ends.
    pub(super) holds_slots: bool,
}

/// The slots of a queue.
#[derive(Default)]
struct Slots {
    /// How many are held.
    held: u32,
    by_key: HashMap<Box<str>, u32>,
    /// Notes of slots that are not held any more.
    free: Vec<NoteKey>,
    /// When the next lease is over.
    next_lease: Option<Timestamp>,
}

impl Slots {
    fn hold(&mut self, queue_key: Option<Box<str>>, over_at: Timestamp) {
        self.held += 1;
        self.next_lease = Some(self.next_lease.map_or(over_at, |next| next.min(over_at)));
        if let Some(key) = queue_key {
            *self.by_key.entry(key).or_default() += 1;
        }
    }
}

/// Whose turn it is.
#[derive(Default)]
struct Chosen {
    entries: Vec<(NoteKey, Bytes, Entry)>,
    /// Entries of runs that have ended or are gone: they need no turn.
    dead: Vec<NoteKey>,
    /// More of them could begin if there were room.
    more: bool,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        queue: &'a str,
        settings: &'a Settings,
        overdue: &'a mut HashSet<RunId>,
    ) -> Self {
        Self {
            shared,
            queue,
            settings,
            overdue,
            now: shared.services.clock.now(),
            nap: Duration::MAX,
        }
    }

    fn namespace(&self) -> &str {
        &self.shared.services.namespace
    }

    fn look_again_at(&mut self, at: Timestamp) {
        self.nap = self.nap.min(at.since(self.now));
    }

    /// Wakes runs that had their turn in an earlier process: that they were awake may be lost.
    pub(super) async fn adopt(&mut self) -> Result<(), EngineError> {
        let mut pages = Pages::new(Space::QueueSlot, self.namespace(), self.queue);
        loop {
            let page = pages.next(self.shared).await?;
            if page.is_empty() {
                return Ok(());
            }
            for (_, bytes) in page {
                let slot: Slot = read(self.queue, &bytes)?;
                let header = self.shared.store.header(slot.run).await?;
                if header.is_some_and(|h| matches!(h.state, RunState::Asleep { .. })) {
                    waking::wake(self.shared, slot.run);
                }
            }
        }
    }

    /// Lets begin what may.
    pub(super) async fn serve(mut self) -> Result<Rest, EngineError> {
        self.settle_pending().await?;
        self.ripen().await?;
        loop {
            // The turn first: a dispatch of another process after this is seen as another turn.
            let turn_key = turn_key(self.namespace(), self.queue);
            let turn = self.shared.store.note(turn_key).await?;
            let mut slots = self.slots().await?;
            if self.dispatch(turn, &mut slots).await? {
                return Ok(Rest {
                    nap: self.nap,
                    holds_slots: slots.held > 0,
                });
            }
            self.now = self.shared.services.clock.now();
        }
    }

    /// Makes runs of debounced starts that have waited for long enough.
    async fn settle_pending(&mut self) -> Result<(), EngineError> {
        let mut pages = Pages::new(Space::QueuePending, self.namespace(), self.queue);
        loop {
            let page = pages.next(self.shared).await?;
            if page.is_empty() {
                return Ok(());
            }
            for (key, bytes) in page {
                let pending: Pending = read(self.queue, &bytes)?;
                if pending.due_at > self.now {
                    self.look_again_at(pending.due_at);
                    continue;
                }
                let commit = debounce::settle(self.shared, self.queue, key, bytes, &pending);
                if self.shared.store.commit(commit).await? != Committed::Done {
                    // Another start came in between: it waits anew.
                    self.nap = Duration::ZERO;
                }
            }
        }
    }

    /// Puts delayed entries that are ready among those that wait.
    async fn ripen(&mut self) -> Result<(), EngineError> {
        let mut pages = Pages::new(Space::QueueDelayed, self.namespace(), self.queue);
        loop {
            let page = pages.next(self.shared).await?;
            if page.is_empty() {
                return Ok(());
            }
            let mut commit = Commit::default();
            let mut unready = None;
            for (_, bytes) in page {
                let entry: Entry = read(self.queue, &bytes)?;
                if entry.ready_at > self.now {
                    unready = Some(entry.ready_at);
                    break; // they are sorted by it
                }
                let delayed = delayed_key(self.namespace(), self.queue, &entry);
                let waiting = waiting_key(self.namespace(), self.queue, &entry);
                commit.guards.push(Guard {
                    key: delayed.clone(),
                    expected: Some(bytes.clone()),
                });
                let change = |key, value| NoteChange { key, value };
                let moved = [change(delayed, None), change(waiting, Some(bytes))];
                commit.changes.notes.extend(moved);
            }
            if !commit.changes.is_empty()
                && self.shared.store.commit(commit).await? != Committed::Done
            {
                self.nap = Duration::ZERO; // another dispatcher was faster
                return Ok(());
            }
            if let Some(at) = unready {
                self.look_again_at(at);
                return Ok(());
            }
        }
    }

    /// Counts the slots that are held.
    async fn slots(&mut self) -> Result<Slots, EngineError> {
        let mut slots = Slots::default();
        let mut pages = Pages::new(Space::QueueSlot, self.namespace(), self.queue);
        loop {
            let page = pages.next(self.shared).await?;
            if page.is_empty() {
                return Ok(slots);
            }
            for (key, bytes) in page {
                let slot: Slot = read(self.queue, &bytes)?;
                let over_at = slot.since.after(self.settings.live.lease());
                if !is_held(self.shared, slot.run).await? {
                    self.overdue.remove(&slot.run);
                    slots.free.push(key);
                } else if over_at <= self.now {
                    self.warn_of_lease(slot.run);
                    if self.has_begun(slot.run).await? {
                        slots.free.push(key);
                    }
                } else {
                    slots.hold(slot.queue_key, over_at);
                }
            }
        }
    }

    /// Says whether a run that had its turn shows it in its journal. Until then its slot's note is all that a later
    /// process could wake it by, so that the note outlives the lease.
    async fn has_begun(&self, run: RunId) -> Result<bool, EngineError> {
        Ok(!self.shared.store.frames(run, 1, 1).await?.is_empty())
    }

    /// Gives slots to those whose turn it is. `false`: another dispatcher was faster, or there may be more.
    async fn dispatch(
        &mut self,
        found: Option<Bytes>,
        slots: &mut Slots,
    ) -> Result<bool, EngineError> {
        let turn = match &found {
            Some(bytes) => read(self.queue, bytes)?,
            None => Turn::default(),
        };
        let chosen = self.choose(self.room(slots, &turn), slots).await?;
        let begun = u32::try_from(chosen.entries.len()).unwrap_or(u32::MAX);
        let next = Turn {
            number: turn.number + 1,
            level: match self.settings.live.rate {
                Some(rate) => rate.take(turn.level, self.now, begun),
                None => turn.level,
            },
        };
        if chosen.more && !self.settings.paused {
            self.wait_for_room(slots, &next);
        }
        let free = std::mem::take(&mut slots.free);
        if chosen.entries.is_empty() && chosen.dead.is_empty() && free.is_empty() {
            return Ok(true);
        }
        let commit = self.commit(&chosen, free, found, next);
        if self.shared.store.commit(commit).await? != Committed::Done {
            return Ok(false);
        }
        for (_, _, entry) in &chosen.entries {
            tracing::debug!(queue = self.queue, run = %entry.run, "its turn has come");
            waking::wake(self.shared, entry.run);
        }
        // A full batch: there may be room for more.
        Ok(!(chosen.more && chosen.entries.len() == BATCH))
    }

    /// How many may begin in one commit.
    fn room(&self, slots: &Slots, turn: &Turn) -> usize {
        if self.settings.paused {
            return 0;
        }
        let limits = &self.settings.live;
        let free = |most: u32| most.saturating_sub(slots.held);
        let room = limits.concurrency.map_or(u32::MAX, free);
        let tokens = |rate: Rate| rate.room(turn.level, self.now);
        let begin = limits.rate.map_or(u32::MAX, tokens);
        BATCH.min(room.min(begin) as usize)
    }

    /// Finds those whose turn it is, in order; a key that has enough is passed over.
    async fn choose(&self, most: usize, slots: &mut Slots) -> Result<Chosen, EngineError> {
        let mut chosen = Chosen::default();
        let mut pages = Pages::new(Space::QueueWaiting, self.namespace(), self.queue);
        loop {
            let page = pages.next(self.shared).await?;
            if page.is_empty() {
                return Ok(chosen);
            }
            for (key, bytes) in page {
                if chosen.entries.len() == most {
                    chosen.more = true;
                    return Ok(chosen);
                }
                let entry: Entry = read(self.queue, &bytes)?;
                if self.has_enough(slots, &entry) {
                    chosen.more = true;
                } else if !is_held(self.shared, entry.run).await? {
                    chosen.dead.push(key);
                } else {
                    let over_at = self.now.after(self.settings.live.lease());
                    slots.hold(entry.queue_key.clone(), over_at);
                    chosen.entries.push((key, bytes, entry));
                }
            }
        }
    }

    /// Says whether as many runs of an entry's key go on as may.
    fn has_enough(&self, slots: &Slots, entry: &Entry) -> bool {
        let held = |key: &str| slots.by_key.get(key).copied().unwrap_or_default();
        match (self.settings.live.per_key, &entry.queue_key) {
            (Some(most), Some(key)) => held(key) >= most,
            _ => false,
        }
    }

    /// The dispatch as one commit: entries become slots, and the turn is another one.
    fn commit(
        &self,
        chosen: &Chosen,
        free: Vec<NoteKey>,
        turn: Option<Bytes>,
        next: Turn,
    ) -> Commit {
        let turn_key = turn_key(self.namespace(), self.queue);
        let remove = |key: NoteKey| NoteChange { key, value: None };
        let mut commit = Commit {
            guards: vec![Guard {
                key: turn_key.clone(),
                expected: turn,
            }],
            changes: Changes::default(),
        };
        if !chosen.entries.is_empty() {
            // Who paused the queue, or changed its limits, was told so: no run begins by the old ones.
            commit.guards.push(Guard {
                key: settings_key(self.namespace(), self.queue),
                expected: Some(notes::encode(self.settings)),
            });
        }
        let changes = &mut commit.changes.notes;
        changes.push(NoteChange {
            key: turn_key,
            value: Some(notes::encode(&next)),
        });
        changes.extend(
            free.into_iter()
                .chain(chosen.dead.iter().cloned())
                .map(remove),
        );
        for (key, bytes, entry) in &chosen.entries {
            commit.guards.push(Guard {
                key: key.clone(),
                expected: Some(bytes.clone()),
            });
            let slot = Slot {
                run: entry.run,
                queue_key: entry.queue_key.clone(),
                since: self.now,
            };
            changes.push(remove(key.clone()));
            changes.push(remove(notes::queued(entry.run)));
            changes.push(NoteChange {
                key: slot_key(self.namespace(), self.queue, entry.run),
                value: Some(notes::encode(&slot)),
            });
        }
        commit
    }

    /// Says when there will be room at the latest, for those that wait.
    fn wait_for_room(&mut self, slots: &Slots, turn: &Turn) {
        if let Some(over_at) = slots.next_lease {
            self.look_again_at(over_at);
        }
        // Otherwise there are tokens, and they wait for a run to end.
        if let Some(rate) = self.settings.live.rate
            && rate.room(turn.level, self.now) == 0
        {
            self.nap = self.nap.min(rate.wait(turn.level, self.now));
        }
    }

    fn warn_of_lease(&mut self, run: RunId) {
        if !self.overdue.insert(run) {
            return;
        }
        self.shared.services.warnings.push(Warning {
            run: Some(run),
            workflow: "".into(),
            message: Cow::Owned(format!(
                "it holds a slot of queue `{}` for longer than the lease of {:?}: the slot is given to the next \
                 one, and the run goes on",
                self.queue,
                self.settings.live.lease()
            )),
        });
    }
}

/// Says whether a run, or one that continues it, is there and has not ended.
pub(super) async fn is_held(shared: &Shared, run: RunId) -> Result<bool, EngineError> {
    if shared.entry(run).is_some() {
        return Ok(true); // when it leaves, its queue is looked at again
    }
    let Some(header) = lines::newest_header(shared, run).await? else {
        return Ok(false);
    };
    let ended = matches!(header.state, RunState::Ended(_));
    Ok(!ended || (header.run != run && shared.entry(header.run).is_some()))
}
