//! The driver while recorded outcomes are left: deliver, swallow, or say what does not fit.

use super::{Driver, Exit, Next, Stage};
use crate::engine::core::{Delivered, Phase};
use crate::engine::obstacle::Obstacle;
use crate::engine::warnings::Warning;
use crate::ids::{CallKind, StepId};
use crate::journal::{Event, RunRecovered};
use crate::replay::{Delivery, Difference, Mismatch, Recorded, Verdict, compare_inputs, judge};
use crate::store::ParkReason;

impl Driver {
    /// Delivers the next recorded outcome, if the code waits for it.
    pub(super) fn replay_next(&mut self) -> Next {
        let Some(delivery) = self.recorded.pop_front() else {
            return self.replay_is_over();
        };
        let delivery = match self.replay_letter(delivery) {
            Ok(next) => return next,
            Err(delivery) => delivery,
        };
        let Some(id) = delivery.id() else {
            return Next::Again;
        };
        if let Recorded::Step(step) = &delivery.what {
            self.core.complete_undo(id, &step.outcome);
        }
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

    /// The journal is used up. Letters that wait go first: a body that begins now would be in the way of
    /// a request to cancel that came long ago.
    fn replay_is_over(&mut self) -> Next {
        if self.deliver_next() {
            return Next::Again;
        }
        if !self.commits.is_empty() {
            return Next::Wait;
        }
        match self.journal_mail() {
            Ok(true) => return Next::Again,
            Ok(false) => {}
            Err(exit) => return Next::Exit(exit),
        }
        if let Some(exit) = self.uncalled_child() {
            return Next::Exit(exit);
        }
        self.recover();
        Next::Again
    }

    /// The report of a child that the journal knows and the code has not called, if there is one.
    pub(super) fn uncalled_child(&mut self) -> Option<Exit> {
        let child = self.core.uncalled_child()?;
        let report = format!(
            "the journal says that {child} was started as a child, but the code does not call it any \
             more: bring the call back, or branch with `patched`"
        );
        Some(self.park(Obstacle::new(ParkReason::Diverged, report)))
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
            Recorded::Child(_) => {
                let delivery = Delivery { seq, time, what };
                return Ok(Next::Exit(self.diverged(&delivery, false, Vec::new())));
            }
            Recorded::Closing(_) => return Ok(self.unexpected_closing()),
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
        let waiting = self.core.all_waiting();
        let mismatch = Mismatch {
            recorded: delivery,
            waiting: &waiting,
            returned,
            differences,
        };
        let detail = mismatch.detail();
        self.park(Obstacle::new(ParkReason::Diverged, mismatch.report()).detail(detail))
    }
}
