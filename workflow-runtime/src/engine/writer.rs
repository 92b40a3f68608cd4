//! The end of a run's journal that is being written.
//!
//! Owns the chain, the clock rule (no record is older than the one before it), the epoch under
//! which this process owns the run, and how many letters were moved into the journal. One call, one
//! append; it never waits for it.

use std::hint::cold_path;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::outbox::is_message;
use super::poison::Marked;
use crate::clock::{Clock, Timestamp};
use crate::ids::{RunId, StepId};
use crate::journal::{Chain, Companion, Draft, Effect, Event};
use crate::store::{
    AckWaiter, Append, BoxFuture, Changes, Durability, Epoch, Frames, RunEnd, Store, StoreError,
    StoreResult,
};

/// Appends to one run's journal.
pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) chain: Chain,
    pub(crate) clock: Clock,
    pub(crate) last_time: Timestamp,
    pub(crate) durability: Durability,
    /// Letters below this number are in the journal, and the store has not been told; 0 if it has.
    pub(crate) taken: u64,
    /// Where the store answers, if that is free.
    pub(crate) slot: Option<AckWaiter>,
}

impl Writer {
    /// Tells the store that records from 2 up to a number are not needed any more.
    pub(crate) fn forget(&self, below: u64) -> BoxFuture<'_, StoreResult<()>> {
        self.store.forget(self.run, self.epoch, below)
    }
}

/// What is delivered once it is durable.
pub(crate) enum Due {
    /// A call's own outcome.
    Call(StepId),
    /// What came by letter.
    Letter(Box<Event>),
}

/// Where an append's acknowledgement comes from.
pub(crate) enum Ack {
    /// The run's own slot, or another one if that waits for an earlier append.
    Slot(AckWaiter),
    Future(BoxFuture<'static, StoreResult<()>>),
}

impl Ack {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<StoreResult<()>> {
        match self {
            Self::Slot(slot) => slot.poll(cx),
            Self::Future(future) => future.as_mut().poll(cx),
        }
    }
}

/// An append on its way to the disk.
pub(crate) struct Commit {
    pub(crate) ack: Ack,
    /// What is delivered, in journal order: nearly always one.
    pub(crate) first: Option<(Due, Timestamp)>,
    /// The sequence number behind it.
    pub(crate) end: u64,
    pub(crate) durability: Durability,
    /// What hardly an append has, apart: every step is one.
    pub(crate) more: Option<Box<More>>,
}

/// What else happens once an append is durable.
#[derive(Default)]
pub(crate) struct More {
    /// What is delivered behind the first.
    pub(crate) others: Vec<(Due, Timestamp)>,
    /// The steps that it says are about to run.
    pub(crate) announced: Vec<StepId>,
    /// Whom the engine has to tell.
    pub(crate) news: Option<News>,
    /// The mark that goes with it.
    pub(super) unmarked: Option<Box<Marked>>,
}

/// What an append changed outside its run.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Runs that were created.
    pub(crate) created: Vec<RunId>,
    /// Runs that have a letter.
    pub(crate) mail: Vec<RunId>,
    /// Whether something was published.
    pub(crate) published: bool,
    /// Whether there are messages to be relayed.
    pub(crate) messages: bool,
}

impl Writer {
    /// Appends the outcome of one step, with nothing beside it: nearly every append is that.
    pub(crate) fn append_plain(&mut self, mut draft: Draft) -> Commit {
        let durability = draft.durability().unwrap_or(self.durability);
        let first_seq = self.chain.next_seq();
        let time = self.clock.now().max(self.last_time);
        self.last_time = time;
        let frame = draft.seal_in_room(time, &mut self.chain);
        let append = Append {
            run: self.run,
            epoch: self.epoch,
            first_seq,
            frames: frame.into(),
            end: None,
            taken: std::mem::take(&mut self.taken),
            changes: None,
            durability,
        };
        let ack = self.hand_over(append);
        let due = match draft.into_effect() {
            Effect::Delivers(call) => Some((Due::Call(call), time)),
            _ => None,
        };
        Commit {
            ack,
            first: due,
            end: self.chain.next_seq(),
            durability,
            more: None,
        }
    }

