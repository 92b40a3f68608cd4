//! A step's call: a future that claims its id when made and is ready when its outcome is durable.
//!
//! Owns the call's life: made, registered (first poll), running attempts while the run is live,
//! handing in an outcome, being given it back. How one attempt is judged and recorded is in
//! `outcome`; when outcomes are delivered is the driver's business.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::StepDefinition;
use super::args::{NamedStepArgs, OrderedStepArgs, StepArgs};
use super::attempt::Attempt;
use super::outcome::{AttemptEnd, Policy, Settled, panic_message, settle};
use super::returns::{Decoded, Returns};
use crate::clock::{Timestamp, wall_clock};
use crate::context::{
    Ambient, Scope, StepContext, StepMetadata, current_scope, enter, with_current,
};
use crate::digest::{DigestError, InputDigest, digest};
use crate::engine::core::{Delivered, RunCore, Trouble, Turn};
use crate::engine::resources::{MissingResource, Resources};
use crate::engine::signal::CallWaker;
use crate::engine::timers::Deadline;
use crate::error::Error;
use crate::ids::{CallKind, RunId, StepId};
use crate::journal::Outcome;
use crate::key::Key;
use crate::payload::Payloads;
use crate::replay::Known;
use crate::store::ParkReason;

type BodyFuture<'step, R> = Pin<Box<dyn Future<Output = R> + Send + 'step>>;

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
    definition: &'static StepDefinition,
    returns: Returns<R>,
    site: &'static Location<'static>,
    policy: Policy,
    home: Home,
    body: Box<dyn Body<'step, R> + 'step>,
    stage: Stage<'step, R>,
}

/// Where the call was made.
enum Home {
    Run {
        scope: Arc<Scope>,
        id: StepId,
        /// Which un-keyed call of its name it is; `None` if it has a key.
        occurrence: Option<u64>,
        called_at: Timestamp,
    },
    /// Outside any run.
    Nowhere,
    /// Inside the body of a step of this name.
    InStep(&'static str),
    /// In a run, with a key that it cannot have.
    BadKey(Arc<Scope>, String),
}

enum Stage<'step, R> {
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

enum Doing<'step, R> {
    Nothing,
    /// Waiting for the next attempt.
    BackingOff(Deadline, Arc<CallWaker>),
    Running(Running<'step, R>),
    /// The outcome was handed in; this is what it gives once it is durable.
    HandedIn(Decoded<R>),
}

struct Running<'step, R> {
    future: BodyFuture<'step, R>,
    context: Arc<StepContext>,
    waker: Arc<CallWaker>,
    deadline: Option<Deadline>,
    timed_out: bool,
    began_at: Timestamp,
    span: tracing::Span,
    _counted: Counted,
}

/// A body that has begun; the run is told when it ends, however it does.
struct Counted(Arc<RunCore>, StepId);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.end_body(self.1);
    }
}

/// A step's arguments and body, without their types.
trait Body<'step, R>: Send {
    fn digest(&self) -> Result<InputDigest, DigestError>;
    fn encode_input(&self, payloads: &Payloads, limit: usize) -> Option<Bytes>;
    fn attempt(&self, attempt: &Attempt) -> Result<BodyFuture<'step, R>, MissingResource>;
}

struct TypedBody<A, F, Fut> {
    names: &'static [&'static str],
    args: A,
    body: F,
    _future: PhantomData<fn() -> Fut>,
}

impl<'step, R, A, F, Fut> Body<'step, R> for TypedBody<A, F, Fut>
where
    A: StepArgs,
    F: Fn(&Attempt, A) -> Result<Fut, MissingResource> + Send,
    Fut: Future<Output = R> + Send + 'step,
{
    fn digest(&self) -> Result<InputDigest, DigestError> {
        digest(&OrderedStepArgs(&self.args))
    }

    fn encode_input(&self, payloads: &Payloads, limit: usize) -> Option<Bytes> {
        payloads.encode_if_small(&NamedStepArgs(self.names, &self.args), limit)
    }

    fn attempt(&self, attempt: &Attempt) -> Result<BodyFuture<'step, R>, MissingResource> {
        let future = (self.body)(attempt, self.args.clone())?;
        Ok(Box::pin(future))
    }
}

