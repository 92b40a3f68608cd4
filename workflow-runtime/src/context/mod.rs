//! The ambient context: what running code can ask about itself.
//!
//! Owns the thread-local that is set around every poll of a workflow and of a step body, and the
//! functions that read it. Because it is set per poll and never inherited, code that was moved
//! to another task finds itself outside, which is how a step in a spawned task is noticed
//! instead of losing its durability silently. It never decides anything.

mod scope;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::clock::Timestamp;
use crate::engine::core::RunCore;
use crate::engine::outbox::Pushing;
use crate::engine::resources::Resources;
use crate::ids::{RunId, StepId};

pub use scope::{ClosureScoped, Scoped, scope};
pub(crate) use scope::{Scope, ScopeElement};

/// Who is being polled on this thread right now.
#[derive(Clone)]
pub(crate) enum Ambient {
    /// Nobody of ours.
    Outside,
    /// A workflow, inside this scope.
    Workflow(Arc<Scope>),
    /// A step's body.
    Step(Arc<StepContext>),
}

/// What a step's body can ask about itself.
pub(crate) struct StepContext {
    /// The call in its run.
    pub(crate) call: StepId,
    /// What the body sees: the call, or what its idempotency key stands for.
    pub(crate) step: StepId,
    pub(crate) name: &'static str,
    pub(crate) attempt: u32,
    /// When the workflow made the call.
    pub(crate) called_at: Timestamp,
    pub(crate) home: StepHome,
    /// Blocking bodies of this attempt that have begun and not returned.
    pub(crate) blocking: AtomicUsize,
    /// The body used the library in a way that no retry can mend.
    pub(crate) misused: AtomicBool,
    /// The body found its work done already.
    pub(crate) already_done: AtomicBool,
    /// Messages that the attempt has pushed: they are written with its outcome, if it has one.
    pub(crate) pushed: Pushing,
}

/// Where a step's body runs. Names and resources are asked for there: counting references to what all
/// runs share would cost every step more than most steps ask.
pub(crate) enum StepHome {
    /// In a run.
    Run(Arc<RunCore>),
    /// By itself, with the resources that it was given.
    Direct(RunId, Resources),
}

impl StepContext {
    /// The run that the step belongs to; none if it runs directly.
    pub(crate) fn run(&self) -> Option<&Arc<RunCore>> {
        match &self.home {
            StepHome::Run(run) => Some(run),
            StepHome::Direct(..) => None,
        }
    }

    /// What the step may be given.
    pub(crate) fn resources(&self) -> &Resources {
        match &self.home {
            StepHome::Run(run) => &run.services.resources,
            StepHome::Direct(_, resources) => resources,
        }
    }

    fn metadata(&self) -> StepMetadata {
        let (run_id, workflow_name, namespace) = match &self.home {
            StepHome::Run(run) => {
                let run = run.identity();
                (run.run_id, run.workflow_name.clone(), run.namespace.clone())
            }
            StepHome::Direct(run, _) => (*run, "(direct)".into(), "(direct)".into()),
        };
        StepMetadata {
            step_id: self.step,
            step_name: self.name,
            attempt: self.attempt,
            step_started_at: self.called_at.into(),
            run_id,
            workflow_name,
            namespace,
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Ambient> = const { RefCell::new(Ambient::Outside) };
}

/// Restores the previous context when dropped, also while unwinding.
pub(crate) struct Entered {
    previous: Ambient,
    /// A guard belongs to the thread that made it.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let previous = std::mem::replace(&mut self.previous, Ambient::Outside);
        CURRENT.with_borrow_mut(|current| *current = previous);
    }
}

/// Makes `ambient` current until the guard is dropped.
pub(crate) fn enter(ambient: Ambient) -> Entered {
    Entered {
        previous: CURRENT.with_borrow_mut(|current| std::mem::replace(current, ambient)),
        _not_send: std::marker::PhantomData,
    }
}

/// Gives an ambient back when dropped, also while unwinding.
pub(crate) struct Lent<'a> {
    /// What was current before, as long as this lives.
    ambient: &'a mut Ambient,
    /// A guard belongs to the thread that made it.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.ambient));
    }
}

