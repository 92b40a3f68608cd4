//! The driver while recorded outcomes are left: deliver, swallow, or say what does not fit.

use super::{Driver, Exit, Next, Stage};
use crate::engine::core::{Delivered, Phase};
use crate::engine::obstacle::Obstacle;
use crate::engine::warnings::Warning;
use crate::ids::{CallKind, StepId};
use crate::journal::{ChildStarted, End, Event, RunRecovered};
use crate::replay::{
    Asked, ChildMismatch, Delivery, Difference, Mismatch, Recorded, Verdict, compare_inputs, judge,
};
use crate::store::ParkReason;

impl Driver {
    /// Delivers the next recorded outcome, if the code waits for it.
    pub(super) fn replay_next(&mut self) -> Next {
        let Some(delivery) = self.recorded.pop_front() else {
            if let Some(exit) = self.uncalled_child(false) {
                return Next::Exit(exit);
            }
            self.recover();
            return Next::Again;
        };
        let delivery = match self.replay_letter(delivery) {
            Ok(next) => return next,
            Err(delivery) => delivery,
        };
        let Some(id) = delivery.id() else {
            return Next::Again;
        };
        let waiting = self.core.waiting(id);
        let dropped = waiting.is_none() && self.core.take_dropped(id);
        match judge(&delivery.what, waiting.as_ref(), dropped) {
            Verdict::Deliver => {}
            Verdict::DeliverReordered => self.warn(Warning::REORDERED_INPUT),
            Verdict::Swallow => return self.swallowed(),
            Verdict::OtherInput => match self.differences(&delivery) {
                Ok(()) => self.warn(Warning::OTHER_FIELDS),
                Err(exit) => return Next::Exit(exit),
            },
            Verdict::Diverged => {
                return Next::Exit(self.diverged(&delivery, false, Vec::new()));
            }
        }
        self.replayed += 1;
        if self.recorded.is_empty() {
            self.core.stop_repeating();
        }
        let delivered = match delivery.what {
            Recorded::Step(step) => {
                tracing::debug!(
                    run = %self.core.run(), step = %step.step, name = &*step.name,
                    attempts = step.attempts, replayed = true, "step replayed"
                );
                Delivered::Recorded(step.outcome)
            }
            _ => Delivered::Durable,
        };
        self.core.deliver(id, delivery.time, delivered);
        Next::Again
    }

    /// Delivers what came by letter; gives back what did not.
    fn replay_letter(&mut self, delivery: Delivery) -> Result<Next, Delivery> {
        let Delivery { seq, time, what } = delivery;
        if self.recorded.is_empty() && !matches!(what, Recorded::Step(_) | Recorded::Timer(_)) {
            self.core.stop_repeating();
        }
        match what {
            Recorded::Signal(signal) => self.receive(Event::SignalReceived(*signal), time),
            Recorded::Cancel(cancel) => self.receive(Event::CancelRequested(*cancel), time),
            Recorded::Child(child) if self.core.has_child(child.call) => {
                self.receive(Event::ChildFinished(*child), time);
            }
            Recorded::Child(child) => {
                let exit = match self.core.known_child(child.call) {
                    Some(started) => self.child_diverged(&started, false),
                    None => {
                        let what = Recorded::Child(child);
                        self.diverged(&Delivery { seq, time, what }, false, Vec::new())
                    }
                };
                return Ok(Next::Exit(exit));
            }
            Recorded::Step(_) | Recorded::Timer(_) => return Err(Delivery { seq, time, what }),
        }
        self.replayed += 1;
        Ok(Next::Again)
    }

    fn swallowed(&self) -> Next {
        if self.recorded.is_empty() {
            self.core.stop_repeating();
        }
        Next::Again
    }

    /// The journal is used up. After a crash, that is put on record before any body starts.
    fn recover(&mut self) {
        let in_flight: Vec<StepId> = self
            .core
            .all_waiting()
            .iter()
            .filter(|call| call.kind == CallKind::Step)
            .map(|call| call.id)
            .collect();
        if !self.after_crash || in_flight.is_empty() {
            self.go_live();
            return;
        }
        tracing::info!(
            run = %self.core.run(), workflow = &*self.core.identity().workflow_name,
            replayed = self.replayed, in_flight = in_flight.len(), "run recovered"
        );
        self.stage = Stage::Recovering;
        self.core.annotate(&Event::RunRecovered(RunRecovered {
            replayed: self.replayed,
            in_flight,
        }));
        self.write_outbox(None);
    }

    pub(super) fn go_live(&mut self) {
        self.stage = Stage::Live;
        self.core.set_phase(Phase::Live);
        self.write_outbox(None); // what was held back until now
    }

    /// Compares the recorded input of a call with what the code has now. `Ok` if only fields
    /// were added or removed.
    fn differences(&mut self, delivery: &Delivery) -> Result<(), Exit> {
        if let Some(id) = delivery.id() {
            self.core.ask_for_input(id);
        }
        self.core.signal.take_woken();
        if let Some(exit) = self.poll_workflow() {
            return Err(exit);
        }
        let payloads = &self.core.services.payloads;
        let now = self
            .core
            .take_input()
            .and_then(|now| payloads.value(&now).ok());
        let recorded = match &delivery.what {
            Recorded::Step(step) => step
                .input
                .as_ref()
                .and_then(|input| payloads.value(input).ok()),
            _ => None,
        };
        let found = match (recorded, now) {
            (Some(recorded), Some(now)) => compare_inputs(&recorded, &now),
            _ => Vec::new(),
        };
        if !found.is_empty() && found.iter().all(|difference| difference.is_one_sided()) {
            return Ok(());
        }
        Err(self.diverged(delivery, false, found))
    }

    pub(super) fn diverged(
        &mut self,
        delivery: &Delivery,
        returned: bool,
        differences: Vec<Difference>,
    ) -> Exit {
        let mismatch = Mismatch {
            recorded: delivery,
            asked: self.asked(returned),
            differences,
        };
        let detail = mismatch.detail();
        self.park(Obstacle::new(ParkReason::Diverged, mismatch.report()).detail(detail))
    }

    /// Parks the run if the journal knows a child that the code has not called by now.
    pub(super) fn uncalled_child(&mut self, returned: bool) -> Option<Exit> {
        if self.stage != Stage::Replaying || self.workflow_was_stopped() {
            return None;
        }
        let started = self.core.uncalled_child()?;
        Some(self.child_diverged(&started, returned))
    }

    /// The code was stopped from outside: what it did not call, it may have called later.
    fn workflow_was_stopped(&self) -> bool {
        matches!(self.end, Some(End::Cancelled(_)))
    }

    fn child_diverged(&self, started: &ChildStarted, returned: bool) -> Exit {
        let mismatch = ChildMismatch {
            recorded: started,
            asked: self.asked(returned),
            differences: &[],
        };
        self.park(Obstacle::new(ParkReason::Diverged, mismatch.report()))
    }

    fn asked(&self, returned: bool) -> Asked {
        Asked {
            calls: self.core.all_waiting(),
            signals: self.core.waiting_signals(),
            returned,
        }
    }
}