/// Builds the call: the one entry that an expanded step makes.
#[track_caller]
pub(crate) fn step_call<'step, R, A, F, Fut>(
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
        policy: Policy::of(definition),
        home: Home::claim(definition.name, key, site),
        body: Box::new(TypedBody {
            names: definition.args,
            args,
            body,
            _future: PhantomData,
        }),
        stage: Stage::Made,
    }
}

impl Home {
    fn claim(name: &'static str, key: Option<Key>, site: &'static Location<'static>) -> Self {
        let scope = match with_current(Ambient::clone) {
            Ambient::Workflow(scope) => scope,
            Ambient::Step(step) => return Self::InStep(step.metadata.step_name),
            Ambient::Outside => return Self::Nowhere,
        };
        match key {
            None => {
                let (id, occurrence) = scope.claim(CallKind::Step, name);
                Self::Run {
                    id,
                    occurrence: Some(occurrence),
                    called_at: scope.core().now(),
                    scope,
                }
            }
            Some(key) => Self::with_key(scope, name, &key, site),
        }
    }

    fn with_key(
        scope: Arc<Scope>,
        name: &'static str,
        key: &Key,
        site: &'static Location<'static>,
    ) -> Self {
        if let Some(problem) = key.problem() {
            return Self::BadKey(scope, format!("step `{name}` at {site}: {problem}"));
        }
        match scope.claim_key(CallKind::Step, name, key.as_str(), site) {
            Ok(id) => Self::Run {
                id,
                occurrence: None,
                called_at: scope.core().now(),
                scope,
            },
            Err(first) => {
                let problem = format!(
                    "step `{name}` has the key {key:?} twice in one scope, first at {first} and \
                     again at {site}: two calls would share one id; give each its own key",
                    key = key.as_str()
                );
                Self::BadKey(scope, problem)
            }
        }
    }
}

/// Panics unless the workflow that made a call is being polled now.
pub(super) fn assert_at_home(scope: &Scope, kind: CallKind, name: &str, site: &Location<'_>) {
    let at_home = with_current(
        |ambient| matches!(ambient, Ambient::Workflow(here) if Arc::ptr_eq(here.core(), scope.core())),
    );
    if !at_home {
        refuse_away_from_home(scope, kind, name, site);
    }
}

