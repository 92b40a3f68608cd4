//! One attempt at a step: what its body is given.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::context::{Ambient, StepContext, enter};
use crate::engine::resources::MissingResource;

/// What one attempt is given.
pub struct Attempt {
    /// What its body is polled in.
    pub(super) ambient: Ambient,
}

impl Attempt {
    pub(super) fn new(context: Arc<StepContext>) -> Self {
        Self {
            ambient: Ambient::Step(context),
        }
    }

    pub(super) fn context(&self) -> &Arc<StepContext> {
        match &self.ambient {
            Ambient::Step(context) => context,
            Ambient::Outside | Ambient::Workflow(_) => {
                unreachable!("it is lent only while its body is polled")
            }
        }
    }

    /// Returns the resource of a type, for a `#[resource]` parameter.
    ///
    /// # Errors
    ///
    /// Names the type if the engine was given no such resource.
    pub fn resource<T: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<T>, MissingResource> {
        self.context().resources().get()
    }
}

/// Runs a blocking body on the blocking pool, with the step's context.
pub fn blocking<R, F>(attempt: &Attempt, body: F) -> impl Future<Output = R> + Send + use<R, F>
where
    R: Send + 'static,
    F: FnOnce() -> R + Send + 'static,
{
    let context = attempt.context().clone();
    async move {
        // Until what it returned was heard: a run that ends must not look away in between.
        let _heard = Running::begin(context.clone());
        let running = Running::begin(context.clone());
        let body = move || {
            let _running = running; // dropped when the body has returned, not when its future is
            let _entered = enter(Ambient::Step(context));
            body()
        };
        match tokio::task::spawn_blocking(body).await {
            Ok(value) => value,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // The runtime is shutting down before the body began: as if it had crashed.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Counts a blocking body as long as it runs, or its call has not heard of its end.
struct Running(Arc<StepContext>);

impl Running {
    fn begin(context: Arc<StepContext>) -> Self {
        context.blocking.fetch_add(1, Ordering::AcqRel);
        if let Some(run) = context.run() {
            run.begin_blocking();
        }
        Self(context)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.blocking.fetch_sub(1, Ordering::AcqRel);
        if let Some(run) = self.0.run() {
            run.end_blocking();
        }
    }
}
