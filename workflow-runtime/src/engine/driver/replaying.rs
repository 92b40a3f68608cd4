//! The driver while recorded outcomes are left: deliver, swallow, or say what does not fit.

use super::{Driver, Exit, Next, Stage};
use crate::engine::core::{Delivered, Intended, Phase};
use crate::engine::obstacle::Obstacle;
use crate::engine::warnings::Warning;
use crate::ids::{CallKind, StepId};
use crate::journal::{ChildStarted, End, Event, RunRecovered};
use crate::payload::Place;
use crate::replay::{
    Asked, ChildMismatch, Delivery, Difference, Mismatch, Recorded, Told, Verdict, judge,
    tell_apart,
};
use crate::store::ParkReason;

impl Driver {
    /// Delivers the next recorded outcome, if the code waits for it.
    pub(super) fn replay_next(&mut self) -> Next {
        let next = if self.is_tolerant() {
            self.deliver_waiting()
        } else {
            let delivery = self.recorded.pop_front();
            delivery.map(|delivery| self.replay(delivery))
        };
        next.unwrap_or_else(|| self.used_up())
    }

    /// Nothing recorded is left that could be delivered: the run goes live, if all fits.
    pub(super) fn used_up(&mut self) -> Next {
        if let Some(exit) = self.uncalled_child(false) {
            return Next::Exit(exit);
        }
        if let Err(exit) = self.check_intents(false) {
            return Next::Exit(exit);
        }
        #[cfg(feature = "testing")]
        if let Some(exit) = self.verified() {
            return Next::Exit(exit);
        }
        match self.recover() {
            Ok(()) => Next::Again,
            Err(exit) => Next::Exit(exit),
        }
    }

    /// Delivers a recorded outcome, or says why it cannot be.
    pub(super) fn replay(&mut self, delivery: Delivery) -> Next {
        let is_last = self.recorded.is_empty();
        let expected = self.core.deliver_expected(&delivery, is_last);
        if let Some(woken) = expected {
            self.replayed += 1;
            self.tell_replayed(&delivery);
            self.wake(Some(woken));
            return Next::Again;
        }
        self.core.pass(delivery.seq);
        let delivery = match self.replay_letter(delivery) {
            Ok(next) => return next,
            Err(delivery) => delivery,
        };
        let Some(id) = delivery.id() else {
            return Next::Again;
        };
        if let Recorded::Step(step) = &delivery.what {
            self.core.complete_recorded_undo(step);
        }
        let waiting = self.core.waiting(id);
        let dropped = waiting.is_none() && self.core.take_dropped(id);
        match judge(&delivery.what, waiting.as_ref(), dropped) {
            Verdict::Deliver => {}
            Verdict::DeliverReordered => self.warn(Warning::REORDERED_INPUT),
            Verdict::Swallow => {
                self.core.keyed_recorded(&delivery);
                return self.swallowed();
            }
            Verdict::OtherInput => {
                if let Err(exit) = self.differences(&delivery) {
                    return Next::Exit(exit);
                }
            }
            Verdict::Diverged => {
                return Next::Exit(self.diverged(&delivery, false, Vec::new()));
            }
        }
        if let Some(next) = self.judge_age(&delivery, waiting.as_ref()) {
            return next;
        }
        self.core.keyed_recorded(&delivery);
        self.replayed += 1;
        if self.recorded.is_empty() {
            self.core.stop_repeating();
        }
        self.tell_replayed(&delivery);
        let delivered = match delivery.what {
            Recorded::Step(step) => Delivered::Recorded(step.outcome()),
            _ => Delivered::Durable,
        };
        let woken = self.core.deliver(id, delivery.time, delivered);
        self.wake(woken);
        Next::Again
    }

