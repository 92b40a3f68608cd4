//! Stopping an engine in an orderly way.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{EngineError, Owner, duplicates, poison};
use crate::store::{BoxFuture, StoreError};

/// How long bodies in flight may take to finish, unless told otherwise.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// An engine about to stop; see [`Engine::shutdown`](super::Engine::shutdown).
#[must_use = "nothing is stopped until this is awaited"]
pub struct Shutdown {
    owner: Arc<Owner>,
    grace: Duration,
}

impl Shutdown {
    pub(super) fn new(owner: Arc<Owner>) -> Self {
        Self {
            owner,
            grace: DEFAULT_GRACE,
        }
    }

    /// Sets how long bodies in flight may take to finish; 30 s otherwise. With zero they are left
    /// for the next engine at once.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    async fn run(self) -> Result<(), EngineError> {
        let shared = &self.owner.shared;
        shared.closing.store(true, Ordering::Release);
        shared.plan.stop();
        shared.keys.close();
        shared.relays.close();
        let entries: Vec<_> = shared.runs().values().cloned().collect();
        entries.iter().for_each(|entry| entry.begin_closing());
        drop(entries);
        let all_left = async {
            loop {
                let left = shared.left.notified();
                if shared.runs().is_empty() {
                    break;
                }
                left.await;
            }
            shared.keys.drained().await;
            shared.relays.drained().await;
        };
        let _ = tokio::time::timeout(self.grace, all_left).await;
        shared.stop_all(&shared.refusal("the engine was shut down"));
        if let Some(failure) = shared.store_failure() {
            let _ = shared.store.close().await; // lets go of it
            let error = failure.error.clone();
            return Err(StoreError::Failed { error }.into());
        }
        poison::forgive_all(shared).await?;
        if let Err(error) = duplicates::flush(shared).await {
            tracing::warn!(%error, "the newest duplicates are not on record");
        }
        shared.store.close().await?;
        Ok(())
    }
}

impl IntoFuture for Shutdown {
    type Output = Result<(), EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
