//! A workflow's call: a value that an engine starts, and a future that is a child run.
//!
//! Owns the call's life as a child: it claims its id when it is made, has the run created when it is
//! first polled, and is ready when the child's end is delivered. The child is a run of its own, with
//! a journal of its own; creating it is one write with the record that says so.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Workflow;
use super::home::{What, assert_at_home, refuse_outside};
use super::returns::Decoded;
use crate::context::{Scope, current_scope};
use crate::engine::EngineError;
use crate::engine::core::children::NewChild;
use crate::engine::core::{RunCore, Trouble};
use crate::engine::obstacle::Obstacle;
use crate::engine::prepared::{EncodedCall, Naming, Prepared};
use crate::error::Error;
use crate::ids::{CallKind, RunId, StepId};
use crate::journal::{ChildStarted, End, Outcome, Parent};
use crate::key::Key;
use crate::payload::Place;
use crate::store::{ParkReason, RunState};

/// A call of a workflow.
///
/// Give it to an engine, `engine.start(checkout(order))`, or await it inside another workflow: there it
/// is a child, a run of its own whose result comes back.
///
/// ```
/// # use workflow_runtime::{Result, step, workflow};
/// # #[step] async fn pack(_item: &str) -> Result<u32> { Ok(1) }
/// #[workflow]
/// async fn ship(item: String) -> Result<u32> {
///     pack(&item).await
/// }
///
/// #[workflow]
/// async fn order(items: Vec<String>) -> Result<u32> {
///     let mut parcels = 0;
///     for item in items {
///         parcels += ship(item).await?; // a child run each
///     }
///     Ok(parcels)
/// }
/// ```
///
/// A child that is dropped before it has ended (the loser of a race, a timeout) is cancelled, as a
/// future is that is dropped; so are the children of a run that is cancelled.
/// [`detached`](Self::detached) ones go on. If the child gives no value of its own (it was cancelled or
/// aborted), the call gives the crate's [`Error`](crate::Error) where the workflow returns that, and
/// fails the parent otherwise.
#[must_use = "a workflow runs only when an engine starts it (`engine.start(..)`) or a workflow awaits it"]
pub struct WorkflowCall<W: Workflow> {
    pub(crate) input: W::Input,
    pub(crate) key: Option<Key>,
    site: &'static Location<'static>,
    /// Where in a workflow it was made.
    home: Option<Home>,
    detached: bool,
    stage: Stage,
}

struct Home {
    scope: Arc<Scope>,
    id: StepId,
    /// Which un-keyed call of its name it is; `None` if it has a key.
    occurrence: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Made,
    /// The child was asked for.
    Started {
        /// It goes when its call goes.
        awaited: bool,
    },
    Done,
}

impl<W: Workflow> WorkflowCall<W> {
    #[doc(hidden)]
    #[track_caller]
    pub fn new(input: W::Input) -> Self {
        let home = current_scope().map(|scope| {
            let (id, occurrence) = scope.claim(CallKind::Child, W::DEFINITION.name);
            Home {
                scope,
                id,
                occurrence: Some(occurrence),
            }
        });
        Self {
            input,
            key: None,
            site: Location::caller(),
            home,
            detached: false,
            stage: Stage::Made,
        }
    }

