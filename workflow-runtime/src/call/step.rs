//! A step's call: a future that claims its id when made and is ready when its outcome is durable.
//!
//! Owns the call's life: made, registered (first poll), being given its outcome. Its attempts are in `advance`; when
//! outcomes are delivered is the driver's business.

use std::future::Future;
use std::hint::cold_path;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::StepDefinition;
use super::advance::back_off;
use super::args::StepArgs;
use super::attempt::Attempt;
use super::direct::Direct;
use super::home::{Home, What, assert_at_home, refuse_homeless};
use super::keyed::Keyed;
use super::outcome::Policy;
use super::returns::{Decoded, Returns};
use super::running::{Body, Running, TypedBody};
use super::undo::UndoFuture;
use crate::clock::Timestamp;
use crate::context::Scope;
use crate::digest::InputDigest;
use crate::engine::core::{Began, Delivered, RunCore, Trouble, Turn};
use crate::engine::obstacle::Obstacle;
use crate::engine::resources::{MissingResource, Resources};
use crate::engine::signal::CallWaker;
use crate::engine::timers::Deadline;
use crate::engine::undo_steps::UndoWay;
use crate::error::Error;
use crate::ids::{CallKind, StepId};
use crate::key::Key;
use crate::payload::Place;
use crate::replay::{Known, WaitingCall};

/// A call of a step: await it, join it, or configure this one call first.
///
/// ```
/// # use workflow_runtime::{step, workflow, Result};
/// # use std::time::Duration;
/// # #[step] async fn charge(_customer: &str, _cents: u64) -> Result<u32> { Ok(1) }
/// #[workflow]
/// async fn pay(customer: String) -> Result<u32> {
///     charge(&customer, 500).key("deposit").timeout(Duration::from_secs(5)).await
/// }
/// ```
///
/// # Panics
///
/// Panics when polled outside a run, inside a step's body or in a spawned task: running it there
/// would run it without its journal. [`StepCall::direct`] runs the bare body on purpose.
#[must_use = "a step does nothing unless it is awaited"]
pub struct StepCall<'step, R> {
    pub(super) definition: &'static StepDefinition,
    pub(super) returns: Returns<R>,
    pub(super) site: &'static Location<'static>,
    /// What was said of attempts for this call alone: nearly always nothing, and every call is moved about a few times.
    policy: Option<Box<Policy>>,
    pub(super) home: Home,
    pub(super) body: Box<dyn Body<'step, R> + 'step>,
    pub(super) stage: Stage<'step, R>,
    /// Its idempotency key, if it has one.
    pub(super) keyed: Option<Box<Keyed>>,
}

// It is moved about a few times in every step: what it rarely has is boxed.
#[cfg(not(feature = "testing"))]
const _: () = assert!(size_of::<StepCall<'static, u64>>() <= 288);

pub(super) enum Stage<'step, R> {
    /// Never polled.
    Made,
    /// Registered with the run.
    Waiting {
        digest: InputDigest,
        /// Attempts that failed, in this process or an earlier one.
        failed: u32,
        doing: Doing<'step, R>,
    },
    /// It has given its value.
    Done,
}

pub(super) enum Doing<'step, R> {
    Nothing,
    /// Waiting for the next attempt.
    BackingOff(Deadline, Arc<CallWaker>),
    /// The body is ready to start, once what must be durable before is.
    Ready(Box<Running<'step, R>>),
    Running(Box<Running<'step, R>>),
    /// The outcome was handed in; this is what it gives once it is durable.
    HandedIn(Decoded<R>),
}

/// Builds a step's call: the one entry that an expanded step makes.
#[track_caller]
pub fn step_call<'step, R, A, F, Fut>(
    definition: &'static StepDefinition,
    returns: Returns<R>,
    key: Option<Key>,
    args: A,
    body: F,
) -> StepCall<'step, R>
where
    R: Send + 'step,
    A: StepArgs + 'step,
    F: Fn(&Attempt, A) -> Result<Fut, MissingResource> + Send + 'step,
    Fut: Future<Output = R> + Send + 'step,
{
    let site = Location::caller();
    StepCall {
        definition,
        returns,
        site,
        policy: None,
        home: Home::claim(definition.name, key, site),
        body: Box::new(TypedBody {
            names: definition.args,
            args,
            body,
            _future: PhantomData,
        }),
        stage: Stage::Made,
        keyed: None,
    }
}

