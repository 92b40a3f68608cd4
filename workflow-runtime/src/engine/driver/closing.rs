//! The end of a run that does not complete: what was done is undone, then the end is written.
//!
//! Owns the way from a failed, aborted or cancelled workflow to its terminal record: bodies in flight
//! get their grace, a closing record says why and what is to be undone, the undo calls run one after
//! the other as journaled steps. A resumed run goes the same way: it replays the workflow to where it
//! ended, and the undo calls after it. A failing undo is reported, and the rest still run.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Driver, Exit, Next, Stage};
use crate::call::outcome::panic_message;
use crate::context::{Ambient, Scope, ScopeElement, enter};
use crate::engine::core::undo::Undo;
use crate::engine::core::{Phase, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::owed::{self, OwedSteps, Unread};
use crate::engine::timers::Deadline;
use crate::engine::warnings::Warning;
use crate::journal::{CancelRequested, Closing, End, Event, Outcome, RunCancelled};
use crate::replay::Delivery;
use crate::store::{BoxFuture, ParkReason};

/// A run on its way to an end that is not completion.
pub(super) struct Ending {
    /// How it ends.
    cause: End,
    /// What is to be undone, in order.
    left: VecDeque<Undo>,
    /// What is being undone.
    undoing: Option<Cow<'static, str>>,
    /// The record that has what earlier passes did: that comes after `left`.
    owed: Option<u64>,
    reading: Option<BoxFuture<'static, Result<OwedSteps, Unread>>>,
}

/// A run that was cancelled while bodies ran.
pub(super) struct WindingDown {
    cause: End,
    until: Deadline,
}

impl Driver {
    /// Stops the workflow where it waits; bodies in flight may finish within their grace.
    pub(super) fn cancel(&mut self, cancel: CancelRequested) {
        let too_late = self.end.is_some() || self.ending.is_some() || self.winding_down.is_some();
        if too_late || self.stage == Stage::Ending {
            return;
        }
        let cause = End::Cancelled(RunCancelled {
            reason: cancel.reason,
            terminated: false,
        });
        self.wind_up(cause, "its parent was cancelled");
    }

    /// Ends the run from within, where its code still waits: it was aborted, or a call can give it no
    /// value.
    pub(super) fn give_up(&mut self, cause: End) {
        if self.ending.is_some() {
            self.drop_workflow(); // that was an undo call
            self.end = Some(cause);
        } else if self.winding_down.is_none() {
            self.wind_up(cause, "its parent gave up");
        }
    }

    fn wind_up(&mut self, cause: End, to_children: &str) {
        self.core.cancel_children(to_children);
        if self.core.bodies() == 0 {
            self.stop_workflow(cause);
            return;
        }
        self.core.set_phase(Phase::Winding);
        let services = &self.core.services;
        let at = services.clock.now().after(services.config.cancel_grace);
        let until = services.timers.wake_at(at, self.core.waker().clone());
        self.winding_down = Some(Box::new(WindingDown { cause, until }));
    }

    fn stop_workflow(&mut self, cause: End) {
        self.drop_workflow();
        self.write_outbox(None);
        self.end = Some(cause);
    }

    /// Waits for bodies in flight, as long as their grace lasts.
    pub(super) fn wind_down(&mut self) -> Next {
        let Some(winding) = self.winding_down.take_if(|winding| {
            // A blocking body cannot be stopped: what it gives is worth waiting for.
            let late = winding.until.is_over() && self.core.blocking() == 0;
            self.core.bodies() == 0 || late
        }) else {
            if let Some(winding) = &self.winding_down
                && !winding.until.is_over()
            {
                winding.until.rearm(self.core.waker());
            }
            return Next::Wait;
        };
        self.stop_workflow(winding.cause);
        Next::Again
    }

    /// Says whether the end that was reached asks for undoing first.
    pub(super) fn must_undo(&self) -> bool {
        let undoes = match &self.end {
            Some(End::Failed(_)) => true,
            Some(End::Aborted(aborted)) => !aborted.kept,
            Some(End::Cancelled(cancelled)) => !cancelled.terminated,
            Some(End::Completed(_) | End::Continued(_)) | None => false,
        };
        undoes && self.ending.is_none() && self.core.has_undo()
    }

    /// Says whether a run that does not complete has to wait for a body that cannot be stopped: its
    /// effect is still to come.
    pub(super) fn must_wait(&self) -> bool {
        let completed = matches!(self.end, Some(End::Completed(_)));
        !completed && self.ending.is_none() && self.core.blocking() > 0
    }

    /// Begins to undo, with a record that says so.
    pub(super) fn begin_undo(&mut self) -> Next {
        let cause = self.end.take().expect("only an end is undone");
        let left = self.core.take_undo();
        self.core.annotate(&Event::RunClosing(Closing {
            cause: cause.clone(),
            undo: Undo::described(&left.0),
        }));
        self.core.set_phase(Phase::Winding); // no body starts before the record is durable
        self.stage = Stage::Recovering;
        self.write_outbox(None);
        self.enter_undo(cause, left);
        Next::Again
    }

    /// Takes up undoing that an earlier process began.
    pub(super) fn resume_undo(&mut self, closing: Closing, delivery: &Delivery) -> Next {
        let same = match (&self.end, &closing.cause) {
            (Some(now), recorded) => {
                std::mem::discriminant(now) == std::mem::discriminant(recorded)
            }
            (None, _) => false,
        };
        if !same || !self.core.has_undo() {
            return Next::Exit(self.diverged(delivery, true, Vec::new()));
        }
        let left = self.core.take_undo();
        let recorded = closing.undo.iter().map(|undo| undo.step);
        if !recorded.eq(left.0.iter().map(|undo| undo.step)) {
            drop(left);
            return self.other_undo();
        }
        self.end = None;
        self.enter_undo(closing.cause, left);
        Next::Again
    }

    fn enter_undo(&mut self, cause: End, (left, owed): (Vec<Undo>, Option<u64>)) {
        let scope = Scope::child(self.root(), ScopeElement::Named("undo"));
        self.ambient = Ambient::Workflow(scope);
        self.ending = Some(Box::new(Ending {
            cause,
            left: left.into(),
            undoing: None,
            owed,
            reading: None,
        }));
        self.next_undo();
    }

    /// Begins the next undo call, or ends.
    fn next_undo(&mut self) {
        let Some(ending) = &mut self.ending else {
            return;
        };
        let Some(undo) = ending.left.pop_front() else {
            match ending.owed.take() {
                Some(seq) => {
                    let (services, run) = (self.core.services.clone(), self.core.run());
                    ending.reading = Some(Box::pin(owed::read(services, run, seq)));
                }
                None => self.end = Some(ending.cause.clone()),
            }
            return;
        };
        let name = undo.name.clone();
        ending.undoing = Some(name.clone());
        let core = self.core.clone();
        let root: Arc<Scope> = self.root().clone();
        // The user's `Deserialize` runs in here.
        let begun = catch_unwind(AssertUnwindSafe(|| {
            let _entered = enter(Ambient::Workflow(root));
            undo.begin(&core.services.payloads)
        }));
        match begun {
            Ok(Ok(call)) => {
                self.workflow = Some(Box::pin(async move {
                    match call.await {
                        Ok(()) => End::Completed(bytes::Bytes::new()),
                        Err(_) => End::Failed(Outcome::Broken(bytes::Bytes::new())),
                    }
                }));
                self.started = false; // it has to be polled
            }
            // The code has changed since: what it did is still there, so a person has to help.
            Ok(Err(problem)) => {
                let what = format!("what step `{name}` was given and gave, to undo it");
                let obstacle = Obstacle::unreadable(&what, &problem);
                core.trouble(Trouble::Park(obstacle));
                self.started = false; // so that the trouble is seen
            }
            Err(panic) => {
                let obstacle = Obstacle::panicked(panic_message(panic.as_ref()));
                core.trouble(Trouble::Park(obstacle));
                self.started = false;
            }
        }
    }

    /// One undo call has ended.
    pub(super) fn undone(&mut self) -> bool {
        let Some(ending) = &mut self.ending else {
            return false;
        };
        let Some(name) = ending.undoing.take() else {
            return false; // that was the last one
        };
        if !matches!(self.end.take(), Some(End::Completed(_))) {
            self.warn(Warning::undo_failed(&name));
        }
        self.next_undo();
        true
    }

    /// Says whether what is to be undone next is still being read.
    pub(super) fn reads_owed(&self) -> bool {
        let ending = self.ending.as_ref();
        ending.is_some_and(|ending| ending.reading.is_some())
    }

    /// Takes what was read of earlier passes, and begins to undo it.
    pub(super) fn collect_owed(&mut self, cx: &mut Context<'_>) -> Result<(), Exit> {
        while let Some(ending) = &mut self.ending
            && let Some(reading) = &mut ending.reading
        {
            cold_path();
            let Poll::Ready(read) = reading.as_mut().poll(cx) else {
                return Ok(());
            };
            ending.reading = None;
            match read {
                Ok(steps) => {
                    ending.left.extend(steps.undo);
                    ending.owed = steps.before;
                    self.next_undo();
                }
                Err(Unread::Store(error)) => return Err(Exit::StoreFailed(error)),
                Err(Unread::Park(obstacle)) => return Err(self.park(obstacle)),
            }
        }
        Ok(())
    }

    /// The report of a closing record that names other steps than the code has called.
    fn other_undo(&mut self) -> Next {
        let report = "undoing began, but the code now comes to other steps to be undone than the \
                      journal names: bring the old code back, then `engine.resume(run)`";
        Next::Exit(self.park(Obstacle::new(ParkReason::Diverged, report.to_owned())))
    }

    /// The report of a closing record that the code does not come to.
    pub(super) fn unexpected_closing(&mut self) -> Next {
        let report = "the journal says that the run failed, was aborted or cancelled here, but the \
                      code goes on: bring the old code back, or branch with `patched`";
        Next::Exit(self.park(Obstacle::new(ParkReason::Diverged, report.to_owned())))
    }
}
