//! The attempts of a call: begun, polled, judged, handed in.
//!
//! Owns the way from a call that may run to its outcome in the run's outbox, and the waits in between. What may begin is
//! asked in `begin`, what an ended attempt means is judged in `outcome`. It never gives a value to the workflow.

use std::hint::cold_path;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::begin::{Begun, Outset};
use super::keyed::Consulted;
use super::outcome::{AttemptEnd, Settled, panic_message, settle};
use super::running::Over;
use super::step::{Doing, Stage, StepCall};
use crate::clock::Timestamp;
use crate::context::Scope;
use crate::digest::InputDigest;
use crate::engine::core::{Began, RunCore, Trouble};
use crate::engine::outbox::Pushed;
use crate::engine::signal::CallWaker;
use crate::ids::StepId;
use crate::journal::{Companion, Draft, Outcome};
use crate::payload::Place;

impl<'step, R> StepCall<'step, R> {
    /// Begins, polls and ends attempts as far as they go now; the first one, if the run has begun it, from there on.
    pub(super) fn advance(
        &mut self,
        scope: &Arc<Scope>,
        id: StepId,
        called_at: Timestamp,
        mut begun: Option<Began>,
        cx: &mut Context<'_>,
    ) {
        loop {
            let Stage::Waiting {
                digest,
                failed,
                doing,
            } = &mut self.stage
            else {
                return;
            };
            let (digest, attempt) = (*digest, *failed + 1);
            let made = |began_at| Made {
                scope,
                id,
                called_at,
                digest,
                attempt,
                began_at,
            };
            match doing {
                Doing::HandedIn(_) => return,
                Doing::BackingOff(deadline, waker) if !deadline.is_over() => {
                    cold_path();
                    waker.follow(cx.waker());
                    deadline.rearm(&Waker::from(waker.clone()));
                    return;
                }
                Doing::BackingOff(..) => *doing = Doing::Nothing,
                Doing::Nothing | Doing::Ready(_) => {
                    let made = made(called_at);
                    let from = match std::mem::replace(doing, Doing::Nothing) {
                        Doing::Ready(running) => Outset::Ready(*running),
                        _ => begun.take().map_or(Outset::Nothing, Outset::Begun),
                    };
                    if self.start(made, from, cx).is_break() {
                        return;
                    }
                }
                Doing::Running(running) => {
                    let Poll::Ready(end) = running.poll(cx) else {
                        return;
                    };
                    let made = made(running.began_at);
                    let pushed = running.take_pushed();
                    let over = match std::mem::replace(doing, Doing::Nothing) {
                        Doing::Running(running) => Some(running.over()),
                        _ => None,
                    };
                    self.end(&made, end, pushed, over, cx);
                }
            }
        }
    }

