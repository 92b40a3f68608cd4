//! How the engine itself stands: running, stopping, or cut off from its store.
//!
//! Owns the first moment at which the engine knew that its store failed, and what follows from it once: everything in
//! memory stops, and everybody who waits hears why. It never decides that a store has failed, and repairs nothing.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Engine, EngineError, Shared};
use crate::clock::Timestamp;
use crate::store::StoreError;

/// How an engine stands; see [`Engine::health`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It takes calls and drives runs.
    Running,
    /// It was told to stop, or has stopped: it takes no calls.
    ShuttingDown,
    /// Its store failed. Nothing was acknowledged since, and nothing will be: [`Engine::reopen`] goes on.
    StoreFailed(StoreFailure),
}

/// What stopped a store, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreFailure {
    /// The first error. Those after it are consequences.
    pub error: String,
    /// When the engine learned of it.
    pub since: Timestamp,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::ShuttingDown => f.write_str("shutting down"),
            Self::StoreFailed(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, since } = self;
        write!(f, "the store failed ({since}): {error}")
    }
}

/// What an engine knows of its store's failure: nothing, or the first.
#[derive(Default)]
pub(super) struct Watched(OnceLock<StoreFailure>);

impl Engine {
    /// Returns how the engine stands. Cheap, and needs no type of a workflow: fit for a health check.
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Health, Result};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// let engine = Engine::builder().open_in_memory().await?;
    /// assert_eq!(engine.health(), Health::Running);
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        let shared = self.shared();
        match shared.store_failure() {
            Some(failure) => Health::StoreFailed(failure.clone()),
            None if shared.is_closing() => Health::ShuttingDown,
            None => Health::Running,
        }
    }

    /// Waits until the engine's store fails, and returns why. It resolves for no other reason, so a service can wait
    /// for it beside its work, and then stop or [reopen](Self::reopen).
    ///
    /// ```
    /// # use workflow_runtime::{Engine, Result};
    /// # async fn serve(_: &Engine) -> Result<()> { Ok(()) }
    /// # async fn example(mut engine: Engine) -> Result<()> {
    /// loop {
    ///     tokio::select! {
    ///         served = serve(&engine) => return served,
    ///         failure = engine.failed() => eprintln!("{failure}"),
    ///     }
    ///     engine = engine.reopen().await?;
    /// }
    /// # }
    /// ```
    pub async fn failed(&self) -> StoreFailure {
        let shared = self.shared();
        loop {
            if let Some(failure) = shared.store_failure() {
                return failure.clone();
            }
            shared.store.failed().await;
        }
    }
}

impl Shared {
    /// Returns why the store failed, if it did. Whoever asks first says so in the log.
    pub(super) fn store_failure(&self) -> Option<&StoreFailure> {
        if let Some(known) = self.failed.0.get() {
            return Some(known);
        }
        let error = self.store.failure()?;
        Some(self.failed.0.get_or_init(|| {
            tracing::error!(
                error,
                "the store failed: nothing is acknowledged until it is opened again"
            );
            let since = self.services.clock.now();
            StoreFailure { error, since }
        }))
    }

    /// Stops everything if the store has failed: what is in memory cannot go on, and nobody is to wait for it.
    pub(super) fn stop_if_failed(&self) {
        if let Some(failure) = self.store_failure() {
            let error = failure.error.clone();
            self.keys.close();
            self.stop_all(&StoreError::Failed { error }.into());
        }
    }

    /// Says why a call is not taken: the engine's store failed, or it is stopping otherwise.
    pub(super) fn refusal(&self, otherwise: &str) -> EngineError {
        match self.store_failure() {
            Some(failure) => StoreError::Failed {
                error: failure.error.clone(),
            }
            .into(),
            None => EngineError::Stopped(otherwise.into()),
        }
    }
}

/// Starts the task that waits for the store to fail.
pub(super) fn serve(shared: &Arc<Shared>) {
    let (weak, failed) = (Arc::downgrade(shared), shared.store.failed());
    shared.plan.spawn(async move {
        failed.await;
        if let Some(shared) = weak.upgrade() {
            shared.stop_if_failed();
        }
    });
}

/// What goes on in an engine and cannot be called back: the tasks of its runs, until they have really ended, and
/// blocking bodies, until they return.
#[derive(Default)]
pub(crate) struct UnderWay {
    count: AtomicUsize,
    over: Notify,
}

impl UnderWay {
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.over.notify_waiters();
        }
    }

    /// Waits until nothing goes on, but not for longer than that. Returns how much does.
    pub(super) async fn over(&self, at_most: Duration) -> usize {
        let over = async {
            loop {
                let mut over = std::pin::pin!(self.over.notified());
                over.as_mut().enable();
                if self.count.load(Ordering::Acquire) == 0 {
                    return;
                }
                over.await;
            }
        };
        let _ = tokio::time::timeout(at_most, over).await;
        self.count.load(Ordering::Acquire)
    }
}