#[cold]
fn refuse_away_from_home(scope: &Scope, kind: CallKind, name: &str, site: &Location<'_>) -> ! {
    let what = match kind {
        CallKind::Step => format!("step `{name}`"),
        CallKind::Timer => "sleep()".to_owned(),
    };
    let run = scope.core().run();
    match with_current(Ambient::clone) {
        Ambient::Workflow(here) => panic!(
            "{what} at {site} belongs to {run} but is polled in {}: a call cannot be moved to \
             another run",
            here.core().run()
        ),
        Ambient::Step(step) => {
            step.misused.store(true, Ordering::Release);
            panic!(
                "{what} at {site} was made in a workflow but is polled inside step `{}`: await it \
                 in the workflow and pass its result to the step",
                step.metadata.step_name
            )
        }
        Ambient::Outside => panic!(
            "{what} at {site} was made in {run} but is polled outside it (in a spawned task or \
             thread?): there it would run without its journal; await it in the workflow itself, \
             `join!` runs several at once"
        ),
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
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.policy.max_attempts = Some(attempts.max(1));
        self
    }

    /// Sets the shortest and the longest wait between two attempts of this call.
    pub fn backoff(mut self, shortest: Duration, longest: Duration) -> Self {
        self.policy.backoff = Some((shortest, longest.max(shortest)));
        self
    }

    /// Limits the wall time of each attempt of this call.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.policy.timeout = Some(limit);
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

    /// Refuses to run where there is no journal.
    fn refuse(&self) -> ! {
        let (name, site) = (self.definition.name, self.site);
        match &self.home {
            Home::InStep(step) => {
                with_current(|ambient| {
                    if let Ambient::Step(step) = ambient {
                        step.misused.store(true, Ordering::Release);
                    }
                });
                panic!(
                    "step `{name}` was called at {site} inside step `{step}`: a step's outcome is \
                     one record, so steps do not nest; call it from the workflow, or run its bare \
                     body with `.direct()`"
                )
            }
            _ => panic!(
                "step `{name}` was called at {site} outside a workflow run: it would run without \
                 its journal; call it from a #[workflow] that an engine started, or run its bare \
                 body on purpose with `.direct()`"
            ),
        }
    }

    fn poll_in_run(
        &mut self,
        scope: &Arc<Scope>,
        id: StepId,
        called_at: Timestamp,
        cx: &mut Context<'_>,
    ) -> Poll<R> {
        let core = scope.core();
        if let Stage::Made = self.stage
            && !self.register(core, id, cx)
        {
            return Poll::Pending;
        }
        match core.turn(id, cx.waker()) {
            Turn::Take(delivered) => self.take(core, delivered),
            Turn::Wait { show_input } => {
                if show_input {
                    let payloads = &core.services.payloads;
                    if let Some(input) = self.body.encode_input(payloads, usize::MAX) {
                        core.show_input(input);
                    }
                }
                Poll::Pending
            }
            Turn::Run(known) => {
                if let (
                    Some(Known::Failed { attempts, next_at }),
                    Stage::Waiting { failed, doing, .. },
                ) = (known, &mut self.stage)
                {
                    *failed = attempts;
                    *doing = back_off(core, next_at, cx.waker());
                }
                self.advance(scope, id, called_at, cx);
                Poll::Pending
            }
        }
    }

    fn register(&mut self, core: &RunCore, id: StepId, cx: &Context<'_>) -> bool {
        let name = self.definition.name;
        match self.body.digest() {
            Ok(digest) => {
                core.register(
                    id,
                    CallKind::Step,
                    name,
                    self.site,
                    Some(digest),
                    cx.waker(),
                );
                self.stage = Stage::Waiting {
                    digest,
                    failed: 0,
                    doing: Doing::Nothing,
                };
                true
            }
            Err(error) => {
                core.trouble(Trouble::Fail(Error::fatal(format!(
                    "the input of step `{name}` at {} cannot be journaled: {error}",
                    self.site
                ))));
                false
            }
        }
    }

    /// Gives the delivered outcome to the workflow.
    fn take(&mut self, core: &RunCore, delivered: Delivered) -> Poll<R> {
        let Stage::Waiting { doing, .. } = std::mem::replace(&mut self.stage, Stage::Done) else {
            unreachable!("only a registered call is given an outcome");
        };
        let name = self.definition.name;
        let decoded = match (delivered, doing) {
            (Delivered::Durable, Doing::HandedIn(decoded)) => Ok(decoded),
            (Delivered::Durable, _) => unreachable!("what is durable was handed in"),
            (Delivered::Recorded(outcome), _) => {
                self.returns.decode(&core.services.payloads, &outcome)
            }
        };
        match decoded {
            Ok(Decoded::Value(value)) => return Poll::Ready(value),
            Ok(Decoded::NoValue(error)) => {
                core.trouble(Trouble::Fail(
                    error.context(format!("step `{name}` at {} gave no value", self.site)),
                ));
            }
            Err(error) => core.trouble(Trouble::Park(
                ParkReason::Undecodable,
                format!(
                    "the recorded outcome of step `{name}` at {}: {error}",
                    self.site
                ),
            )),
        }
        Poll::Pending
    }

    /// Begins, polls and ends attempts as far as they go now.
    fn advance(
        &mut self,
        scope: &Arc<Scope>,
        id: StepId,
        called_at: Timestamp,
        cx: &mut Context<'_>,
    ) {
        let core = scope.core();
        loop {
            let Stage::Waiting {
                digest,
                failed,
                doing,
            } = &mut self.stage
            else {
                return;
            };
            match doing {
                Doing::HandedIn(_) => return,
                Doing::BackingOff(deadline, waker) if deadline.at() > wall_clock() => {
                    waker.follow(cx.waker());
                    deadline.rearm(&Waker::from(waker.clone()));
                    return;
                }
                Doing::BackingOff(..) => *doing = Doing::Nothing,
                Doing::Nothing => {
                    let attempt = *failed + 1;
                    match self.begin(core, id, attempt, called_at, cx) {
                        Some(begun) => self.set_doing(begun),
                        None => return,
                    }
                }
                Doing::Running(running) => {
                    let Poll::Ready(end) = running.poll(cx) else {
                        return;
                    };
                    let made = Made {
                        scope,
                        id,
                        called_at,
                        digest: *digest,
                        attempt: *failed + 1,
                        began_at: running.began_at,
                    };
                    self.end(&made, end, cx);
                }
            }
        }
    }

    fn set_doing(&mut self, now: Doing<'step, R>) {
        if let Stage::Waiting { doing, .. } = &mut self.stage {
            *doing = now;
        }
    }

    /// Begins an attempt, unless the run may not begin any.
    fn begin(
        &self,
        core: &Arc<RunCore>,
        id: StepId,
        attempt: u32,
        called_at: Timestamp,
        cx: &Context<'_>,
    ) -> Option<Doing<'step, R>> {
        let waker = CallWaker::of_body(cx.waker(), &core.signal);
        if !core.begin_body(id, &waker) {
            return None;
        }
        let counted = Counted(core.clone(), id);
        let began_at = wall_clock();
        let identity = core.identity();
        let metadata = StepMetadata {
            step_id: id,
            step_name: self.definition.name,
            attempt,
            step_started_at: called_at.into(),
            run_id: identity.run_id,
            workflow_name: identity.workflow_name.clone(),
            namespace: identity.namespace.clone(),
        };
        let context = StepContext::new(metadata, core.services.resources.clone());
        let future = match self.body.attempt(&Attempt {
            context: context.clone(),
        }) {
            Ok(future) => future,
            Err(missing) => {
                let report = format!(
                    "step `{}` at {}: {missing}",
                    self.definition.name, self.site
                );
                core.trouble(Trouble::Park(ParkReason::MissingResource, report));
                return None;
            }
        };
        let deadline = self.policy.timeout.map(|limit| {
            let timers = &core.services.timers;
            timers.wake_at(began_at.after(limit), Waker::from(waker.clone()))
        });
        Some(Doing::Running(Running {
            future,
            context,
            waker,
            deadline,
            timed_out: false,
            began_at,
            span: tracing::info_span!(
                "step", run = %core.run(), step = %id, name = self.definition.name, attempt
            ),
            _counted: counted,
        }))
    }

    /// Judges an attempt that has ended: hands the outcome in, or backs off.
    fn end(&mut self, made: &Made<'_>, end: AttemptEnd<R>, cx: &Context<'_>) {
        let core = made.scope.core();
        let policy = self.policy.over(&core.services.config);
        let payloads = &core.services.payloads;
        let name = self.definition.name;
        // The user's own `Serialize`, `Deserialize` and `retry_if` run in here. If they panic, the
        // effect has happened all the same, and trying again would panic again.
        let judged = catch_unwind(AssertUnwindSafe(|| {
            settle(&self.returns, policy, name, made, end, payloads)
        }));
        let settled = judged.unwrap_or_else(|panic| {
            let end = AttemptEnd::Panicked {
                message: panic_message(panic.as_ref()),
                misuse: true,
            };
            settle(&self.returns, policy, name, made, end, payloads)
        });
        let (run, step) = (core.run(), made.id);
        let now = match settled {
            Settled::Retry { event, at } => {
                tracing::warn!(
                    %run, %step, name, attempt = made.attempt, next_at = %at, "attempt failed"
                );
                core.annotate(event);
                back_off(core, at, cx.waker())
            }
            Settled::Done { outcome, decoded } => {
                let ok = matches!(outcome, Outcome::Ok(_));
                tracing::debug!(
                    %run, %step, name, attempt = made.attempt, ok, replayed = false, "step executed"
                );
                let limit = core.services.config.kept_input_limit;
                let input = self.body.encode_input(&core.services.payloads, limit);
                let event = made.completed(self.definition.name, self.site, input, outcome);
                core.hand_in(made.id, event);
                Doing::HandedIn(decoded)
            }
            Settled::Park(report) => {
                core.trouble(Trouble::Park(ParkReason::Undecodable, report));
                Doing::Nothing
            }
        };
        if let Stage::Waiting { failed, doing, .. } = &mut self.stage {
            *failed = made.attempt;
            *doing = now;
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

fn back_off<'step, R>(core: &RunCore, until: Timestamp, waker: &Waker) -> Doing<'step, R> {
    let waker = CallWaker::new(waker);
    let deadline = core
        .services
        .timers
        .wake_at(until, Waker::from(waker.clone()));
    Doing::BackingOff(deadline, waker)
}

impl<R> Running<'_, R> {
    /// Polls the body. A body that is ready beats its deadline; a blocking one that is past its
    /// deadline is waited for, because it cannot be stopped.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AttemptEnd<R>> {
        self.waker.follow(cx.waker());
        let waker = Waker::from(self.waker.clone());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let _entered = enter(Ambient::Step(self.context.clone()));
            let _span = self.span.enter();
            self.future.as_mut().poll(&mut Context::from_waker(&waker))
        }));
        let end = match polled {
            Ok(Poll::Ready(_)) | Err(_) if self.timed_out => AttemptEnd::TimedOut,
            Ok(Poll::Ready(value)) => AttemptEnd::Value(value),
            Err(panic) => AttemptEnd::Panicked {
                message: panic_message(panic.as_ref()),
                misuse: self.context.misused.load(Ordering::Acquire),
            },
            Ok(Poll::Pending) => {
                let Some(deadline) = &self.deadline else {
                    return Poll::Pending;
                };
                if deadline.at() > wall_clock() {
                    deadline.rearm(&waker);
                    return Poll::Pending;
                }
                self.timed_out = true;
                if self.context.blocking.load(Ordering::Acquire) > 0 {
                    return Poll::Pending;
                }
                AttemptEnd::TimedOut
            }
        };
        Poll::Ready(end)
    }
}