    /// Appends records, in order, and leaves the list empty. With `sync`, all before it is synced
    /// whatever they ask for themselves, also if there are none.
    pub(crate) fn append(
        &mut self,
        drafts: &mut Vec<Draft>,
        mut changes: Option<Box<Changes>>,
        sync: bool,
        unmarked: Option<Box<Marked>>,
    ) -> Commit {
        let first_seq = self.chain.next_seq();
        let (mut first, mut more) = (None, More::default());
        let mut synced = sync || (changes.is_some() && self.durability == Durability::Synced);
        let mut end = None;
        let mut companions = Vec::new();
        let mut frames = Frames::default();
        for mut draft in drafts.drain(..) {
            // One that is to be synced brings all the others along.
            synced |= draft.durability().unwrap_or(self.durability) == Durability::Synced;
            let time = self.clock.now().max(self.last_time);
            self.last_time = time;
            if let Some(messages) = draft.take_messages() {
                cold_path();
                synced = true; // a message must not go out and its outcome be lost with the power
                let seq = self.chain.next_seq();
                let notes = messages.into_iter();
                let notes = notes.map(|message| message.into_note(self.run, seq, time));
                changes.get_or_insert_default().notes.extend(notes);
            }
            frames.push(draft.seal_in_room(time, &mut self.chain));
            companions.extend(draft.take_companion());
            let due = match draft.into_effect() {
                Effect::Delivers(call) => Due::Call(call),
                Effect::Receives(letter) => Due::Letter(letter),
                Effect::Ends(kind) => {
                    cold_path();
                    end = Some((kind, time));
                    continue;
                }
                Effect::Announces(call) => {
                    cold_path();
                    more.announced.push(call);
                    continue;
                }
                Effect::Nothing => continue,
            };
            if first.is_none() {
                first = Some((due, time));
            } else {
                more.others.push((due, time));
            }
        }
        more.news = changes.as_deref().map(News::of);
        more.unmarked = unmarked;
        if !companions.is_empty() {
            cold_path();
            synced |= self.durability == Durability::Synced;
            let changes = changes.get_or_insert_default();
            let notes = companions.iter().flat_map(|with| with.notes());
            changes.notes.extend(notes);
        }
        // Whoever was told of a result relies on it; with it, all before it is synced.
        let durability = if synced || end.is_some() {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        let append = Append {
            run: self.run,
            epoch: self.epoch,
            first_seq,
            frames,
            end: end.map(|(kind, at)| RunEnd { kind, at }),
            taken: std::mem::take(&mut self.taken),
            changes,
            durability,
        };
        let ack = match companions.is_empty() {
            true => self.hand_over(append),
            false => Ack::Future(settling(self.store.append(append), companions)),
        };
        Commit {
            ack,
            first,
            end: self.chain.next_seq(),
            durability,
            more: more.counts().then(|| Box::new(more)),
        }
    }

    /// Hands an append to the store, to be answered in the slot that is free or in a new one.
    fn hand_over(&mut self, append: Append) -> Ack {
        let slot = self.slot.take().unwrap_or_default();
        match self.store.append_into(append, slot.slot()) {
            None => Ack::Slot(slot),
            Some(future) => {
                self.slot = Some(slot);
                Ack::Future(future)
            }
        }
    }

    /// The run only waits: gives back memory that it may not need for days.
    pub(crate) fn rest(&mut self) {
        self.slot = None;
    }

    /// Takes a slot back whose answer was taken.
    pub(crate) fn answered(&mut self, ack: Ack) {
        if let Ack::Slot(slot) = ack {
            self.slot = Some(slot);
        }
    }
}

/// Settles what goes with an append in a task of its own: others wait for it, also if the run that wrote
/// it is dropped meanwhile.
fn settling(
    ack: BoxFuture<'static, StoreResult<()>>,
    companions: Vec<Box<dyn Companion>>,
) -> BoxFuture<'static, StoreResult<()>> {
    let settled = tokio::spawn(async move {
        let written = ack.await;
        for with in companions {
            with.settle(written.is_ok());
        }
        written
    });
    Box::pin(async move {
        let gone = |_| {
            Err(StoreError::Stopped {
                reason: "the runtime goes down".into(),
            })
        };
        settled.await.unwrap_or_else(gone)
    })
}

impl More {
    fn counts(&self) -> bool {
        !self.others.is_empty()
            || !self.announced.is_empty()
            || self.news.is_some()
            || self.unmarked.is_some()
    }
}

impl News {
    fn of(changes: &Changes) -> Self {
        Self {
            created: changes.create.iter().map(|new| new.header.run).collect(),
            mail: changes.post.iter().map(|letter| letter.to).collect(),
            published: !changes.notes.is_empty(),
            messages: changes.notes.iter().any(is_message),
        }
    }
}
