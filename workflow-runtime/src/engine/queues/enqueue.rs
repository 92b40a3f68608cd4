//! Starting a run in a queue: the run, asleep, and its entry, in one commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::note::{Entry, delayed_key, waiting_key};
use super::{refuse, settings};
use crate::clock::Timestamp;
use crate::engine::generations::Generation;
use crate::engine::prepared::{EncodedCall, Naming, Prepared};
use crate::engine::{EngineError, Shared, notes};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{Changes, Commit, Committed, NoteChange, Refusal, RunHeader, RunState};

/// The time of the newest arrival in this process: no two are the same, so that order is kept.
static NEWEST: AtomicU64 = AtomicU64::new(0);

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

/// A time for an arrival that is later than all before it in this process.
pub(super) fn arrival(shared: &Shared) -> Timestamp {
    let now = shared.services.clock.now().as_micros();
    let newer = |newest: u64| Some(now.max(newest + 1));
    let before = NEWEST.fetch_update(Ordering::AcqRel, Ordering::Acquire, newer);
    Timestamp::from_micros(now.max(before.unwrap_or_default() + 1))
}

/// Marks a run as one that its turn alone may begin: from its header and journal it could as well be one
/// that has begun and waits for a signal.
pub(super) fn awaits_its_turn(run: RunId) -> NoteChange {
    NoteChange {
        key: notes::queued(run),
        value: Some(Bytes::new()),
    }
}

/// Puts a run into a queue. `Some` if there is a run of that key already.
pub(in crate::engine) async fn enqueue(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    key: Option<&Key>,
    queue: &str,
    placing: &Placing,
) -> Result<(RunId, Option<RunHeader>), EngineError> {
    settings(shared, queue).await?;
    loop {
        if shared.is_closing() {
            return Err(EngineError::Stopped("it is shutting down".into()));
        }
        let mut guards = Vec::new();
        let naming = match key {
            Some(key) => {
                let generation = Generation::of(shared, &call.workflow, key.as_str()).await?;
                guards.push(generation.guard);
                let (namespace, key) = (&shared.services.namespace, key.as_str());
                Naming::keyed(namespace, &call.workflow, key, generation.number)
            }
            None => Naming::unkeyed(shared.services.new_run_id()),
        };
        let asleep = RunState::Asleep { wake_at: None };
        let new = Prepared::new(&shared.services, call, naming, asleep).new;
        let run = new.header.run;
        let changes = Changes {
            create: vec![new],
            notes: entry_of(shared, queue, placing, run).into(),
            ..Changes::default()
        };
        match shared.store.commit(Commit { guards, changes }).await? {
            Committed::Done => {
                shared.plan.queues.nudge();
                return Ok((run, None));
            }
            Committed::Refused(Refusal::Exists(header)) => return Ok((run, Some(*header))),
            // The key has a newer generation since: look again.
            Committed::Refused(_) => {}
        }
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
    Ok(entry_of(shared, queue, placing, run))
}

fn entry_of(shared: &Shared, queue: &str, placing: &Placing, run: RunId) -> [NoteChange; 2] {
    let entry = Entry {
        run,
        queue_key: placing.queue_key(),
        priority: placing.priority.unwrap_or_default(),
        ready_at: arrival(shared).after(placing.delay.unwrap_or_default()),
    };
    let key = match placing.delay {
        Some(_) => delayed_key(&shared.services.namespace, queue, &entry),
        None => waiting_key(&shared.services.namespace, queue, &entry),
    };
    let value = Some(notes::encode(&entry));
    [NoteChange { key, value }, awaits_its_turn(run)]
}