impl<'step, R> StepCall<'step, R> {
    /// Identifies this call by a business key instead of by how many calls of the step stand
    /// before it: for loops over items that may be reordered. It replaces an earlier key.
    ///
    /// # Panics
    ///
    /// Panics if the call was polled already: by then its id is in use.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        let name = self.definition.name;
        assert!(
            matches!(self.stage, Stage::Made),
            "step `{name}` at {} is given a key after it was polled: give it before",
            self.site
        );
        let scope = match &self.home {
            Home::Run {
                scope,
                id,
                occurrence,
                ..
            } => {
                match *occurrence {
                    Some(occurrence) => scope.unclaim(CallKind::Step, name, occurrence),
                    None => scope.unclaim_key(*id),
                }
                scope.clone()
            }
            Home::BadKey(scope, _) => scope.clone(),
            Home::Nowhere | Home::InStep(_) => return self,
        };
        self.home = Home::with_key(scope, name, &key.into(), self.site);
        self
    }

    /// Sets how many attempts this call has at most, the first one included.
    ///
    /// # Panics
    ///
    /// Panics if the step is `at_most_once` and this is more than one.
    #[track_caller]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        if attempts > 1 {
            self.refuse_repetition("max_attempts");
        }
        self.policy_mut().max_attempts = Some(attempts.max(1));
        self
    }

    /// Sets the shortest and the longest wait between two attempts of this call.
    ///
    /// # Panics
    ///
    /// Panics if the step is `at_most_once`: there is no second attempt.
    #[track_caller]
    pub fn backoff(mut self, shortest: Duration, longest: Duration) -> Self {
        self.refuse_repetition("backoff");
        self.policy_mut().backoff = Some((shortest, longest.max(shortest)));
        self
    }

    /// Limits the wall time of each attempt of this call.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.policy_mut().timeout = Some(limit);
        self
    }

    /// Runs the bare body, once, without a journal: for unit tests and scripts.
    ///
    /// Its `#[resource]` parameters come from [`Direct::resource`].
    pub fn direct(self) -> Direct<'step, R> {
        if let Home::Run {
            scope,
            occurrence: Some(occurrence),
            ..
        } = &self.home
        {
            scope.unclaim(CallKind::Step, self.definition.name, *occurrence);
        }
        Direct {
            call: self,
            resources: Resources::default(),
            future: None,
        }
    }

    /// How often, how long and how far apart its attempts are.
    pub(super) fn policy(&self) -> Policy {
        match &self.policy {
            Some(policy) => **policy,
            None => Policy::of(self.definition),
        }
    }

    fn policy_mut(&mut self) -> &mut Policy {
        let definition = self.definition;
        self.policy
            .get_or_insert_with(|| Box::new(Policy::of(definition)))
    }

    fn poll_in_run(
        &mut self,
        scope: &Arc<Scope>,
        id: StepId,
        called_at: Timestamp,
        cx: &mut Context<'_>,
    ) -> Poll<R> {
        let core = scope.core();
        let turn = match self.stage {
            Stage::Made => self.register(scope, id, cx),
            _ => Some((core.turn(id, cx.waker()), None)),
        };
        let Some((turn, begun)) = turn else {
            return Poll::Pending;
        };
        match turn {
            Turn::Take(delivered) => self.take(core, id, delivered),
            Turn::Wait { show_input } => {
                if show_input {
                    cold_path();
                    let payloads = core.services.payloads.at(Place::step_input(id));
                    if let Some(input) = self.body.encode_input(&payloads, usize::MAX) {
                        core.show_input(input);
                    }
                }
                Poll::Pending
            }
            Turn::Run(known) => {
                if let Some(known) = known
                    && !self.heed(core, id, known, cx.waker())
                {
                    return Poll::Pending;
                }
                self.advance(scope, id, called_at, begun, cx);
                Poll::Pending
            }
        }
    }

    /// Takes up what the journal says of the call. `false` if it may not run: it ran before, and was given something else.
    #[cold]
    fn heed(&mut self, core: &RunCore, id: StepId, known: Known, waker: &Waker) -> bool {
        let (before, attempts) = match known {
            Known::Failed(attempts) => (None, Some(attempts)),
            Known::Tried(before, attempts) => (Some(before), attempts),
            Known::Timer { .. } | Known::Child(_) => (None, None),
        };
        let input = || {
            let payloads = core.services.payloads.at(Place::step_input(id));
            self.body.encode_input(&payloads, usize::MAX)
        };
        if before.is_some_and(|before| !core.fits_before(id, &before, input)) {
            return false;
        }
        if let (Some(before), Stage::Waiting { failed, doing, .. }) = (attempts, &mut self.stage) {
            *failed = before.attempts;
            *doing = back_off(core, id, before.next_at, waker);
        }
        true
    }

    /// Registers the call, and says what it is to do and whether its first attempt has begun; `None` if it cannot be registered.
    fn register(
        &mut self,
        scope: &Scope,
        id: StepId,
        cx: &Context<'_>,
    ) -> Option<(Turn, Option<Began>)> {
        let (core, name) = (scope.core(), self.definition.name);
        match self.body.digest() {
            Ok(digest) => {
                let view = WaitingCall {
                    id,
                    kind: CallKind::Step,
                    name,
                    site: self.site,
                    digest: Some(digest),
                    fresh_for: self.definition.fresh_for,
                };
                let turn = match (self.definition.undo, &self.keyed) {
                    (None, None) => core.register_for_turn(view, cx.waker(), self.asks_only(core)),
                    _ => {
                        core.register(view, cx.waker());
                        if self.register_key(scope, id, digest.strict) {
                            self.register_undo(core, id);
                        }
                        (core.turn(id, cx.waker()), None) // after that, which may fail the run
                    }
                };
                self.stage = Stage::Waiting {
                    digest,
                    failed: 0,
                    doing: Doing::Nothing,
                };
                Some(turn)
            }
            Err(error) => {
                cold_path();
                core.trouble(Trouble::Fail(Error::fatal(format!(
                    "the input of step `{name}` at {} cannot be journaled: {error}",
                    self.site
                ))));
                None
            }
        }
    }

    /// From now on it may have begun: if the run does not complete, it is undone.
    fn register_undo(&self, core: &RunCore, id: StepId) {
        let name = self.definition.name;
        let Some(way) = UndoWay::of(self.definition) else {
            return;
        };
        let payloads = core.services.payloads.at(Place::step_input(id));
        match self.body.encode_input(&payloads, usize::MAX) {
            Some(input) => core.register_undo(id, self.definition, way, input),
            // Better not done than done and not to be undone.
            None => core.trouble(Trouble::Fail(Error::fatal(format!(
                "the input of step `{name}` at {} cannot be kept for its `undo`: it is larger than the \
                 engine's `payload_limit`, or cannot be encoded",
                self.site
            )))),
        }
    }

    /// Gives the delivered outcome to the workflow.
    fn take(&mut self, core: &RunCore, id: StepId, delivered: Delivered) -> Poll<R> {
        let Stage::Waiting { doing, .. } = std::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("only a registered call is given an outcome");
        };
        let name = self.definition.name;
        let decoded = match (delivered, doing) {
            (Delivered::Durable, Doing::HandedIn(decoded)) => Ok(decoded),
            (Delivered::Durable, _) => unreachable!("what is durable was handed in"),
            (Delivered::Recorded(outcome), _) => {
                let payloads = core.services.payloads.at(Place::step_outcome(id));
                self.returns.decode(&payloads, &outcome)
            }
        };
        match decoded {
            Ok(Decoded::Value(value)) => return Poll::Ready(value),
            Ok(Decoded::NoValue(error)) => {
                cold_path();
                core.trouble(Trouble::Fail(
                    error.context(format!("step `{name}` at {} gave no value", self.site)),
                ));
            }
            Err(error) => {
                cold_path();
                let what = format!("the recorded outcome of step `{name}` at {}", self.site);
                core.trouble(Trouble::Park(Obstacle::unreadable(&what, &error)));
            }
        }
        Poll::Pending
    }
}