// A `StepCall` never pins anything inside itself: bodies are boxed, values are only moved.
impl<R> Unpin for StepCall<'_, R> {}

impl<R> Future for StepCall<'_, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = self.get_mut();
        let (scope, id, called_at) = match &this.home {
            Home::Run {
                scope,
                id,
                called_at,
                ..
            } => (scope.clone(), *id, *called_at),
            Home::BadKey(scope, problem) => {
                scope.core().trouble(Trouble::Fail(Error::fatal(problem)));
                return Poll::Pending;
            }
            Home::Nowhere | Home::InStep(_) => this.refuse(),
        };
        assert_at_home(&scope, CallKind::Step, this.definition.name, this.site);
        this.poll_in_run(&scope, id, called_at, cx)
    }
}

impl<R> Drop for StepCall<'_, R> {
    fn drop(&mut self) {
        if let (Stage::Waiting { .. }, Home::Run { scope, id, .. }) = (&self.stage, &self.home) {
            scope.core().drop_call(*id);
        }
    }
}

/// A step's bare body, to be run once without a journal; see [`StepCall::direct`].
///
/// # Panics
///
/// Panics when polled inside a workflow, where it would run without its journal, and if a
/// `#[resource]` was not provided.
#[must_use = "a step does nothing unless it is awaited"]
pub struct Direct<'step, R> {
    call: StepCall<'step, R>,
    resources: Resources,
    future: Option<(BodyFuture<'step, R>, Arc<StepContext>)>,
}