    /// Starts an attempt, or the one that was ready, as far as it goes now. Breaks if there is something to wait for.
    fn start(
        &mut self,
        mut made: Made<'_>,
        from: Outset<'step, R>,
        cx: &mut Context<'_>,
    ) -> ControlFlow<()> {
        let is_new = !matches!(from, Outset::Ready(_));
        let (core, id) = (made.scope.core(), made.id);
        if is_new {
            match self.consult(&made, cx) {
                Consulted::Run => {}
                Consulted::Wait => return ControlFlow::Break(()),
                Consulted::Answer(answer) => {
                    cold_path();
                    made.attempt -= 1; // none was made for it
                    self.take_answer(&made, answer);
                    return ControlFlow::Break(());
                }
            }
        }
        match self.begin(&mut made, from, cx) {
            Begun::Running(mut running) => {
                let polled = match is_new {
                    true => running.begin(),
                    false => running.poll(cx),
                };
                // Most bodies that do not wait are over with their first poll: they are kept nowhere.
                let Poll::Ready(end) = polled else {
                    core.watch_body(id, running.waker.call());
                    self.set_doing(Doing::Running(Box::new(running)));
                    return ControlFlow::Break(());
                };
                made.began_at = running.began_at;
                let pushed = running.take_pushed();
                self.end(&made, end, pushed, Some(running.over()), cx);
            }
            Begun::Ready(running) => {
                core.watch_body(id, running.waker.call());
                self.set_doing(Doing::Ready(Box::new(running)));
                return ControlFlow::Break(());
            }
            Begun::Interrupted => {
                cold_path();
                self.end(&made, AttemptEnd::Interrupted, Vec::new(), None, cx);
            }
            Begun::Not => {
                self.let_go_key();
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    pub(super) fn set_doing(&mut self, now: Doing<'step, R>) {
        if let Stage::Waiting { doing, .. } = &mut self.stage {
            *doing = now;
        }
    }

    /// Judges an attempt that has ended: hands the outcome in, or backs off.
    fn end(
        &mut self,
        made: &Made<'_>,
        end: AttemptEnd<R>,
        pushed: Vec<Pushed>,
        over: Option<Over>,
        cx: &Context<'_>,
    ) {
        let core = made.scope.core();
        let policy = self.policy().over(&core.services.config);
        let name = self.definition.name;
        // The user's own `Serialize`, `Deserialize` and `retry_if` run in here. If they panic, the
        // effect has happened all the same, and trying again would panic again.
        let judged = catch_unwind(AssertUnwindSafe(|| {
            settle(&self.returns, policy, name, made, end, &core.services)
        }));
        let settled = judged.unwrap_or_else(|panic| {
            cold_path();
            let end = AttemptEnd::Panicked {
                message: panic_message(panic.as_ref()),
                misuse: true,
            };
            settle(&self.returns, policy, name, made, end, &core.services)
        });
        let (run, step) = (core.run(), made.id);
        let now = match settled {
            Settled::Retry { event, at } => {
                cold_path();
                tracing::warn!(
                    %run, %step, name, attempt = made.attempt, next_at = %at, "attempt failed"
                );
                core.note(Draft::of(&event).durable(self.durability()));
                back_off(core, step, at, cx.waker())
            }
            Settled::Done {
                mut outcome,
                mut decoded,
            } => {
                let companion = self.settle_key(made, &mut outcome, &mut decoded);
                let (ok, attempt) = (outcome.is_success(), made.attempt);
                if matches!(outcome, Outcome::Interrupted(_)) {
                    cold_path();
                    tracing::warn!(%run, %step, name, attempt, "step interrupted");
                } else {
                    tracing::debug!(
                        %run, %step, name, attempt, ok, replayed = false, "step executed"
                    );
                }
                // What failed has sent nothing.
                let pushed = if ok { pushed } else { Vec::new() };
                self.hand_in(made, &outcome, companion, pushed, over);
                Doing::HandedIn(decoded)
            }
            Settled::Park(obstacle) => {
                cold_path();
                core.trouble(Trouble::Park(obstacle));
                Doing::Nothing
            }
        };
        if let Stage::Waiting { failed, doing, .. } = &mut self.stage {
            *failed = made.attempt;
            *doing = now;
        }
    }

    /// Hands the call's outcome in, with what is to be written beside it.
    pub(super) fn hand_in(
        &self,
        made: &Made<'_>,
        outcome: &Outcome,
        companion: Option<Box<dyn Companion>>,
        pushed: Vec<Pushed>,
        over: Option<Over>,
    ) {
        let core = made.scope.core();
        if self.definition.undo.is_some() {
            core.complete_undo(made.id, outcome);
        }
        let limit = core.services.config.kept_input_limit;
        let payloads = core.services.payloads.at(Place::step_input(made.id));
        let mut draft = None;
        self.body.show_input(&payloads, limit, &mut |input| {
            draft = Some(made.completed(self.definition.name, self.site, input, outcome));
        });
        let draft = draft.expect("the input is shown once, or that there is none");
        let draft = draft
            .durable(self.durability())
            .with(companion)
            .with_messages(pushed);
        match over {
            Some(over) => core.hand_in_and_end(made.id, draft, over.into_waker()),
            None => core.hand_in(made.id, draft),
        }
    }
}

/// What is known of an attempt when it ends.
pub(super) struct Made<'a> {
    pub(super) scope: &'a Scope,
    pub(super) id: StepId,
    pub(super) called_at: Timestamp,
    pub(super) digest: InputDigest,
    pub(super) attempt: u32,
    pub(super) began_at: Timestamp,
}

pub(super) fn back_off<'step, R>(
    core: &RunCore,
    id: StepId,
    until: Timestamp,
    waker: &Waker,
) -> Doing<'step, R> {
    core.set_due(id, until);
    let waker = CallWaker::new(waker);
    let deadline = core
        .services
        .timers
        .wake_at(until, Waker::from(waker.clone()));
    Doing::BackingOff(deadline, waker)
}
