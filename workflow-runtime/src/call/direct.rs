//! A step's bare body, run on purpose without a journal.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, ready};

use super::attempt::Attempt;
use super::running::BodyFuture;
use super::step::StepCall;
use crate::clock::wall_clock;
use crate::context::{Ambient, StepContext, StepHome, current_scope, enter};
use crate::engine::outbox::Pushing;
use crate::engine::resources::Resources;
use crate::ids::{RunId, StepId};

/// A step's bare body, to be run once without a journal; see [`StepCall::direct`].
///
/// # Panics
///
/// Panics when polled inside a workflow, where it would run without its journal, and if a
/// `#[resource]` was not provided.
#[must_use = "a step does nothing unless it is awaited"]
pub struct Direct<'step, R> {
    pub(super) call: StepCall<'step, R>,
    pub(super) resources: Resources,
    pub(super) future: Option<(BodyFuture<'step, R>, Arc<StepContext>)>,
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
        let step = StepId::from_bytes(*RunId::random().as_bytes());
        Arc::new(StepContext {
            call: step,
            step,
            name: self.call.definition.name,
            attempt: 1,
            called_at: wall_clock(),
            home: StepHome::Direct(RunId::random(), std::mem::take(&mut self.resources)),
            blocking: AtomicUsize::new(0),
            misused: AtomicBool::new(false),
            already_done: AtomicBool::new(false),
            pushed: Pushing::default(),
        })
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
            let attempt = Attempt::new(context.clone());
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
        let value = ready!(future.as_mut().poll(cx));
        Poll::Ready(this.call.returns.as_delivered(value))
    }
}
