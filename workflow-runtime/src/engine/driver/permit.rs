//! The right to be active, among a limited number of runs.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::BoxFuture;

/// The right to be active, among a limited number of runs.
pub(super) enum Permit {
    Held(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit),
    Asked(BoxFuture<'static, OwnedSemaphorePermit>),
    Released,
}

impl Permit {
    /// Gets or keeps the right.
    pub(super) fn poll(&mut self, active: &Arc<Semaphore>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Held(_) => return Poll::Ready(()),
                Self::Asked(asked) => match asked.as_mut().poll(cx) {
                    Poll::Ready(permit) => *self = Self::Held(permit),
                    Poll::Pending => return Poll::Pending,
                },
                Self::Released => {
                    *self = match active.clone().try_acquire_owned() {
                        Ok(permit) => Self::Held(permit),
                        Err(_) => Self::Asked(Box::pin(ask(active.clone()))),
                    };
                }
            }
        }
    }
}

async fn ask(active: Arc<Semaphore>) -> OwnedSemaphorePermit {
    match active.acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => std::future::pending().await, // closed: the engine is gone
    }
}