    /// Identifies the run by a business key. Started by an engine, this is the key of
    /// [`Start::key`](crate::Start::key); as a child, it takes the place of how many calls of the workflow stand
    /// before it. It replaces an earlier key.
    ///
    /// # Panics
    ///
    /// Panics if the call was polled already: by then its id is in use.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        let key = key.into();
        let name = W::DEFINITION.name;
        assert!(
            self.stage == Stage::Made,
            "child workflow `{name}` at {} is given a key after it was polled: give it before",
            self.site
        );
        if let Some(home) = &mut self.home {
            match home.occurrence.take() {
                Some(occurrence) => home.scope.unclaim(CallKind::Child, name, occurrence),
                None => home.scope.unclaim_key(home.id),
            }
            let claimed = home
                .scope
                .claim_key(CallKind::Child, name, key.as_str(), self.site);
            match claimed {
                Ok(id) => home.id = id,
                Err(first) => {
                    let problem = format!(
                        "child workflow `{name}` has the key {:?} twice in one scope, first at \
                         {first} and again at {}: give each call its own key",
                        key.as_str(),
                        self.site
                    );
                    home.scope
                        .core()
                        .trouble(Trouble::Fail(Error::fatal(problem)));
                }
            }
        }
        self.key = Some(key);
        self
    }

    /// Lets the child go on when its call is dropped and when this run is cancelled.
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// Says whether it was given a key or detached.
    pub(crate) fn is_configured(&self) -> bool {
        self.key.is_some() || self.detached
    }

    /// Asks for the child to be created, unless that was done.
    fn begin(&mut self, awaited: bool) {
        let Some(home) = &self.home else {
            return;
        };
        if self.stage != Stage::Made {
            return;
        }
        let core = home.scope.core();
        if let Some(problem) = self.key.as_ref().and_then(Key::problem) {
            return self.refuse(core, &EngineError::Key(problem));
        }
        self.stage = Stage::Started { awaited };
        let parent = Parent {
            run: core.run(),
            call: home.id,
        };
        let (call, digest) = match EncodedCall::encode::<W>(&core.services, &self.input) {
            Ok(encoded) => encoded,
            Err(error) => return self.refuse(core, &error),
        };
        let naming = Naming::child(parent, self.key.as_ref().map(|key| key.as_str().into()));
        let child = naming.run;
        let prepared = Prepared::new(&core.services, &call, naming, RunState::Active);
        let input = call.input;
        core.start_child(NewChild {
            started: ChildStarted {
                call: home.id,
                child,
                workflow: W::DEFINITION.name.into(),
                scope: home.scope.path().into(),
                source: format!("{}:{}", self.site.file(), self.site.line()).into(),
                input_digest: digest,
                input: (input.len() <= core.services.config.kept_input_limit).then_some(input),
                detached: self.detached,
            },
            name: W::DEFINITION.name,
            site: self.site,
            new: prepared.new,
        });
    }

    fn refuse(&self, core: &RunCore, error: &EngineError) {
        let message = format!("child workflow at {}: {error}", self.site);
        core.trouble(match error {
            EngineError::NotRegistered { .. } => {
                Trouble::Park(Obstacle::new(ParkReason::Unregistered, message))
            }
            _ => Trouble::Fail(Error::fatal(message)),
        });
    }

    /// Gives the workflow what the child ended with.
    fn give(&mut self, core: &RunCore, call: StepId, end: End) -> Poll<W::Output> {
        let child = RunId::of_child(call);
        let payloads = core.services.payloads.at(Place::run_end(child));
        self.stage = Stage::Done;
        let name = W::DEFINITION.name;
        let returns = W::returns();
        let decoded = match end {
            End::Completed(output) => returns.decode(&payloads, &Outcome::Ok(output)),
            End::Failed(failure) => returns.decode(&payloads, &failure),
            End::Aborted(aborted) => Ok(returns.broken(Error::fatal(format!(
                "child workflow `{name}` was aborted: {}",
                aborted.reason
            )))),
            End::Cancelled(cancelled) => Ok(returns.broken(Error::fatal(format!(
                "child workflow `{name}` was cancelled: {}",
                cancelled.reason
            )))),
            // Nobody is told of that end; were it so, the last run of the line would have to tell another.
            End::Continued(_) => return Poll::Pending,
        };
        match decoded {
            Ok(Decoded::Value(value)) => return Poll::Ready(value),
            Ok(Decoded::NoValue(error)) => core.trouble(Trouble::Fail(error.context(format!(
                "child workflow `{name}` at {} gave no value",
                self.site
            )))),
            Err(problem) => {
                let what = format!("the end of child workflow `{name}` at {}", self.site);
                core.trouble(Trouble::Park(Obstacle::unreadable(&what, &problem)));
            }
        }
        Poll::Pending
    }
}

// A call never pins anything inside itself: values are only moved.
impl<W: Workflow> Unpin for WorkflowCall<W> {}

impl<W: Workflow> Future for WorkflowCall<W> {
    type Output = W::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<W::Output> {
        let this = self.get_mut();
        let Some(home) = &this.home else {
            refuse_outside(
                format_args!("workflow `{}` at {}", W::DEFINITION.name, this.site),
                "start it with `engine.start(..)`, and wait for it with `.result()`",
            )
        };
        let (scope, id) = (home.scope.clone(), home.id);
        assert_at_home(&scope, What::Child(W::DEFINITION.name), this.site);
        this.begin(true);
        match scope.core().take_child(id, cx.waker()) {
            Some(end) => this.give(scope.core(), id, end),
            None => Poll::Pending,
        }
    }
}

impl<W: Workflow> Drop for WorkflowCall<W> {
    fn drop(&mut self) {
        if let (Stage::Started { awaited }, Some(home)) = (self.stage, &self.home) {
            let core = home.scope.core();
            // Dropped by the code; not because the run leaves memory or its code panicked, which
            // parks it with all it waits for.
            let by_code = core.signal.is_polling() && !std::thread::panicking();
            core.drop_child(home.id, awaited && by_code);
        }
    }
}

/// Starts a child without waiting for it.
///
/// The child is created with the run's next write. Await the returned value to get its result, or drop
/// it: the child goes on either way.
///
/// # Panics
///
/// Panics outside a workflow: use `engine.start(..)` there.
#[track_caller]
pub fn start_child<W: Workflow>(mut call: WorkflowCall<W>) -> ChildRun<W> {
    if call.home.is_none() {
        refuse_outside(
            format_args!("start_child(`{}`) at {}", W::DEFINITION.name, call.site),
            "start it with `engine.start(..)` there",
        );
    }
    call.begin(false);
    ChildRun { call }
}

/// A child that was started; see [`start_child`].
pub struct ChildRun<W: Workflow> {
    call: WorkflowCall<W>,
}

impl<W: Workflow> ChildRun<W> {
    /// The child's run.
    pub fn id(&self) -> RunId {
        let home = self
            .call
            .home
            .as_ref()
            .expect("it was started in a workflow");
        RunId::of_child(home.id)
    }
}

impl<W: Workflow> fmt::Debug for ChildRun<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChildRun<{}>({})", W::DEFINITION.name, self.id())
    }
}

impl<W: Workflow> Future for ChildRun<W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<W::Output> {
        Pin::new(&mut self.call).poll(cx)
    }
}
