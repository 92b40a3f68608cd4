//! What a test puts in the place of a body (feature `testing`).
//!
//! Owns the way from a test's plan to the future of one attempt. What becomes of that future is judged like any
//! body's: it is retried, timed out and journaled all the same.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::advance::Made;
use super::attempt::Attempt;
use super::running::BodyFuture;
use super::step::StepCall;
use crate::call::hooks::OWN_STEPS;
use crate::engine::core::{RunCore, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::tested::{Act, ActKind, PlannedAttempt, StandIn, Tested};
use crate::payload::Place;

/// How futures of attempts are made for one return type; known where that is known to own what it has.
pub(super) struct Making<R> {
    /// Makes what a stand-in gives a value of the type.
    answer: fn(Answering) -> BodyFuture<'static, R>,
    /// Does something before a body.
    before: for<'step> fn(First, BodyFuture<'step, R>) -> BodyFuture<'step, R>,
}

/// A stand-in that answers, or never does.
type Answering = Pin<Box<dyn Future<Output = Box<dyn Any + Send>> + Send>>;

/// What comes before a body.
type First = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<R: Send + 'static> Making<R> {
    pub(super) fn new() -> Self {
        Self {
            answer: |answering| {
                Box::pin(async move {
                    let value = answering.await.downcast::<R>();
                    *value.expect("a stand-in gives what its step returns")
                })
            },
            before: |first, body| {
                Box::pin(async move {
                    first.await;
                    body.await
                })
            },
        }
    }
}

impl<'step, R> StepCall<'step, R> {
    /// The future of an attempt as a test wants it, if one has the engine in its hands.
    pub(super) fn stand_in(
        &self,
        made: &Made<'_>,
        attempt: &Attempt,
    ) -> Option<Result<BodyFuture<'step, R>, Obstacle>> {
        let core = made.scope.core();
        let tested = core.services.tested.as_ref()?;
        if self.definition.file == OWN_STEPS {
            return None; // hooks are no steps of the user's
        }
        let payloads = core.services.payloads.at(Place::step_input(made.id));
        let planned = PlannedAttempt {
            definition: self.definition,
            site: self.site,
            run: core.run(),
            call: made.id,
            step: attempt.context().step,
            attempt: made.attempt,
            input: self.body.encode_input(&payloads, usize::MAX),
        };
        let plan = tested.plan(&planned, &payloads);
        let (kind, body) = match plan.act {
            Act::Body => match self.body.attempt(attempt) {
                Ok(body) => (ActKind::Body, body),
                Err(missing) => return Some(Err(self.lacks(&missing))),
            },
            Act::StandIn(stand_in) => {
                let answering = answering(stand_in, planned.clone(), core.clone(), tested.clone());
                let body: BodyFuture<'step, R> = (self.returns.making.answer)(answering);
                (ActKind::StandIn, body)
            }
            Act::Refuse(obstacle) => return Some(Err(obstacle)),
        };
        let (tested, services) = (tested.clone(), core.services.clone());
        let first = async move {
            let clock = &services.clock;
            tested.began(planned, kind, clock.now(), &payloads);
            clock.pass(plan.delay).await;
        };
        Some(Ok((self.returns.making.before)(Box::pin(first), body)))
    }
}

/// Parks the run instead of answering if the stand-in is at fault itself.
fn answering(
    stand_in: StandIn,
    planned: PlannedAttempt,
    core: Arc<RunCore>,
    tested: Arc<dyn Tested>,
) -> Answering {
    Box::pin(async move {
        match stand_in.await {
            Ok(value) => value,
            Err(message) => {
                let obstacle = tested.at_fault(planned.definition, &message);
                core.trouble(Trouble::Park(obstacle));
                std::future::pending().await
            }
        }
    })
}
