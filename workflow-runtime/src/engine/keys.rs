//! The engine's door to keys that guard work outside of runs.
//!
//! Owns the background task that sweeps what expired. What a key means is the business of `idempotency`.

use std::sync::Arc;
use std::time::Duration;

use super::{Engine, Shared};
use crate::idempotency::{self, EngineKeys, Once};
use crate::key::Key;

/// How often the background task sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

impl Engine {
    /// Returns the keys of this engine's namespace, for [`Once::new`] and the HTTP layer.
    pub fn keys(&self) -> EngineKeys {
        EngineKeys::new(self.shared().keys.clone(), self.clone())
    }

    /// Guards a piece of work outside of a workflow by a key: it runs once, and a repetition gets the recorded
    /// outcome.
    ///
    /// One durable write for the first execution, none for a repetition. *At least once*: if the process dies between
    /// the work's effect and the record of its outcome, a repetition runs it again; hand the key on to whoever
    /// does the effect.
    ///
    /// ```
    /// use std::time::Duration;
    /// use workflow_runtime::{Engine, Error};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::builder().open_in_memory().await?;
    /// let request = ("ada", 500);
    /// let receipt = engine
    ///     .once("order-123")
    ///     .body(&request)
    ///     .ttl(Duration::from_secs(90 * 24 * 3600))
    ///     .run(|| async { Ok::<_, Error>(format!("charged {} {}", request.0, request.1)) })
    ///     .await?;
    /// assert_eq!(receipt, "charged ada 500");
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(&self, key: impl Into<Key>) -> Once<'static> {
        let payloads = self.shared().keys.payloads();
        Once::shared(Arc::new(self.keys()), payloads, key.into())
    }
}

/// Starts the background task.
pub(super) fn serve(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    shared.plan.spawn(async move {
        loop {
            let Some(shared) = weak.upgrade().filter(|shared| !shared.is_closing()) else {
                return;
            };
            match idempotency::sweep(&shared.keys).await {
                Ok(0) => {}
                Ok(keys) => tracing::info!(keys, "expired keys were removed"),
                Err(error) if shared.store.failure().is_some() => {
                    tracing::debug!(%error, "the sweep of keys stops: the store has");
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "the sweep of keys failed: trying again later")
                }
            }
            let pause = shared.services.clock.chore(SWEEP_EVERY);
            drop(shared);
            tokio::time::sleep(pause).await;
        }
    });
}
