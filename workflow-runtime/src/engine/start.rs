//! Starting a run: derive its id, make its first record durable, hand it to a task; or find the run that its
//! key names.

use std::future::IntoFuture;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::duplicates::{DuplicateBody, DuplicateKind, Source};
use super::keyed::{self, Asked, KeyOptions, Look, OnConflict, OnFailure, Terms};
use super::known_keys::Answer;
use super::prepared::{EncodedCall, Prepared};
use super::progress::Progress;
use super::queues::{Debounce, Placing, enqueue};
use super::task::Created;
use super::{EngineError, RunEntry, RunHandle, Shared, successors, task};
use crate::call::{Workflow, WorkflowCall};
use crate::digest::Digest;
use crate::ids::RunId;
use crate::key::Key;
use crate::store::{BoxFuture, RunHeader, RunState};

/// A run about to be started; see [`Engine::start`](super::Engine::start).
#[must_use = "nothing is started until this is awaited"]
pub struct Start<W: Workflow> {
    shared: Arc<Shared>,
    call: WorkflowCall<W>,
    key: Option<Key>,
    options: KeyOptions,
    source: Source,
    placing: Placing,
}

impl<W: Workflow> Start<W> {
    pub(super) fn new(
        shared: Arc<Shared>,
        call: WorkflowCall<W>,
        line: &'static Location<'static>,
    ) -> Self {
        let key = call.key.clone();
        Self {
            shared,
            call,
            key,
            options: KeyOptions::default(),
            source: Source::Line(line),
            placing: Placing::default(),
        }
    }

    /// Names the run by a business key: the same key with the same input gives the same run, at
    /// any concurrency and across restarts; with another input it is refused, unless
    /// [`on_conflict`](Self::on_conflict) says otherwise. If the run went on as a new one, that is the newest of
    /// its line, and the input is still that of the first.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Says what becomes of this start if its key is held by a run with other input; it is refused otherwise.
    pub fn on_conflict(mut self, policy: OnConflict) -> Self {
        self.options.on_conflict = Some(policy);
        self
    }

    /// Says what becomes of the key if the run that this start makes fails, is cancelled or aborts. It is what the
    /// workflow or the builder says otherwise, and kept if they do not.
    ///
    /// What is said when the run is started holds for it; a later start with that key does not change it.
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.options.on_failure = Some(policy);
        self
    }

    /// Sets how long the key names the run that this start makes after the run has *ended*; what the workflow or
    /// the builder says otherwise, and 24 hours if they do not. `Duration::MAX` is for ever.
    ///
    /// What is said when the run is started holds for it; a later start with that key does not change it. When
    /// the time is over, the next start with the key makes a new run, with an id and step ids of its own.
    /// Until then the run is not deleted, whatever its retention says.
    pub fn key_ttl(mut self, time: Duration) -> Self {
        self.options.ttl = Some(time);
        self
    }

    /// Says who asks, for the record if this start turns out to be a duplicate; the line of code otherwise. At
    /// most 128 bytes are kept. See [`Engine::duplicates`](super::Engine::duplicates).
    pub fn origin(mut self, origin: &str) -> Self {
        self.source = Source::named(origin);
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
        // A start that is answered from memory never waits: without this a loop of them would let nobody else run.
        tokio::task::coop::consume_budget().await;
        self.check_key()?;
        self.placing.queue()?;
        let call = self.call; // by value: no reference to its input may live across a wait
        let (shared, options, source) = (self.shared, self.options, self.source);
        let digest = EncodedCall::digest::<W>(&shared.services, &call.input)?;
        let found = |run, body| {
            let kind = DuplicateKind::Start;
            shared.duplicates.saw(run, kind, &source, body);
            RunHandle::new(&shared, run, shared.entry(run))
        };
        let asked = self.key.as_ref();
        let asked = asked.map(|key| Asked::new::<W>(&shared, key, options));
        if let Some(asked) = &asked {
            let first = asked.first(&shared, W::DEFINITION.name);
            if let Some(run) = known(&shared, first, digest.strict).await? {
                return Ok(found(run, DuplicateBody::Same));
            }
        }
        let call = EncodedCall::with_digest::<W>(&shared.services, &call.input, digest)?;
        let (existing, newest) = match begin(&shared, &call, asked.as_ref(), &self.placing).await? {
            Begun::New(run, entry) => return Ok(RunHandle::new(&shared, run, Some(entry))),
            Begun::Queued(run) => return Ok(RunHandle::new(&shared, run, None)),
            Begun::Found(existing, newest) => (existing, newest),
        };
        let same = existing.input_digest == call.input_digest;
        let handle = found(newest, DuplicateBody::same(same));
        if same
            || seeded!(OtherInputTaken)
            || options.on_conflict == Some(OnConflict::ReturnExisting)
        {
            return Ok(handle);
        }
        Err(EngineError::Conflict {
            key: existing.key.unwrap_or_default().into(),
            run: existing.run,
            workflow: existing.workflow.into(),
            started_at: existing.created_at,
            first: existing.input_digest,
            now: call.input_digest,
        })
    }

    fn check_key(&self) -> Result<(), EngineError> {
        match &self.key {
            Some(key) => key.problem().map_or(Ok(()), |it| Err(EngineError::Key(it))),
            None if self.options.ask_for_a_key() => Err(EngineError::Key(
                "`.on_conflict(..)`, `.on_failure(..)` and `.key_ttl(..)` are about a key: add `.key(..)`"
                    .into(),
            )),
            None => Ok(()),
        }
    }
}

