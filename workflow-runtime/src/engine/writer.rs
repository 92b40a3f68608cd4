//! The end of a run's journal that is being written.
//!
//! Owns the chain, the clock rule (no record is older than the one before it) and the epoch under
//! which this process owns the run. One call, one append; it never waits for it.

use std::sync::Arc;

use crate::clock::{Timestamp, wall_clock};
use crate::ids::{RunId, StepId};
use crate::journal::{Chain, Draft, Effect};
use crate::store::{Append, BoxFuture, Durability, Epoch, RunEnd, Store, StoreResult};

/// Appends to one run's journal.
pub(crate) struct Writer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) run: RunId,
    pub(crate) epoch: Epoch,
    pub(crate) chain: Chain,
    pub(crate) last_time: Timestamp,
    pub(crate) durability: Durability,
}

/// An append on its way to the disk.
pub(crate) struct Commit {
    pub(crate) ack: BoxFuture<'static, StoreResult<()>>,
    /// The outcomes in it, in journal order: nearly always one.
    pub(crate) first: Option<(StepId, Timestamp)>,
    pub(crate) others: Vec<(StepId, Timestamp)>,
    /// The steps that it says are about to run.
    pub(crate) announced: Vec<StepId>,
    /// The sequence number behind it.
    pub(crate) end: u64,
    pub(crate) durability: Durability,
}

impl Writer {
    /// Appends records, in order, and leaves the list empty. With `sync`, all before it is synced
    /// whatever they ask for themselves, also if there are none.
    pub(crate) fn append(&mut self, drafts: &mut Vec<Draft>, sync: bool) -> Commit {
        let first_seq = self.chain.next_seq();
        let (mut first, mut others, mut announced) = (None, Vec::new(), Vec::new());
        let mut synced = sync;
        let mut end = None;
        let mut frames = Vec::with_capacity(drafts.len());
        for draft in drafts.drain(..) {
            // One that is to be synced brings all the others along.
            synced |= draft.durability().unwrap_or(self.durability) == Durability::Synced;
            let time = wall_clock().max(self.last_time);
            self.last_time = time;
            frames.push(draft.seal(time, &mut self.chain));
            match draft.effect() {
                Effect::Delivers(call) if first.is_none() => first = Some((call, time)),
                Effect::Delivers(call) => others.push((call, time)),
                Effect::Ends(kind) => end = Some((kind, time)),
                Effect::Announces(call) => announced.push(call),
                Effect::Nothing => {}
            }
        }
        // Whoever was told of a result relies on it; with it, all before it is synced.
        let durability = if synced || end.is_some() {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        let ack = self.store.append(Append {
            run: self.run,
            epoch: self.epoch,
            first_seq,
            frames,
            end: end.map(|(kind, at)| RunEnd { kind, at }),
            taken: 0,
            changes: None,
            durability,
        });
        Commit {
            ack,
            first,
            others,
            announced,
            end: self.chain.next_seq(),
            durability,
        }
    }
}
