//! Starting a run: derive its id, make its first record durable, hand it to a task.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use super::generations::Generation;
use super::prepared::{EncodedCall, Naming, Prepared};
use super::progress::Progress;
use super::queues::{Debounce, Placing, enqueue};
use super::task::Created;
use super::{EngineError, RunEntry, RunHandle, Shared, lines, task};
use crate::call::{Workflow, WorkflowCall};
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{BoxFuture, RunHeader, RunState};

/// A run about to be started; see [`Engine::start`](super::Engine::start).
#[must_use = "nothing is started until this is awaited"]
pub struct Start<W: Workflow> {
    shared: Arc<Shared>,
    call: WorkflowCall<W>,
    key: Option<Key>,
    placing: Placing,
}

impl<W: Workflow> Start<W> {
    pub(super) fn new(shared: Arc<Shared>, call: WorkflowCall<W>) -> Self {
        let key = call.key.clone();
        Self {
            shared,
            call,
            key,
            placing: Placing::default(),
        }
    }

    /// Names the run by a business key: the same key with the same input gives the same run, at
    /// any concurrency and across restarts; with another input it is refused. If the run went on as a new one,
    /// that is the newest of its line, and the input is still that of the first.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Puts the run into a queue: it begins when its turn comes. The queue is declared on the builder.
    ///
    /// Until then it is a row on disk, in the same write as its start: no future, no task.
    pub fn queue(mut self, name: &str) -> Self {
        self.placing.queue = Some(name.into());
        self
    }

    /// Counts the run among those of this key, for [`Queue::per_key`](crate::Queue::per_key).
    pub fn queue_key(mut self, key: impl Into<Key>) -> Self {
        self.placing.queue_key = Some(key.into());
        self
    }

    /// Sets the run's priority in its queue: higher ones come first, equal ones in the order of their start. 0
    /// otherwise.
    pub fn priority(mut self, priority: i32) -> Self {
        self.placing.priority = Some(priority);
        self
    }

    /// Has the run join its queue only after this time.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.placing.delay = Some(delay);
        self
    }

    /// Makes one run of several starts: it is created when no start with this key (of the same workflow, in the
    /// same queue) has come for the `quiet` time, with the input of the latest. Needs a queue.
    ///
    /// What it resolves to is not a handle: the run is not there yet. All starts until the quiet moment
    /// are told the same run id. Each start pushes the moment out; starts that never pause are never run.
    pub fn debounce(self, key: impl Into<Key>, quiet: Duration) -> Debounce {
        Debounce {
            call: EncodedCall::new::<W>(&self.shared.services, &self.call.input),
            shared: self.shared,
            run_key: self.key,
            placing: self.placing,
            key: key.into(),
            quiet,
        }
    }

    async fn run(self) -> Result<RunHandle<W>, EngineError> {
        let shared = &self.shared;
        let call = EncodedCall::new::<W>(&shared.services, &self.call.input)?;
        if let Some(problem) = self.key.as_ref().and_then(Key::problem) {
            return Err(EngineError::Key(problem));
        }
        let key = self.key.as_ref();
        let begun = match self.placing.queue()? {
            Some(queue) => match enqueue(shared, &call, key, queue, &self.placing).await? {
                (run, None) => Begun::Queued(run),
                (_, Some(header)) => Begun::Found(header),
            },
            None => begin(shared, &call, key).await?,
        };
        let existing = match begun {
            Begun::New(run, entry) => return Ok(RunHandle::new(shared, run, Some(entry))),
            Begun::Queued(run) => return Ok(RunHandle::new(shared, run, None)),
            Begun::Found(existing) => existing,
        };
        let run = existing.run;
        // The key names the first run of a line, whose input it is; what goes on is the newest.
        if existing.input_digest == call.input_digest {
            let newest = lines::newest_of(shared, &existing).await?;
            return Ok(RunHandle::new(shared, newest, shared.entry(newest)));
        }
        Err(EngineError::Conflict {
            key: existing.key.unwrap_or_default().into(),
            run,
            workflow: existing.workflow.into(),
            started_at: existing.created_at,
            first: existing.input_digest,
            now: call.input_digest,
        })
    }
}

/// What a start came to.
enum Begun {
    /// It made a run, which this engine drives.
    New(RunId, Arc<RunEntry>),
    /// It made a run that waits in a queue.
    Queued(RunId),
    /// There is a run of that key.
    Found(RunHeader),
}

/// Creates a run and drives it, or finds the one that its key names.
async fn begin(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    key: Option<&Key>,
) -> Result<Begun, EngineError> {
    let unkeyed = shared.services.new_run_id();
    loop {
        if shared.is_closing() {
            return Err(EngineError::Stopped("it is shutting down".into()));
        }
        let (naming, guard) = match key {
            Some(key) => {
                let generation = Generation::of(shared, &call.workflow, key.as_str()).await?;
                let (namespace, number) = (&shared.services.namespace, generation.number);
                let naming = Naming::keyed(namespace, &call.workflow, key.as_str(), number);
                (naming, Some(generation.guard))
            }
            None => (Naming::unkeyed(unkeyed), None),
        };
        let run = naming.run;
        let entry = RunEntry::new(Progress::Creating);
        let known = {
            let mut runs = shared.runs();
            match runs.get(&run) {
                Some(known) => Some(known.clone()),
                None => {
                    runs.insert(run, entry.clone());
                    None
                }
            }
        };
        match known {
            // Another start of the same key is under way, or the run is in memory.
            Some(known) => {
                let created = |progress: &Progress| !matches!(progress, Progress::Creating);
                known.progress.wait_for(created).await;
                match shared.store.header(run).await? {
                    Some(header) => return Ok(Begun::Found(header)),
                    None => continue, // that start failed: try ourselves
                }
            }
            None => {
                let prepared = Prepared::new(&shared.services, call, naming, RunState::Active);
                match task::create(shared, &entry, prepared, guard).await? {
                    Created::Done => return Ok(Begun::New(run, entry)),
                    Created::Exists(header) => return Ok(Begun::Found(*header)),
                    // The key's run was deleted since: it has a new generation.
                    Created::OtherGeneration => {}
                }
            }
        }
    }
}

impl<W: Workflow> IntoFuture for Start<W> {
    type Output = Result<RunHandle<W>, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
