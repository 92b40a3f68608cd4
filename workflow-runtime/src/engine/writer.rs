//! The end of a run's journal that is being written.
//!
//! Owns the chain, the clock rule (no record is older than the one before it) and the epoch under
//! which this process owns the run. One call, one append; it never waits for it.

use std::sync::Arc;

use super::core::RunCore;
use crate::clock::Timestamp;
use crate::ids::{RunId, StepId};
use crate::journal::{Chain, Event};
use crate::store::{Append, BoxFuture, Durability, EndKind, Epoch, RunEnd, Store, StoreResult};

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
    /// The outcomes in it, in journal order.
    pub(crate) outcomes: Vec<(StepId, Timestamp)>,
}

impl Writer {
    /// Appends records, in order.
    pub(crate) fn append(&mut self, events: Vec<Event>) -> Commit {
        let first_seq = self.chain.next_seq();
        let mut outcomes = Vec::new();
        let mut end = None;
        let mut frames = Vec::with_capacity(events.len());
        for event in events {
            let time = RunCore::record_time(self.last_time);
            self.last_time = time;
            frames.push(self.chain.seal(&event.encode(time)));
            match event {
                Event::StepCompleted(step) => outcomes.push((step.step, time)),
                Event::TimerFired(fired) => outcomes.push((fired.timer, time)),
                Event::RunCompleted(_) => end = Some((EndKind::Completed, time)),
                Event::RunFailed(_) => end = Some((EndKind::Failed, time)),
                Event::RunStarted(_)
                | Event::AttemptFailed(_)
                | Event::TimerSet(_)
                | Event::RunRecovered(_) => {}
            }
        }
        let ack = self.store.append(Append {
            run: self.run,
            epoch: self.epoch,
            first_seq,
            frames,
            end: end.map(|(kind, at)| RunEnd { kind, at }),
            // Whoever was told of a result relies on it; with it, all before it is synced.
            durability: match end {
                Some(_) => Durability::Synced,
                None => self.durability,
            },
        });
        Commit { ack, outcomes }
    }
}
