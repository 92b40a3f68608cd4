//! Debouncing: several starts become one run with the latest input, once it is quiet.
//!
//! Nothing is created before that: the input waits in a note, which each start writes over. The id of the
//! run to come is chosen by the first start, and every start up to the quiet moment is told the same.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use super::enqueue::{arrival, awaits_its_turn};
use super::note::{Entry, Pending, pending_key, read, waiting_key};
use super::{Placing, refuse, settings};
use crate::clock::Timestamp;
use crate::engine::prepared::{EncodedCall, Naming, Prepared};
use crate::engine::{EngineError, Shared, notes};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{BoxFuture, Changes, Commit, Committed, Guard, NoteChange, NoteKey, RunState};

/// A start that waits for quiet; see [`Start::debounce`](crate::Start::debounce).
#[must_use = "nothing is started until this is awaited"]
pub struct Debounce {
    pub(in crate::engine) shared: Arc<Shared>,
    pub(in crate::engine) call: Result<EncodedCall, EngineError>,
    pub(in crate::engine) run_key: Option<Key>,
    pub(in crate::engine) placing: Placing,
    pub(in crate::engine) key: Key,
    pub(in crate::engine) quiet: Duration,
}

/// What a debounced start is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Debounced {
    /// The run to come. It is there when the quiet time is over; `engine.run(id)` knows it from then on.
    pub run: RunId,
    /// When the quiet time is over, unless another start comes before.
    pub due_at: Timestamp,
}

impl Debounce {
    async fn start(self) -> Result<Debounced, EngineError> {
        let shared = &self.shared;
        let call = self.call?;
        let Some(queue) = self.placing.queue()? else {
            return Err(refuse(
                "",
                "`.debounce(..)` needs a queue: add `.queue(\"…\")`",
            ));
        };
        if self.run_key.is_some() || self.placing.delay.is_some() {
            return Err(refuse(
                queue,
                "a debounced start has neither a key nor a delay: its key and its quiet time are those of \
                 `.debounce(..)`; leave `.key(..)` and `.delay(..)` out",
            ));
        }
        if let Some(problem) = self.key.problem() {
            return Err(EngineError::Key(problem));
        }
        settings(shared, queue).await?;
        let key = pending_key(
            &shared.services.namespace,
            queue,
            &call.workflow,
            self.key.as_str(),
        );
        loop {
            if shared.is_closing() {
                return Err(shared.refusal("it is shutting down"));
            }
            let found = shared.store.note(key.clone()).await?;
            let known = found
                .as_ref()
                .map(|bytes| read::<Pending>(queue, bytes))
                .transpose()?;
            let pending = Pending {
                run: known.map_or_else(|| shared.services.new_run_id(), |known| known.run),
                call: call.clone(),
                queue_key: self.placing.queue_key(),
                priority: self.placing.priority.unwrap_or_default(),
                due_at: shared.services.clock.now().after(self.quiet),
            };
            let commit = Commit {
                guards: vec![Guard {
                    key: key.clone(),
                    expected: found,
                }],
                changes: Changes {
                    notes: vec![NoteChange {
                        key: key.clone(),
                        value: Some(notes::encode(&pending)),
                    }],
                    ..Changes::default()
                },
            };
            if shared.store.commit(commit).await? == Committed::Done {
                shared.plan.queues.nudge();
                let Pending { run, due_at, .. } = pending;
                return Ok(Debounced { run, due_at });
            }
        }
    }
}

impl IntoFuture for Debounce {
    type Output = Result<Debounced, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

/// The commit that makes a run of a start that has waited for long enough.
pub(super) fn settle(
    shared: &Shared,
    queue: &str,
    key: NoteKey,
    bytes: bytes::Bytes,
    pending: &Pending,
) -> Commit {
    let naming = Naming::unkeyed(pending.run);
    let asleep = RunState::Asleep { wake_at: None };
    let entry = Entry {
        run: pending.run,
        queue_key: pending.queue_key.clone(),
        priority: pending.priority,
        ready_at: arrival(shared),
    };
    Commit {
        guards: vec![Guard {
            key: key.clone(),
            expected: Some(bytes),
        }],
        changes: Changes {
            create: vec![Prepared::new(&shared.services, &pending.call, naming, asleep).new],
            notes: vec![
                NoteChange { key, value: None },
                NoteChange {
                    key: waiting_key(&shared.services.namespace, queue, &entry),
                    value: Some(notes::encode(&entry)),
                },
                awaits_its_turn(pending.run),
            ],
            ..Changes::default()
        },
    }
}
