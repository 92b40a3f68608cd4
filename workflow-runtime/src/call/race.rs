//! Racing against time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::timer::{Sleep, sleep};

/// Gives a future a durable time limit.
///
/// The limit is a timer in the journal, so it holds across crashes and restarts. If both are ready
/// at once, the future wins. When the time is up, the future is dropped with the [`Timeout`]: a
/// step's body stops where it is, a child is cancelled.
///
/// ```
/// # use std::time::Duration;
/// # use workflow_runtime::{Result, step, timeout, workflow};
/// # #[step] async fn quote(_item: &str) -> Result<u32> { Ok(1) }
/// #[workflow]
/// async fn price(item: String) -> Result<u32> {
///     match timeout(Duration::from_secs(5), quote(&item)).await {
///         Ok(quoted) => quoted,
///         Err(_elapsed) => Ok(100),
///     }
/// }
/// ```
///
/// # Panics
///
/// Panics when polled outside a workflow: use `tokio::time::timeout` in steps and elsewhere.
#[track_caller]
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    Timeout {
        future,
        sleep: sleep(limit),
        limit,
    }
}

pin_project! {
    /// The future of [`timeout`].
    #[must_use = "a timeout does nothing unless it is awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
        limit: Duration,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let limit = *this.limit;
        Pin::new(this.sleep)
            .poll(cx)
            .map(|()| Err(Elapsed { limit }))
    }
}

/// Says that the time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed {
    limit: Duration,
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not done within {:?}", self.limit)
    }
}

impl std::error::Error for Elapsed {}
