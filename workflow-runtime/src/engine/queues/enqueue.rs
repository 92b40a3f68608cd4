//! Starting a run in a queue: the run, asleep, and its entry, in one commit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::note::{Entry, delayed_key, waiting_key};
use super::{refuse, settings};
use crate::clock::Timestamp;
use crate::engine::keyed::Terms;
use crate::engine::prepared::{EncodedCall, Prepared};
use crate::engine::{EngineError, Shared, notes, successors};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{Changes, Commit, Committed, NoteChange, RunState};

/// Where in which queue a run is to be put.
#[derive(Debug, Clone, Default)]
pub(in crate::engine) struct Placing {
    pub(in crate::engine) queue: Option<Box<str>>,
    pub(in crate::engine) queue_key: Option<Key>,
    pub(in crate::engine) priority: Option<i32>,
    pub(in crate::engine) delay: Option<Duration>,
}

impl Placing {
    /// Returns the queue's name, or `None` if the run is not to be queued.
    ///
    /// # Errors
    ///
    /// If something is asked for that only a queue can do.
    pub(in crate::engine) fn queue(&self) -> Result<Option<&str>, EngineError> {
        if let Some(problem) = self.queue_key.as_ref().and_then(Key::problem) {
            return Err(EngineError::Key(problem));
        }
        let asks = self.queue_key.is_some() || self.priority.is_some() || self.delay.is_some();
        match &self.queue {
            Some(queue) => Ok(Some(queue)),
            None if asks => Err(refuse(
                "",
                "`.queue_key(..)`, `.priority(..)` and `.delay(..)` need a queue: add `.queue(\"…\")`",
            )),
            None => Ok(None),
        }
    }

    pub(super) fn queue_key(&self) -> Option<Box<str>> {
        self.queue_key.as_ref().map(|key| key.as_str().into())
    }
}

/// A time for an arrival that is later than all before it in this engine.
pub(super) fn arrival(shared: &Shared) -> Timestamp {
    shared.plan.arrived(shared.services.clock.now())
}

/// Marks a run as one that its turn alone may begin: from its header and journal it could as well be one
/// that has begun and waits for a signal.
pub(in crate::engine) fn awaits_its_turn(run: RunId) -> NoteChange {
    NoteChange {
        key: notes::queued(run),
        value: Some(Bytes::new()),
    }
}

/// A place in a queue, for a run that joins it later. The order of fields is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine) struct Place {
    pub(in crate::engine) queue: Box<str>,
    pub(in crate::engine) queue_key: Option<Box<str>>,
    pub(in crate::engine) priority: i32,
    pub(in crate::engine) delay_micros: Option<u64>,
}

impl Place {
    fn new(queue: &str, placing: &Placing) -> Self {
        let micros = |delay: Duration| u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        Self {
            queue: queue.into(),
            queue_key: placing.queue_key(),
            priority: placing.priority.unwrap_or_default(),
            delay_micros: placing.delay.map(micros),
        }
    }

    /// The entry of a run that joins the queue now.
    pub(in crate::engine) fn entry(&self, shared: &Shared, run: RunId) -> NoteChange {
        let namespace = &shared.services.namespace;
        let delay = Duration::from_micros(self.delay_micros.unwrap_or_default());
        let entry = Entry {
            run,
            queue_key: self.queue_key.clone(),
            priority: self.priority,
            ready_at: arrival(shared).after(delay),
        };
        let key = match self.delay_micros {
            Some(_) => delayed_key(namespace, &self.queue, &entry),
            None => waiting_key(namespace, &self.queue, &entry),
        };
        NoteChange {
            key,
            value: Some(notes::encode(&entry)),
        }
    }
}

/// The notes of a run that arrives in a queue now, to be written with its creation.
pub(in crate::engine) fn entry(shared: &Shared, queue: &str, run: RunId) -> [NoteChange; 2] {
    let place = Place::new(queue, &Placing::default());
    [place.entry(shared, run), awaits_its_turn(run)]
}

/// Puts a run into a queue. `None`: its key does not stand as it did, look again.
pub(in crate::engine) async fn enqueue(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    terms: Terms,
    queue: &str,
    placing: &Placing,
) -> Result<Option<RunId>, EngineError> {
    settings(shared, queue).await?;
    let place = Place::new(queue, placing);
    if let Some(old) = terms.replaces {
        return successors::replace(shared, call, terms, old, Some(place)).await;
    }
    let Terms {
        naming,
        guards,
        mut notes,
        ..
    } = terms;
    let asleep = RunState::Asleep { wake_at: None };
    let new = Prepared::new(&shared.services, call, naming, asleep).new;
    let run = new.header.run;
    notes.push(place.entry(shared, run));
    notes.push(awaits_its_turn(run));
    let changes = Changes {
        create: vec![new],
        notes,
        ..Changes::default()
    };
    match shared.store.commit(Commit { guards, changes }).await? {
        Committed::Done => {
            shared.plan.queues.nudge();
            Ok(Some(run))
        }
        Committed::Refused(_) => Ok(None),
    }
}

/// What puts a run that is created asleep into a queue, for whoever creates it in a commit of their own.
///
/// # Errors
///
/// If there is no such queue, or the store fails.
pub(in crate::engine) async fn joining(
    shared: &Shared,
    queue: &str,
    placing: &Placing,
    run: RunId,
) -> Result<[NoteChange; 2], EngineError> {
    settings(shared, queue).await?;
    let place = Place::new(queue, placing);
    Ok([place.entry(shared, run), awaits_its_turn(run)])
}
