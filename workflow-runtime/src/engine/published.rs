//! Published state: what runs say about themselves to whoever asks.
//!
//! Owns the reader's side. Reading never disturbs the run: it looks at the note that the run's last
//! append left.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::lines::{self, Line};
use super::{EngineError, RunStatus, Shared, handle, notes};
use crate::ids::RunId;
use crate::payload::Place;

/// Reads the latest published value of a name, as a payload of the line's first run.
pub(super) async fn latest(
    shared: &Shared,
    run: RunId,
    name: &str,
) -> Result<Option<(Bytes, RunId)>, EngineError> {
    let first = Line::of(shared, run).await?.first; // it may be of another namespace
    let found = shared.store.note(notes::published(first, name)).await?;
    Ok(found.map(|payload| (payload, first)))
}

/// Reads a published value as a type.
pub(super) fn read<T: DeserializeOwned>(
    shared: &Shared,
    run: RunId,
    (payload, first): (&[u8], RunId),
) -> Result<T, EngineError> {
    let payloads = shared.services.payloads.at(Place::published(first));
    let decoded = payloads.decode(payload);
    decoded.map_err(|problem| EngineError::Payload {
        what: "published value",
        run,
        problem,
    })
}

/// Follows one published value of a run; see [`RunHandle::watch`](super::RunHandle::watch).
pub struct Watch<T> {
    shared: Weak<Shared>,
    run: RunId,
    name: Box<str>,
    seen: Option<Bytes>,
    _value: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({} of {})", self.name, self.run)
    }
}

impl<T: DeserializeOwned> Watch<T> {
    pub(super) fn new(shared: Weak<Shared>, run: RunId, name: &str) -> Self {
        Self {
            shared,
            run,
            name: name.into(),
            seen: None,
            _value: PhantomData,
        }
    }

    /// Waits for a value that this watch has not given yet: the present one first, then each time
    /// the latest. `None` once the run has ended and its last value was given.
    ///
    /// # Errors
    ///
    /// If there is no such run, the value is not of the type, or the store or the engine stopped.
    pub async fn changed(&mut self) -> Result<Option<T>, EngineError> {
        loop {
            let shared = self.upgrade()?;
            // Enlisted before looking, so that no change in between is missed.
            let changed = shared.published.notified();
            let left = shared.left.notified();
            // Asked first: what is read after it is the last value.
            let ended = !matches!(
                handle::status(&shared, lines::newest(&shared, self.run).await?).await?,
                RunStatus::Active | RunStatus::Parked(_)
            );
            let found = latest(&shared, self.run, &self.name).await?;
            let is_new = |found: &(Bytes, RunId)| self.seen.as_ref() != Some(&found.0);
            if let Some((payload, first)) = found.filter(is_new) {
                let value = read(&shared, self.run, (&payload, first))?;
                self.seen = Some(payload);
                return Ok(Some(value));
            }
            if ended {
                return Ok(None);
            }
            if shared.is_closing() {
                return Err(shared.refusal("it is shutting down"));
            }
            tokio::select! {
                biased; // the same in every run of a test
                () = changed => {}
                () = left => {}
            }
        }
    }

    fn upgrade(&self) -> Result<Arc<Shared>, EngineError> {
        self.shared
            .upgrade()
            .ok_or_else(|| EngineError::Stopped("it was dropped".into()))
    }
}
