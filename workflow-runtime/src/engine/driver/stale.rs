//! The driver where a recorded outcome may be too old to be relied on.
//!
//! Owns when an outcome's age is judged: once per process, for outcomes of earlier
//! processes, and only at the frontier, where nothing that was made of the outcome is on record.
//! What was made of it cannot be unmade: then the outcome counts, however old it is.

use super::{Driver, Next};
use crate::journal::{End, Event, RunAborted, StaleOutcomeDiscarded};
use crate::replay::{Delivery, OnStale, Recorded, WaitingCall};

/// How the reason of a run ends that was aborted because an outcome was too old.
const STALE: &str = " that it stays fresh for";

/// How such a reason begins.
fn of_step(name: &str) -> String {
    format!("step `{name}` at ")
}

/// Says whether a run was aborted for this reason because an outcome of this step was too old: a record has no other word of
/// it.
#[cfg(feature = "testing")]
pub(super) fn is_stale(reason: &str, step: &str) -> bool {
    reason.starts_with(&of_step(step)) && reason.ends_with(STALE)
}

/// What a driver knows of outcomes that are too old.
#[derive(Default)]
pub(super) struct Staleness {
    /// What is discarded, to be put on record when the journal is used up.
    discarded: Vec<StaleOutcomeDiscarded>,
}

impl Driver {
    /// Judges the age of an outcome that is about to be delivered. `Some` if it is not to be.
    pub(super) fn judge_age(
        &mut self,
        delivery: &Delivery,
        waiting: Option<&WaitingCall>,
    ) -> Option<Next> {
        let call = waiting?;
        let fresh_for = call.fresh_for?;
        let Recorded::Step(step) = &delivery.what else {
            return None;
        };
        #[cfg(feature = "testing")]
        if let Some(verifying) = &self.verifying {
            let reason = verifying.aborted_as_stale(call.name)?;
            let ends_here = fresh_for.on_stale == OnStale::Abort && self.is_frontier();
            return ends_here.then(|| {
                self.abort(reason, false);
                Next::Again
            });
        }
        let (run, id) = (self.core.run(), step.id());
        let recovery = &self.core.services.recovery;
        let of_earlier_process = delivery.time < recovery.opened_at();
        if !of_earlier_process || recovery.is_fresh(run, id) || !self.is_frontier() {
            return None;
        }
        let Some(age) = fresh_for.too_old(delivery.time, self.core.services.clock.now()) else {
            recovery.found_fresh(run, id);
            return None;
        };
        tracing::info!(%run, step = %id, name = call.name, ?age, "a recorded outcome is stale");
        match fresh_for.on_stale {
            OnStale::Rerun => {
                self.staleness.discarded.push(StaleOutcomeDiscarded {
                    step: id,
                    name: call.name.into(),
                    discarded: delivery.seq,
                });
                self.core.discard(id);
                Some(self.swallowed())
            }
            OnStale::Abort => {
                let reason = format!(
                    "{}{}: its outcome is older than the {:?}{STALE}",
                    of_step(call.name),
                    call.site,
                    fresh_for.limit
                );
                self.abort(reason.into(), false);
                Some(Next::Again)
            }
        }
    }

    /// Says whether all that is left in the journal was asked for before the outcome at hand: then no
    /// call that was made after it has a record.
    fn is_frontier(&self) -> bool {
        let left = self.recorded.iter().filter_map(Delivery::id);
        self.core
            .knows_all(left.chain(self.intents.keys().copied()))
    }

    /// Puts what was discarded on record. `false` if nothing was.
    pub(super) fn record_discarded(&mut self) -> bool {
        let discarded = std::mem::take(&mut self.staleness.discarded);
        let any = !discarded.is_empty();
        for stale in discarded {
            self.core.annotate(&Event::StaleOutcomeDiscarded(stale));
        }
        any
    }

    /// Ends the run with a reason.
    fn abort(&mut self, reason: Box<str>, kept: bool) {
        self.drop_workflow();
        self.end = Some(End::Aborted(RunAborted { reason, kept }));
    }
}