/// Makes an ambient current that is needed again, until the guard is dropped. Until then its owner has another one in its place.
///
/// Every poll does this: a copy would be counted up and down each time.
pub(crate) fn lend(ambient: &mut Ambient) -> Lent<'_> {
    CURRENT.with_borrow_mut(|current| std::mem::swap(current, ambient));
    Lent {
        ambient,
        _not_send: std::marker::PhantomData,
    }
}

/// Reads the current context. `read` must not poll or drop user code.
pub(crate) fn with_current<R>(read: impl FnOnce(&Ambient) -> R) -> R {
    CURRENT.with_borrow(read)
}

/// Returns the current scope, if a workflow is being polled.
pub(crate) fn current_scope() -> Option<Arc<Scope>> {
    with_current(|ambient| match ambient {
        Ambient::Workflow(scope) => Some(scope.clone()),
        Ambient::Outside | Ambient::Step(_) => None,
    })
}

/// Says whether a workflow is being polled that still has recorded outcomes to come.
pub(crate) fn is_replaying() -> bool {
    with_current(|ambient| match ambient {
        Ambient::Workflow(scope) => scope.core().is_replaying(),
        Ambient::Outside | Ambient::Step(_) => false,
    })
}

/// What a step knows about itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepMetadata {
    /// The step's id: the same in every attempt, process and machine. Hand it to the other
    /// side as the idempotency key.
    pub step_id: StepId,
    /// The step's name.
    pub step_name: &'static str,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When the workflow made the call; the same in every attempt.
    pub step_started_at: SystemTime,
    /// The run that the step belongs to.
    pub run_id: RunId,
    /// The workflow's name.
    pub workflow_name: Arc<str>,
    /// The namespace the run lives in.
    pub namespace: Arc<str>,
}

/// What a workflow knows about itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkflowMetadata {
    /// The run.
    pub run_id: RunId,
    /// The workflow's name.
    pub workflow_name: Arc<str>,
    /// The workflow's version.
    pub version: u32,
    /// The namespace the run lives in.
    pub namespace: Arc<str>,
    /// The key the run was started with.
    pub key: Option<Arc<str>>,
    /// When the run was started.
    pub run_started_at: SystemTime,
}

/// Returns what the running step knows about itself.
///
/// # Panics
///
/// Panics outside a step's body: there is no step id there, and making one up would make an
/// idempotency key that changes. [`try_get_step_metadata`] asks without panicking.
pub fn get_step_metadata() -> StepMetadata {
    try_get_step_metadata().expect(
        "get_step_metadata() was called outside a step: call it in the body of a #[step] function \
         (code that a step moves to another task or thread must be given the value)",
    )
}

/// Returns what the running step knows about itself, or `None` outside a step.
pub fn try_get_step_metadata() -> Option<StepMetadata> {
    with_current(|ambient| match ambient {
        Ambient::Step(step) => Some(step.metadata()),
        Ambient::Outside | Ambient::Workflow(_) => None,
    })
}

/// Notes that the running step found its work done already; nothing happens outside a step.
pub(crate) fn note_already_done() {
    with_current(|ambient| {
        if let Ambient::Step(step) = ambient {
            step.already_done.store(true, Ordering::Release);
        }
    });
}

/// Returns what the running workflow knows about itself.
///
/// # Panics
///
/// Panics outside a workflow's body; [`try_get_workflow_metadata`] asks without panicking.
pub fn get_workflow_metadata() -> WorkflowMetadata {
    try_get_workflow_metadata().expect(
        "get_workflow_metadata() was called outside a workflow: call it in the body of a \
         #[workflow] function (in a step, get_step_metadata() names the run)",
    )
}

/// Returns what the running workflow knows about itself, or `None` outside a workflow.
pub fn try_get_workflow_metadata() -> Option<WorkflowMetadata> {
    current_scope().map(|scope| scope.core().metadata())
}

/// Returns a resource that the engine was given, by its type.
///
/// # Panics
///
/// Panics outside a step's body and if the engine was given no such resource. A
/// `#[resource]` parameter parks the run instead, which is what production code wants.
pub fn resource<T: ?Sized + Send + Sync + 'static>() -> Arc<T> {
    let found = with_current(|ambient| match ambient {
        Ambient::Step(step) => Some(step.resources().get::<T>()),
        Ambient::Outside | Ambient::Workflow(_) => None,
    });
    found
        .expect("resource() was called outside a step: call it in the body of a #[step] function")
        .unwrap_or_else(|missing| panic!("{missing}"))
}
