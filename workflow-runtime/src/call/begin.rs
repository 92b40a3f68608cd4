//! How an attempt begins: what is made ready, what must be durable first, when the body starts.
//!
//! Owns the order: resources first (a run that lacks one is parked with nothing announced), then the
//! step's intent where it asks for one, then the sync of what was only buffered, then the body. It
//! never polls a body and never judges one.

use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::Context;

use super::Announced;
use super::advance::Made;
use super::attempt::Attempt;
use super::running::{BodyFuture, Counted, Running};
use super::step::StepCall;
use crate::audit::called;
use crate::context::{StepContext, StepHome};
use crate::engine::core::{Asks, Began, BeganBody, Clearance, RunCore, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::outbox::Pushing;
use crate::engine::resources::MissingResource;
use crate::engine::signal::BodyWaker;
use crate::journal::{Draft, Source, StepIntentParts};
use crate::payload::Place;
use crate::store::{Durability, ParkReason};

/// Where an attempt goes on.
pub(super) enum Outset<'step, R> {
    /// At its beginning.
    Nothing,
    /// The run has begun it.
    Begun(Began),
    /// Its body was ready to start.
    Ready(Running<'step, R>),
}

/// How far an attempt has come.
pub(super) enum Begun<'step, R> {
    /// Its body runs.
    Running(Running<'step, R>),
    /// Its body is ready; the call is woken when it may start.
    Ready(Running<'step, R>),
    /// An earlier process was about to run it, and it is not to be run again.
    Interrupted,
    /// The run may not begin any.
    Not,
}

impl<'step, R> StepCall<'step, R> {
    /// What the step's records must survive; `None` is what the engine says.
    pub(super) fn durability(&self) -> Option<Durability> {
        match self.definition.announced {
            // Lost with the power, it would be run again.
            Announced::AtMostOnce => Some(Durability::Synced),
            Announced::Intent | Announced::No => self.definition.durability,
        }
    }

    /// Refuses an option for further attempts where there is only one.
    #[track_caller]
    pub(super) fn refuse_repetition(&self, option: &str) {
        assert!(
            self.definition.announced != Announced::AtMostOnce,
            "step `{}` at {} is given `.{option}()`, but it is `at_most_once`: it has one attempt, \
             and is not tried again; remove `.{option}()`, or `at_most_once`",
            self.definition.name,
            self.site
        );
    }

    /// What its body asks for before it starts.
    fn asks(&self, core: &RunCore) -> Asks {
        let durability = self.durability();
        let durability = durability.unwrap_or(core.services.config.durability);
        Asks {
            announced: self.definition.announced != Announced::No,
            synced: durability == Durability::Synced,
        }
    }

    /// The same, if an earlier process cannot have announced it: nothing is to be asked then before its first attempt begins.
    pub(super) fn asks_only(&self, core: &RunCore) -> Option<Asks> {
        (self.definition.announced == Announced::No).then(|| self.asks(core))
    }

    /// Begins an attempt as far as it may, from the start or from where it waited.
    pub(super) fn begin(
        &self,
        made: &mut Made<'_>,
        from: Outset<'step, R>,
        cx: &Context<'_>,
    ) -> Begun<'step, R> {
        let core = made.scope.core();
        if self.definition.announced == Announced::AtMostOnce
            && let Some(intended) = core.intended(made.id)
        {
            cold_path();
            (made.attempt, made.began_at) = (intended.attempt, intended.at);
            return Begun::Interrupted;
        }
        let asks = self.asks(core);
        let ready = match from {
            Outset::Ready(running) => Some((running, BeganBody::ToBeCleared)),
            Outset::Begun(began) => self.make_ready(made, began, cx),
            Outset::Nothing => {
                self.make_ready(made, core.begin_body(made.id, asks, cx.waker()), cx)
            }
        };
        let Some((mut running, began)) = ready else {
            return Begun::Not;
        };
        let clearance = match began {
            BeganBody::Cleared => Clearance::Start,
            _ => core.clear(made.id, asks),
        };
        match clearance {
            Clearance::Start => {
                running.began_at = core.services.clock.now();
                running.deadline = self.policy().timeout.map(|limit| {
                    let waker = running.waker.waker().clone();
                    let timers = &core.services.timers;
                    timers.wake_at(running.began_at.after(limit), waker)
                });
                Begun::Running(running)
            }
            Clearance::Announce => {
                core.announce(made.id, self.intent(made));
                Begun::Ready(running)
            }
            Clearance::Wait => Begun::Ready(running),
            Clearance::Refused => Begun::Not,
        }
    }

    /// The record that the body is about to start.
    fn intent(&self, made: &Made<'_>) -> Draft {
        let services = &made.scope.core().services;
        let limit = services.config.kept_input_limit;
        let payloads = services.payloads.at(Place::step_input(made.id));
        let input = self.body.encode_input(&payloads, limit);
        let draft = Draft::step_intent(&StepIntentParts {
            step: made.id,
            name: self.definition.name,
            scope: made.scope.path(),
            source: Source(self.site),
            input_digest: made.digest,
            input: input.as_ref(),
            attempt: made.attempt,
        });
        draft.durable(self.durability())
    }

    /// Makes a body ready to start, unless the run may not begin any.
    fn make_ready(
        &self,
        made: &Made<'_>,
        (began, waker): Began,
        cx: &Context<'_>,
    ) -> Option<(Running<'step, R>, BeganBody)> {
        let (core, id) = (made.scope.core(), made.id);
        if began == BeganBody::No {
            return None;
        }
        let waker = waker.unwrap_or_else(|| BodyWaker::new(cx.waker(), &core.signal));
        called::remember(self.definition, &core.identity().workflow_name);
        let context = self.context(core, made);
        let counted = Counted::new(Attempt::new(context));
        let future = match self.body_of(made, &counted.attempt) {
            Ok(future) => future,
            Err(obstacle) => {
                cold_path();
                core.trouble(Trouble::Park(obstacle));
                return None;
            }
        };
        let running = Running {
            future,
            #[cfg(feature = "testing")]
            delay: crate::testing::Delay::of(core.services.config.shuffle, id, made.attempt),
            waker,
            deadline: None,
            timed_out: false,
            began_at: made.began_at,
            span: tracing::info_span!(
                "step", run = %core.run(), step = %id, name = self.definition.name,
                attempt = made.attempt
            ),
            counted,
        };
        Some((running, began))
    }

    /// The future of an attempt: the step's body, or what a test has put in its place.
    #[cfg_attr(
        not(feature = "testing"),
        expect(unused_variables, reason = "only tests ask")
    )]
    fn body_of(
        &self,
        made: &Made<'_>,
        attempt: &Attempt,
    ) -> Result<BodyFuture<'step, R>, Obstacle> {
        #[cfg(feature = "testing")]
        if let Some(future) = self.stand_in(made, attempt) {
            return future;
        }
        self.body
            .attempt(attempt)
            .map_err(|missing| self.lacks(&missing))
    }

    /// Why the run cannot go on without a resource.
    pub(super) fn lacks(&self, missing: &MissingResource) -> Obstacle {
        let StepCall {
            definition, site, ..
        } = self;
        let report = format!("step `{}` at {site}: {missing}", definition.name);
        Obstacle::new(ParkReason::MissingResource, report)
    }

    fn context(&self, core: &Arc<RunCore>, made: &Made<'_>) -> Arc<StepContext> {
        Arc::new(StepContext {
            call: made.id,
            step: self.outside_id(made.scope, made.id),
            name: self.definition.name,
            attempt: made.attempt,
            called_at: made.called_at,
            home: StepHome::Run(core.clone()),
            blocking: AtomicUsize::new(0),
            misused: AtomicBool::new(false),
            already_done: AtomicBool::new(false),
            pushed: Pushing::default(),
        })
    }
}
