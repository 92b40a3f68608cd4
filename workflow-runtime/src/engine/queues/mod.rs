//! Queues: runs that wait for their turn on disk, and a dispatcher that lets them begin.
//!
//! A queued run is created asleep, in one commit with its entry: a note, sorted by priority and arrival.
//! To dispatch is one commit too: entries become slots, guarded by the queue's *turn*, which every
//! dispatch changes; so no two processes give the same room away. A slot is held as long as its note is
//! there, its run has not ended and its lease is not over: the run's own last record frees it,
//! and no crash can leak one. The files: `limits` is what a queue allows, `note` what is kept, `enqueue` and
//! `debounce` put runs in, `dispatch` takes them out, `handle` is for whoever looks after a queue.

mod debounce;
mod dispatch;
mod enqueue;
mod handle;
mod limits;
mod note;
mod round;

#[cfg(test)]
mod tests;

pub use debounce::{Debounce, Debounced};
pub(super) use dispatch::serve;
pub(super) use enqueue::{Place, Placing, awaits_its_turn, enqueue, entry, joining};
pub use handle::{QueueDescription, QueueHandle};
pub use limits::Queue;

use super::{Engine, EngineError, Shared};
use crate::store::{Changes, Commit, Committed, Guard, NoteChange};
use note::Settings;

impl Engine {
    /// Returns a handle to a queue, to change it while it is in use or to look at it.
    ///
    /// ```no_run
    /// # use workflow_runtime::{Engine, Result};
    /// # async fn example(engine: Engine) -> Result<()> {
    /// let mail = engine.queue("mail");
    /// mail.set(|queue| queue.concurrency(2)).await?;
    /// println!("{} are waiting", mail.describe().await?.waiting);
    /// # Ok(())
    /// # }
    /// ```
    pub fn queue(&self, name: &str) -> QueueHandle {
        QueueHandle::new(self.shared(), name)
    }
}

/// Makes what the builder declared durable. A queue that was changed while it was in use stays so, until
/// its declaration changes.
pub(super) async fn declare(shared: &Shared, queues: Vec<Queue>) -> Result<(), EngineError> {
    for Queue { name, limits } in queues {
        change(shared, &name, |known| match known {
            Some(known) if known.declared == limits => known,
            known => Settings {
                declared: limits.clone(),
                live: limits.clone(),
                paused: known.is_some_and(|known| known.paused),
            },
        })
        .await?;
    }
    Ok(())
}

/// Changes a queue's settings.
async fn change(
    shared: &Shared,
    name: &str,
    change: impl Fn(Option<Settings>) -> Settings,
) -> Result<(), EngineError> {
    let key = note::settings_key(&shared.services.namespace, name);
    loop {
        let found = shared.store.note(key.clone()).await?;
        let known = found
            .as_ref()
            .map(|bytes| note::read(name, bytes))
            .transpose()?;
        let value = super::notes::encode(&change(known));
        if found.as_ref() == Some(&value) {
            return Ok(());
        }
        let commit = Commit {
            guards: vec![Guard {
                key: key.clone(),
                expected: found,
            }],
            changes: Changes {
                notes: vec![NoteChange {
                    key: key.clone(),
                    value: Some(value),
                }],
                ..Changes::default()
            },
        };
        if shared.store.commit(commit).await? == Committed::Done {
            shared.plan.queues.ring();
            return Ok(());
        }
    }
}

/// Refuses a queue that nobody has declared.
pub(super) async fn is_declared(shared: &Shared, name: &str) -> Result<(), EngineError> {
    settings(shared, name).await.map(drop)
}

/// Reads a queue's settings.
async fn settings(shared: &Shared, name: &str) -> Result<Settings, EngineError> {
    let key = note::settings_key(&shared.services.namespace, name);
    match shared.store.note(key).await? {
        Some(bytes) => note::read(name, &bytes),
        None => Err(refuse(
            name,
            format!(
                "it is not declared: add `.queue(Queue::named(\"{name}\"))` to `Engine::builder()`"
            ),
        )),
    }
}

fn refuse(name: &str, problem: impl Into<String>) -> EngineError {
    EngineError::Queue {
        name: name.into(),
        problem: problem.into(),
    }
}

/// Hands hostile bytes to the readers of its notes; see `hostile`.
#[cfg(feature = "testing")]
pub(super) fn hostile(bytes: &[u8]) {
    let _ = super::notes::decode::<note::Settings>(bytes);
    let _ = super::notes::decode::<note::Turn>(bytes);
    let _ = super::notes::decode::<note::Pending>(bytes);
}
