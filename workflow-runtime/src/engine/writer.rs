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
}

impl Writer {
    /// Appends records, in order, and leaves the list empty.
    pub(crate) fn append(&mut self, drafts: &mut Vec<Draft>) -> Commit {
        let first_seq = self.chain.next_seq();
        let (mut first, mut others) = (None, Vec::new());
        let mut end = None;
        let mut frames = Vec::with_capacity(drafts.len());
        for draft in drafts.drain(..) {
            let time = wall_clock().max(self.last_time);
            self.last_time = time;
            frames.push(draft.seal(time, &mut self.chain));
            match draft.effect() {
                Effect::Delivers(call) if first.is_none() => first = Some((call, time)),
                Effect::Delivers(call) => others.push((call, time)),
                Effect::Ends(kind) => end = Some((kind, time)),
                Effect::Nothing => {}
            }
        }
        let ack = self.store.append(Append {
            run: self.run,
            epoch: self.epoch,
            first_seq,
            frames,
            end: end.map(|(kind, at)| RunEnd { kind, at }),
            taken: 0,
            changes: None,
            // Whoever was told of a result relies on it; with it, all before it is synced.
            durability: match end {
                Some(_) => Durability::Synced,
                None => self.durability,
            },
        });
        Commit { ack, first, others }
    }
}