impl<R> Direct<'_, R> {
    /// Provides a resource that the step asks for.
    pub fn resource<T: Send + Sync + 'static>(self, resource: T) -> Self {
        self.resource_arc(Arc::new(resource))
    }

    /// Provides a shared resource, or one behind a trait object.
    pub fn resource_arc<T: ?Sized + Send + Sync + 'static>(mut self, resource: Arc<T>) -> Self {
        self.resources.insert(resource);
        self
    }

    fn context(&mut self) -> Arc<StepContext> {
        let run_id = RunId::random();
        let metadata = StepMetadata {
            step_id: StepId::from_bytes(*RunId::random().as_bytes()),
            step_name: self.call.definition.name,
            attempt: 1,
            step_started_at: wall_clock().into(),
            run_id,
            workflow_name: "(direct)".into(),
            namespace: "(direct)".into(),
        };
        StepContext::new(metadata, Arc::new(std::mem::take(&mut self.resources)))
    }
}

impl<R> Unpin for Direct<'_, R> {}

impl<R> Future for Direct<'_, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let this = self.get_mut();
        let name = this.call.definition.name;
        assert!(
            current_scope().is_none(),
            "step `{name}` at {} is run with `.direct()` inside a workflow: there it would run \
             without its journal; await the call itself",
            this.call.site
        );
        if this.future.is_none() {
            let context = this.context();
            let attempt = Attempt {
                context: context.clone(),
            };
            let future = this.call.body.attempt(&attempt).unwrap_or_else(|missing| {
                panic!(
                    "step `{name}` asks for a resource of type `{}`: provide it with \
                     `.direct().resource(value)`",
                    missing.type_name
                )
            });
            this.future = Some((future, context));
        }
        let (future, context) = this.future.as_mut().expect("it was made above");
        let _entered = enter(Ambient::Step(context.clone()));
        future.as_mut().poll(cx)
    }
}