/// What a start came to.
enum Begun {
    /// It made a run, which this engine drives.
    New(RunId, Arc<RunEntry>),
    /// It made a run that waits: in a queue, or for the run that it replaces.
    Queued(RunId),
    /// There is a run of that key, and this one goes on for it.
    Found(Box<RunHeader>, RunId),
}

/// Finds the run of a key that is known to be there with this very input, without a look at the disk.
async fn known(
    shared: &Shared,
    first: RunId,
    input_digest: Digest,
) -> Result<Option<RunId>, EngineError> {
    refuse_if_closing(shared)?;
    match shared.known_keys.ask(first, input_digest) {
        Answer::Same(run) => Ok(Some(run)),
        Answer::Nothing => Ok(None),
        Answer::Named(run) => {
            let header = shared.store.header(run).await?;
            let same =
                |header: &RunHeader| header.end().is_none() && header.input_digest == input_digest;
            Ok(header.filter(same).map(|header| header.run))
        }
    }
}

fn refuse_if_closing(shared: &Shared) -> Result<(), EngineError> {
    match shared.is_closing() {
        true => Err(shared.refusal("it is shutting down")),
        false => Ok(()),
    }
}

/// Creates a run and drives or queues it, or finds the one that its key names.
async fn begin(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    asked: Option<&Asked<'_>>,
    placing: &Placing,
) -> Result<Begun, EngineError> {
    loop {
        refuse_if_closing(shared)?;
        let before = shared.known_keys.before_reading();
        let first = asked.map(|asked| asked.first(shared, &call.workflow));
        let terms = match asked {
            None => Terms::unkeyed(shared),
            Some(asked) => match keyed::look(shared, call, asked).await? {
                Look::Free(terms) => terms,
                Look::Held {
                    header,
                    newest,
                    holding,
                } => {
                    let first = first.unwrap_or(header.run);
                    // Of a line it is the newest run that changes: that is looked up each time.
                    if newest == header.run {
                        let keys = &shared.known_keys;
                        keys.remember(before, first, &header, holding);
                    }
                    return Ok(Begun::Found(header, newest));
                }
            },
        };
        let moves_on = first.filter(|_| terms.naming.generation > 0);
        let begun = match (placing.queue()?, terms.replaces) {
            (Some(queue), _) => enqueue(shared, call, terms, queue, placing)
                .await?
                .map(Begun::Queued),
            (None, Some(old)) => successors::replace(shared, call, terms, old, None)
                .await?
                .map(Begun::Queued),
            (None, None) => create(shared, call, terms).await?,
        };
        if let Some(begun) = begun {
            if let Some(first) = moves_on {
                shared.known_keys.moved_on(first);
            }
            return Ok(begun);
        }
    }
}

/// Creates a run and drives it. `None`: its key does not stand as it did, look again.
async fn create(
    shared: &Arc<Shared>,
    call: &EncodedCall,
    terms: Terms,
) -> Result<Option<Begun>, EngineError> {
    let run = terms.naming.run;
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
    if let Some(known) = known {
        // Another start of the same key is under way, or was when this one looked.
        let created = |progress: &Progress| !matches!(progress, Progress::Creating);
        known.progress.wait_for(created).await;
        tokio::task::yield_now().await;
        return Ok(None);
    }
    let naming = terms.naming.clone();
    let prepared = Prepared::new(&shared.services, call, naming, RunState::Active);
    Ok(match task::create(shared, &entry, prepared, terms).await? {
        Created::Done => Some(Begun::New(run, entry)),
        Created::LookAgain => None,
    })
}

impl<W: Workflow> IntoFuture for Start<W> {
    type Output = Result<RunHandle<W>, EngineError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
