//! Going on after the store failed, without a new process.
//!
//! Owns the order: everything of the failed engine has ended before the store is opened again, because a body that
//! is still at work must not meet itself. What is found then is resumed as after a crash. It never takes a working
//! engine from anybody.

use std::time::Duration;

use super::{Engine, EngineBuilder, EngineError, Health};

/// How long bodies that cannot be stopped may take to return.
const GRACE: Duration = Duration::from_secs(30);

/// What it takes to open an engine again.
pub(super) struct Again {
    /// How it was configured.
    pub(super) recipe: EngineBuilder,
    /// Whether it was done. Held while it is being done.
    pub(super) done: tokio::sync::Mutex<bool>,
}

impl Again {
    pub(super) fn with(recipe: EngineBuilder) -> Self {
        Self {
            recipe,
            done: tokio::sync::Mutex::new(false),
        }
    }
}

impl Engine {
    /// Opens the engine's store again after it [failed](Self::failed), with the same configuration, and goes on with
    /// every unfinished run.
    ///
    /// What was acknowledged is there; what was not may or may not be: ask again, under the same key. Steps that were in
    /// flight run again with the same step ids, as after a crash. First everything that this engine had under way has
    /// to end: bodies of steps are dropped where they wait, [blocking](macro@crate::step) ones and work under
    /// [`Engine::once`] are waited for.
    ///
    /// This engine and the handles to its runs stay as they are and answer with the failure: get new ones from
    /// the new engine. Relays that were not given to the builder but [started later](super::OutboxHandle::relay) have to
    /// be started again.
    ///
    /// # Errors
    ///
    /// If the engine's store has not failed, the engine was reopened already, something is still under way after
    /// 30 s, or the store cannot be opened: then it can be tried again.
    pub async fn reopen(&self) -> Result<Self, EngineError> {
        let shared = self.shared();
        let refuse = |problem: &str| {
            Err(EngineError::Reopen {
                problem: problem.into(),
            })
        };
        if !matches!(self.health(), Health::StoreFailed(_)) {
            return refuse(
                "its store has not failed: `shutdown` stops it, then `Engine::builder()` opens another",
            );
        }
        let mut done = shared.again.done.lock().await;
        if *done {
            return refuse("that was done already: use the engine that it gave");
        }
        shared.stop_if_failed();
        let ended = tokio::time::timeout(GRACE, async {
            shared.keys.drained().await;
            shared.relays.drained().await;
        });
        let left = shared.services.under_way.over(GRACE).await;
        if left > 0 || ended.await.is_err() {
            return refuse(
                "bodies of steps, handlers of an outbox or work under `once` are still at it, and must not be done twice at a \
                 time: try again when they have returned",
            );
        }
        let store = shared.store.open_again().await?;
        let engine = shared.again.recipe.clone().open_on(store).await?;
        *done = true;
        Ok(engine)
    }
}
