//! The end of a run's journal that is being written.
//!
//! Owns the chain, the clock rule (no record is older than the one before it), the epoch under
//! which this process owns the run, and how many letters were moved into the journal. One call, one
//! append; it never waits for it.

use std::sync::Arc;

use super::poison::Marked;
use crate::clock::{Timestamp, wall_clock};
use crate::ids::{RunId, StepId};
use crate::journal::{Chain, Draft, Effect, Event};
use crate::store::{Append, BoxFuture, Changes, Durability, Epoch, RunEnd, Store, StoreResult};

/// Appends to one run's journal.
pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) chain: Chain,
    pub(crate) last_time: Timestamp,
    pub(crate) durability: Durability,
    /// Letters below this number are in the journal.
    pub(crate) taken: u64,
}

/// What is delivered once it is durable.
pub(crate) enum Due {
    /// A call's own outcome.
    Call(StepId),
    /// What came by letter.
    Letter(Box<Event>),
}

/// An append on its way to the disk.
pub(crate) struct Commit {
    pub(crate) ack: BoxFuture<'static, StoreResult<()>>,
    /// What is delivered, in journal order: nearly always one.
    pub(crate) first: Option<(Due, Timestamp)>,
    pub(crate) others: Vec<(Due, Timestamp)>,
    /// Whom the engine has to tell.
    pub(crate) news: Option<Box<News>>,
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
}

impl Writer {
    /// Appends records, in order, and leaves the list empty.
    pub(crate) fn append(
        &mut self,
        drafts: &mut Vec<Draft>,
        changes: Option<Box<Changes>>,
        unmarked: Option<Box<Marked>>,
    ) -> Commit {
        let first_seq = self.chain.next_seq();
        let (mut first, mut others) = (None, Vec::new());
        let mut end = None;
        let mut frames = Vec::with_capacity(drafts.len());
        for draft in drafts.drain(..) {
            let time = wall_clock().max(self.last_time);
            self.last_time = time;
            frames.push(draft.seal(time, &mut self.chain));
            let due = match draft.into_effect() {
                Effect::Delivers(call) => Due::Call(call),
                Effect::Receives(letter) => Due::Letter(letter),
                Effect::Ends(kind) => {
                    end = Some((kind, time));
                    continue;
                }
                Effect::Nothing => continue,
            };
            if first.is_none() {
                first = Some((due, time));
            } else {
                others.push((due, time));
            }
        }
        let news = changes
            .as_deref()
            .map(|changes| Box::new(News::of(changes)));
        let ack = self.store.append(Append {
            run: self.run,
            epoch: self.epoch,
            first_seq,
            frames,
            end: end.map(|(kind, at)| RunEnd { kind, at }),
            taken: self.taken,
            changes,
            // Whoever was told of a result relies on it; with it, all before it is synced.
            durability: match end {
                Some(_) => Durability::Synced,
                None => self.durability,
            },
        });
        Commit {
            ack,
            first,
            others,
            news,
            unmarked,
        }
    }
}

impl News {
    fn of(changes: &Changes) -> Self {
        Self {
            created: changes.create.iter().map(|new| new.header.run).collect(),
            mail: changes.post.iter().map(|letter| letter.to).collect(),
            published: !changes.notes.is_empty(),
        }
    }
}
