//! How far a run in memory is, and whoever waits for it to get further.
//!
//! Owns one value and one list of waiters. A `tokio::sync::watch` would do the same at five times
//! the size, and an engine keeps one per run.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::EngineError;
use crate::clock::Timestamp;
use crate::journal::End;
use crate::store::StoreError;

/// How far a run in memory is.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// It is being created.
    Creating,
    /// It runs, waits or is queued; or sleeps, and somebody waits for it.
    Active,
    /// It sleeps, until then or for a letter. Only told to the engine, never to those who wait.
    Asleep(Option<Timestamp>),
    /// It ended.
    Ended(End),
    /// It is parked.
    Parked,
    /// It was not created: a run of that id is in the store, or the store failed. The store knows
    /// how it stands.
    NotCreated,
    /// This engine no longer drives it.
    Stopped(Box<EngineError>),
}

impl Progress {
    /// This engine no longer drives it, because of that.
    pub(crate) fn stopped(reason: impl Into<String>) -> Self {
        Self::Stopped(Box::new(EngineError::Stopped(reason.into())))
    }
}

impl From<StoreError> for Progress {
    fn from(error: StoreError) -> Self {
        Self::Stopped(Box::new(error.into()))
    }
}

/// The current progress of one run.
pub(crate) struct Tracker {
    progress: Mutex<Progress>,
    changed: Notify,
}

impl Tracker {
    pub(crate) fn new(progress: Progress) -> Self {
        Self {
            progress: Mutex::new(progress),
            changed: Notify::new(),
        }
    }

    pub(crate) fn set(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
        self.changed.notify_waiters();
    }

    /// Says whether the progress is such a one.
    pub(crate) fn is(&self, such: impl Fn(&Progress) -> bool) -> bool {
        such(&self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until `reached` says so.
    pub(crate) async fn wait_for(&self, reached: impl Fn(&Progress) -> bool) -> Progress {
        loop {
            // Enlisted before looking, so that no change in between is missed.
            let changed = self.changed.notified();
            {
                let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
                if reached(&progress) {
                    return progress.clone();
                }
            }
            changed.await;
        }
    }
}