    fn tell_replayed(&self, delivery: &Delivery) {
        if let Recorded::Step(step) = &delivery.what
            && tracing::enabled!(tracing::Level::DEBUG)
        {
            let step = step.whole();
            tracing::debug!(
                run = %self.core.run(), step = %step.step, name = &*step.name,
                attempts = step.attempts, replayed = true, "step replayed"
            );
        }
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
            Recorded::Closing(_) => return Ok(self.unexpected_closing()),
            Recorded::Step(_) | Recorded::Timer(_) | Recorded::Intent(_) => {
                return Err(Delivery { seq, time, what });
            }
        }
        self.replayed += 1;
        Ok(Next::Again)
    }

    pub(super) fn swallowed(&self) -> Next {
        if self.recorded.is_empty() {
            self.core.stop_repeating();
        }
        Next::Again
    }

    /// The journal is used up. What was too old in it, letters that waited, and after a crash that there was
    /// one, are put on record before any body starts: a run that is to be cancelled begins none.
    fn recover(&mut self) -> Result<(), Exit> {
        let discarded = self.record_discarded();
        let in_flight: Vec<StepId> = self
            .core
            .all_waiting()
            .iter()
            .filter(|call| call.kind == CallKind::Step)
            .map(|call| call.id)
            .collect();
        let crashed = self.after_crash && !in_flight.is_empty();
        if crashed {
            tracing::info!(
                run = %self.core.run(), workflow = &*self.core.identity().workflow_name,
                replayed = self.replayed, in_flight = in_flight.len(), "run recovered"
            );
            self.core.annotate(&Event::RunRecovered(RunRecovered {
                replayed: self.replayed,
                in_flight,
            }));
        }
        let mail = self.mailbox.has_letters();
        if crashed || discarded || mail {
            self.stage = Stage::Recovering;
            if !self.journal_mail()? {
                self.write_outbox(None);
            }
        } else {
            self.go_live();
        }
        Ok(())
    }

    /// Compares steps that were about to run, or ran and are to run again, with what the code asks for, and tells their
    /// calls. One that was about to run and that the code no longer asks for has diverged like a recorded outcome
    /// would; one whose outcome counts no more may be asked for later, and is compared then.
    pub(super) fn check_intents(&mut self, returned: bool) -> Result<(), Exit> {
        let mut intents: Vec<Delivery> = self.intents.drain().map(|(_, intent)| intent).collect();
        intents.sort_by_key(|intent| intent.seq);
        for intent in intents {
            let Some(id) = intent.id() else {
                continue;
            };
            let waiting = self.core.waiting(id);
            let dropped = waiting.is_none() && self.core.take_dropped(id);
            match judge(&intent.what, waiting.as_ref(), dropped) {
                Verdict::Deliver => {}
                Verdict::DeliverReordered => self.warn(Warning::REORDERED_INPUT),
                Verdict::Swallow => continue,
                Verdict::OtherInput => self.differences(&intent)?,
                Verdict::Diverged if waiting.is_none() && !intent.is_open() => {
                    self.core.expect_again(id, intent);
                    continue;
                }
                Verdict::Diverged => return Err(self.diverged(&intent, returned, Vec::new())),
            }
            if let Recorded::Intent(recorded) = &intent.what {
                let (attempt, at) = (recorded.attempt, intent.time);
                self.core.set_intended(id, Intended { attempt, at });
            }
        }
        Ok(())
    }

    pub(super) fn go_live(&mut self) {
        self.stage = Stage::Live;
        self.report_left(false);
        self.core.stop_repeating();
        self.core.set_phase(Phase::Live);
        self.write_outbox(None); // what was held back until now
    }

    /// Compares the recorded input of a call with what the code has now. `Ok` if only fields
    /// were added or removed, which is warned of.
    fn differences(&mut self, delivery: &Delivery) -> Result<(), Exit> {
        if let Some(id) = delivery.id() {
            self.core.ask_for_input(id);
        }
        self.take_woken();
        if let Some(exit) = self.poll_workflow() {
            return Err(exit);
        }
        let place = delivery.id().map_or(Place::NOWHERE, Place::step_input);
        let payloads = self.core.services.payloads.at(place);
        let now = self
            .core
            .take_input()
            .and_then(|now| payloads.value(&now).ok());
        let recorded = delivery.what.kept_input();
        let recorded = recorded.and_then(|input| payloads.value(&input).ok());
        let found = match tell_apart(recorded.as_ref(), now.as_ref()) {
            Told::Redacted => return Ok(()),
            Told::OtherFields => {
                self.warn(Warning::OTHER_FIELDS);
                return Ok(());
            }
            Told::Apart(found) => found,
        };
        self.write_outbox(None); // bodies may run beside a tolerant replay
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
