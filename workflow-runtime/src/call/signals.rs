//! Waiting for signals: named values that others send to a run.
//!
//! Owns the futures that take received signals. A wait has no id and leaves no record: what is
//! recorded is the signal, and it goes to whoever is polled first when it is delivered, which is
//! the same in every replay. A wait that is dropped takes nothing.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::home::{What, assert_at_home, refuse_outside};
use crate::context::{Scope, current_scope};
use crate::engine::core::{RunCore, Trouble};
use crate::engine::letters::check_name;
use crate::engine::obstacle::Obstacle;
use crate::error::{Error, Result};
use crate::payload::{Payloads, Place};

/// Waits for the next signal of a name, through crashes and restarts.
///
/// A signal that was sent before is given at once; several are given in the order in which they
/// were accepted, each to one wait. Send one with [`RunHandle::signal`](crate::RunHandle::signal) or
/// [`Engine::signal`](crate::Engine::signal).
///
/// ```
/// use std::time::Duration;
/// use workflow_runtime::{Result, timeout, wait_for, workflow};
///
/// #[workflow]
/// async fn approval(order: u64) -> Result<String> {
///     match timeout(Duration::from_secs(86_400), wait_for::<String>("approved")).await {
///         Ok(by) => Ok(format!("{order} approved by {}", by?)),
///         Err(_elapsed) => Ok(format!("{order} was not approved in time")),
///     }
/// }
/// ```
///
/// # Errors
///
/// If what was sent is not a `T`. The signal is used up all the same.
///
/// # Panics
///
/// Panics when polled outside a workflow.
#[track_caller]
pub fn wait_for<T: DeserializeOwned>(name: &str) -> WaitFor<T> {
    WaitFor {
        wait: Wait::new(name),
        _value: PhantomData,
    }
}

/// All signals of a name, in order, as a stream that never ends.
///
/// # Panics
///
/// Panics when polled outside a workflow.
#[track_caller]
pub fn signals<T: DeserializeOwned>(name: &str) -> Signals<T> {
    Signals {
        wait: Wait::new(name),
        _value: PhantomData,
    }
}

/// The future of [`wait_for`].
#[must_use = "a wait does nothing unless it is awaited"]
pub struct WaitFor<T> {
    wait: Wait,
    _value: PhantomData<fn() -> T>,
}

/// The stream of [`signals`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct Signals<T> {
    wait: Wait,
    _value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Signals<T> {
    /// Waits for the next one.
    ///
    /// # Errors
    ///
    /// If what was sent is not a `T`.
    pub async fn next(&mut self) -> Result<T> {
        std::future::poll_fn(|cx| self.wait.poll(cx)).await
    }
}

impl<T: DeserializeOwned> Future for WaitFor<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.wait.poll(cx)
    }
}

impl<T: DeserializeOwned> Stream for Signals<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.wait.poll(cx).map(Some)
    }
}

/// One wait at a time for signals of one name.
pub(super) struct Wait {
    name: Box<str>,
    site: &'static Location<'static>,
    /// Where it was made; `None` outside a workflow.
    made_in: Option<Arc<Scope>>,
    /// Its place in the line, while it waits.
    ticket: Option<u64>,
    /// Its name is one that a signal can have.
    checked: bool,
}

impl Wait {
    #[track_caller]
    fn new(name: &str) -> Self {
        let mut wait = Self::made_in(name, Location::caller(), current_scope());
        wait.checked = false;
        wait
    }

    /// Waits for signals of a name that is known to be fit.
    pub(super) fn made_in(
        name: &str,
        site: &'static Location<'static>,
        made_in: Option<Arc<Scope>>,
    ) -> Self {
        Self {
            name: name.into(),
            site,
            made_in,
            ticket: None,
            checked: true,
        }
    }

    pub(super) fn poll<T: DeserializeOwned>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let Some(scope) = &self.made_in else {
            refuse_outside(
                format_args!("wait_for(\"{}\") at {}", self.name, self.site),
                "signals are sent to runs; wait in the workflow, and give what came to the step",
            )
        };
        assert_at_home(scope, What::Signal(&self.name), self.site);
        let core = scope.core();
        if !self.checked {
            if let Err(problem) = check_name("signal", &self.name) {
                let error = Error::fatal(problem).context(format!("wait_for() at {}", self.site));
                core.trouble(Trouble::Fail(error));
                return Poll::Pending;
            }
            self.checked = true;
        }
        let taken = core.take_signal(
            &self.name,
            &mut self.ticket,
            self.site,
            cx.waker(),
            check::<T>,
        );
        match taken {
            Some(payload) => self.decode(core, &payload),
            None => Poll::Pending,
        }
    }

    fn decode<T: DeserializeOwned>(&self, core: &RunCore, payload: &Bytes) -> Poll<Result<T>> {
        let payloads = core.services.payloads.at(Place::signal(core.line().0));
        let what = format_args!(
            "the signal `{}` that was waited for at {}",
            self.name, self.site
        );
        Poll::Ready(match payloads.decode(payload) {
            Ok(value) => Ok(value),
            // Not the workflow's to judge: with the right key the value is there.
            Err(problem) if problem.is_codecs() => {
                let obstacle = Obstacle::unreadable(&what.to_string(), &problem);
                core.trouble(Trouble::Park(obstacle));
                return Poll::Pending;
            }
            Err(problem) => Err(Error::fatal(problem).context(what)),
        })
    }
}

fn check<T: DeserializeOwned>(
    payloads: &Payloads,
    payload: &[u8],
) -> Result<(), crate::payload::PayloadError> {
    payloads.decode::<T>(payload).map(drop)
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let (Some(ticket), Some(scope)) = (self.ticket, &self.made_in) {
            scope.core().drop_wait(&self.name, ticket);
        }
    }
}