impl<R: Send + 'static> StepCall<'static, R> {
    /// Makes this the call that undoes something: all that matters is whether it fails.
    pub(super) fn into_undo(self) -> UndoFuture {
        Box::pin(async move {
            let failure = self.returns.failing();
            let value = self.await;
            match failure(&value) {
                None => Ok(()),
                Some(_) => Err(Error::new("it returned an error")),
            }
        })
    }

    /// Keeps the call for the case that the run has to be undone.
    pub(super) fn keep_for_undo(self) {
        let name = self.definition.name;
        match &self.home {
            Home::Run { scope, id, .. } => {
                let (core, id) = (scope.core().clone(), *id);
                core.keep_undo(id, name, self.into_undo());
            }
            Home::BadKey(scope, problem) => {
                scope.core().trouble(Trouble::Fail(Error::fatal(problem)));
            }
            home @ (Home::Nowhere | Home::InStep(_)) => refuse_homeless(home, name, self.site),
        }
    }
}

// A `StepCall` never pins anything inside itself: bodies are boxed, values are only moved.
impl<R> Unpin for StepCall<'_, R> {}

impl<R> Future for StepCall<'_, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = self.get_mut();
        match &this.home {
            Home::Run { scope, .. } => {
                assert_at_home(scope, What::Step(this.definition.name), this.site);
            }
            Home::BadKey(scope, problem) => {
                cold_path();
                scope.core().trouble(Trouble::Fail(Error::fatal(problem)));
                return Poll::Pending;
            }
            home @ (Home::Nowhere | Home::InStep(_)) => {
                refuse_homeless(home, this.definition.name, this.site)
            }
        }
        // Taken out for a moment: a copy of the scope would be counted up and down. It is needed again also if the user's code panics
        // in there (a `Clone` of an argument, say) and the workflow goes on.
        let home = std::mem::replace(&mut this.home, Home::Nowhere);
        let polled = catch_unwind(AssertUnwindSafe(|| match &home {
            Home::Run {
                scope,
                id,
                called_at,
                ..
            } => this.poll_in_run(scope, *id, *called_at, cx),
            Home::BadKey(..) | Home::Nowhere | Home::InStep(_) => Poll::Pending,
        }));
        this.home = home;
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<R> Drop for StepCall<'_, R> {
    fn drop(&mut self) {
        if let (Stage::Waiting { .. }, Home::Run { scope, id, .. }) = (&self.stage, &self.home) {
            scope.core().drop_call(*id);
            if self.keyed.is_some() {
                scope.core().drop_keyed(*id);
            }
        }
    }
}
