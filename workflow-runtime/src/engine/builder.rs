//! How an engine is configured and opened.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use super::health::{self, UnderWay, Watched};
use super::keyed::DEFAULT_KEY_TTL;
use super::known_keys::KnownKeys;
use super::metrics::Counters;
use super::pause::{self, Pauses};
use super::plan::Plan;
use super::recovery::Recovery;
use super::registry::Registry;
use super::reopen::Again;
use super::resources::Resources;
use super::retention::{Retention, Retentions};
use super::sleepers::{self, Sleepers};
use super::timers::Timers;
use super::undo_steps::UndoSteps;
use super::warnings::Warnings;
use super::{
    Config, Engine, EngineError, Message, OnFailure, Owner, Queue, RelayOptions, Services, Shared,
    duplicates, keys, letters, outbox, queues, retention, schedules, successors, task,
};
use crate::call::{Step, Workflow};
use crate::clock::Clock;
use crate::idempotency::{Book, StepKeys};
use crate::ids::RunIds;
use crate::journal::AuditKey;
use crate::payload::{DEFAULT_LIMIT, PayloadCodec, Payloads};
use crate::store::memory::MemoryStore;
use crate::store::sled::{SledOptions, SledStore};
use crate::store::{Durability, Store};

/// Attempts of a step, the first one included, unless the step says otherwise.
const DEFAULT_MAX_ATTEMPTS: u32 = 4;

/// The shortest and the longest wait between attempts, unless the step says otherwise.
const DEFAULT_BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Inputs of steps up to this size are kept in the journal, to be shown in reports.
const DEFAULT_KEPT_INPUT: usize = 16 * 1024;

/// The most that a payload may be allowed to take. A record has up to three of them (what a step was given and gave, the
/// end of a run twice, a state beside carried signals), and a store takes 64 MiB in one write.
const MAX_PAYLOAD_LIMIT: usize = 16 * 1024 * 1024;

/// Runs that may be active at once. Runs that only sleep do not count.
const DEFAULT_MAX_ACTIVE: usize = 4096;

/// The namespace of engines that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// How long a run only waits before it leaves memory.
const EVICT_AFTER: Duration = Duration::from_secs(10);

/// How many journals are read at a time.
const CLAIMS_AT_ONCE: usize = 64;

/// Configures an engine; see [`Engine::builder`].
#[derive(Clone)]
pub struct EngineBuilder {
    registry: Registry,
    undo_steps: UndoSteps,
    problems: Vec<String>,
    resources: Resources,
    namespace: Arc<str>,
    payload_limit: usize,
    codec: Option<Arc<dyn PayloadCodec>>,
    audit_key: Option<AuditKey>,
    max_active: usize,
    config: Config,
    clock: Clock,
    run_ids: RunIds,
    queues: Vec<Queue>,
    retentions: Retentions,
    relays: Vec<outbox::Relay>,
    /// Whether the store failed before in this process.
    reopened: bool,
    #[cfg(feature = "testing")]
    tested: Option<Arc<dyn super::tested::Tested>>,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            undo_steps: UndoSteps::default(),
            problems: Vec::new(),
            resources: Resources::default(),
            namespace: DEFAULT_NAMESPACE.into(),
            payload_limit: DEFAULT_LIMIT,
            codec: None,
            audit_key: None,
            max_active: DEFAULT_MAX_ACTIVE,
            config: Config {
                max_attempts: DEFAULT_MAX_ATTEMPTS,
                backoff: DEFAULT_BACKOFF,
                kept_input_limit: DEFAULT_KEPT_INPUT,
                durability: Durability::Synced,
                cancel_grace: Duration::from_secs(10),
                evict_after: Some(EVICT_AFTER),
                keep_passes: false,
                key_ttl: DEFAULT_KEY_TTL,
                on_failure: OnFailure::Keep,
                #[cfg(feature = "testing")]
                shuffle: None,
            },
            clock: Clock::default(),
            run_ids: RunIds::default(),
            queues: Vec::new(),
            retentions: Retentions::default(),
            relays: Vec::new(),
            reopened: false,
            #[cfg(feature = "testing")]
            tested: None,
        }
    }
}

impl EngineBuilder {
    /// Registers a workflow, so that its runs can be started and resumed.
    #[must_use]
    pub fn register<W: Workflow>(mut self) -> Self {
        self.problems.extend(self.registry.add::<W>().err());
        self
    }

    /// Registers a step with an `undo`, so that runs find it by name when they have to undo what they did
    /// before a checkpoint.
    ///
    /// Rarely needed: a step that was called since the engine was opened is known, and others are found by replaying
    /// the pass that called them. It is the way out where the code of that pass is gone, or where two steps have
    /// one name.
    #[must_use]
    pub fn register_step<S: Step>(mut self) -> Self {
        self.problems.extend(self.undo_steps.register::<S>().err());
        self
    }

    /// Provides a resource to the `#[resource]` parameters of its type.
    #[must_use]
    pub fn resource<T: Send + Sync + 'static>(self, resource: T) -> Self {
        self.resource_arc(Arc::new(resource))
    }

    /// Provides a resource that is shared already, or a trait object:
    /// `.resource_arc::<dyn Mailer>(Arc::new(Smtp::new()))`.
    #[must_use]
    pub fn resource_arc<T: ?Sized + Send + Sync + 'static>(mut self, resource: Arc<T>) -> Self {
        self.resources.insert(resource);
        self
    }

    /// Sets the namespace (tenant) that the engine's runs and keys live in; `default` otherwise.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        if namespace.is_empty() {
            self.problems.push("a namespace cannot be empty".into());
        }
        self.namespace = namespace.into();
        self
    }

    /// Sets how much the outcome of a step survives once the workflow sees it;
    /// [`Durability::Synced`] otherwise. Starts and results are always synced, with all before
    /// them.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.config.durability = durability;
        self
    }

    /// Sets how many attempts a step has that does not say so itself, the first one included; 4
    /// otherwise.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        if attempts == 0 {
            self.problems
                .push("max_attempts counts the first attempt, so it is at least 1".into());
        }
        self.config.max_attempts = attempts;
        self
    }

    /// Sets the shortest and the longest wait between attempts of a step that does not say so
    /// itself; 200 ms and 30 s otherwise.
    #[must_use]
    pub fn backoff(mut self, shortest: Duration, longest: Duration) -> Self {
        if longest < shortest {
            self.problems.push(format!(
                "the longest backoff ({longest:?}) is below the shortest ({shortest:?})"
            ));
        }
        self.config.backoff = (shortest, longest);
        self
    }

    /// Sets how long a run only waits (for a time, a signal, a child) before it leaves memory, to be
    /// rebuilt by replay when it is woken; 10 s otherwise. With `None` runs stay.
    ///
    /// While more than 64 runs only wait, those that come go sooner: at once if they wait for times alone, of which the next is
    /// behind that moment, and after a second if a signal or a child may wake them.
    #[must_use]
    pub fn evict_after(mut self, moment: impl Into<Option<Duration>>) -> Self {
        self.config.evict_after = moment.into();
        self
    }

    /// Keeps the records of all passes of a run that begins anew with [`checkpoint`](crate::checkpoint). Otherwise those
    /// that are long over are forgotten, and such a run takes no more space the longer it goes on; its timeline
    /// then begins with a gap, and it cannot be forked there.
    ///
    /// It holds for what runs do from now on: what was forgotten does not come back.
    #[must_use]
    pub fn keep_passes(mut self) -> Self {
        self.config.keep_passes = true;
        self
    }

    /// Sets how long bodies in flight may take to finish when their run is cancelled; 10 s otherwise.
    /// Blocking bodies cannot be stopped: they are waited for.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// Sets the largest input, output or error in bytes; 2 MiB otherwise, 16 MiB at most.
    #[must_use]
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        if bytes > MAX_PAYLOAD_LIMIT {
            self.problems.push(format!(
                "a payload_limit of {bytes} bytes is too large: a record holds several payloads and has to fit into one \
                 write, so {MAX_PAYLOAD_LIMIT} are allowed; keep large data elsewhere and journal its name"
            ));
        }
        self.payload_limit = bytes;
        self
    }

    /// Sets up to which size inputs of steps are kept in the journal, to be shown in reports; 16
    /// KiB otherwise. With 0 only their digests are kept.
    #[must_use]
    pub fn keep_inputs_up_to(mut self, bytes: usize) -> Self {
        self.config.kept_input_limit = bytes;
        self
    }

    /// Transforms all payloads on their way to the store, for encryption or compression.
    #[must_use]
    pub fn payload_codec(mut self, codec: impl PayloadCodec) -> Self {
        self.codec = Some(Arc::new(codec));
        self
    }

    /// Takes the payload codec away: what is replayed is opened before.
    #[cfg(feature = "testing")]
    pub(crate) fn take_codec(&mut self) -> Option<Arc<dyn PayloadCodec>> {
        self.codec.take()
    }

    /// Keys the chain of every journal, so that nobody without the key can rewrite history.
    /// All engines that ever open the store need the same key.
    #[must_use]
    pub fn audit_key(mut self, key: [u8; 32]) -> Self {
        self.audit_key = Some(AuditKey::new(key));
        self
    }

    /// Limits how many runs are active at once; others wait their turn. Runs that only sleep do
    /// not count. 4,096 otherwise.
    #[must_use]
    pub fn max_active_runs(mut self, runs: usize) -> Self {
        if runs == 0 {
            self.problems
                .push("max_active_runs of 0 would let no run go on".into());
        }
        self.max_active = runs;
        self
    }

    /// Declares a queue, so that runs can be started in it. Its limits are durable: one that is changed while
    /// it is in use ([`QueueHandle::set`](super::QueueHandle::set)) stays so, until the declaration is another one.
    #[must_use]
    pub fn queue(mut self, queue: Queue) -> Self {
        self.problems.extend(queue.problem());
        if self.queues.iter().any(|known| known.name() == queue.name()) {
            self.problems
                .push(format!("queue `{}` is declared twice", queue.name()));
        }
        self.queues.push(queue);
        self
    }

    /// Relays the messages of an outbox, from the moment the engine is opened; see [`OutboxHandle::relay`].
    ///
    /// [`OutboxHandle::relay`]: super::OutboxHandle::relay
    #[must_use]
    pub fn outbox<H, F>(self, name: &str, handler: H) -> Self
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = crate::error::Result<()>> + Send + 'static,
    {
        self.outbox_with(name, RelayOptions::default(), handler)
    }

    /// Relays the messages of an outbox with limits of its own.
    #[must_use]
    pub fn outbox_with<H, F>(mut self, name: &str, options: RelayOptions, handler: H) -> Self
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = crate::error::Result<()>> + Send + 'static,
    {
        if let Err(problem) = letters::check_name("outbox", name) {
            self.problems.push(problem.to_string());
        }
        if self.relays.iter().any(|known| known.name() == name) {
            self.problems
                .push(format!("outbox `{name}` has two handlers"));
        }
        self.relays.push(outbox::Relay::new(name, options, handler));
        self
    }

    /// Sets how long runs are kept after they ended; for ever otherwise. See [`Engine::sweep`].
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retentions.default = retention;
        self
    }

    /// Sets how long runs of one workflow are kept after they ended, whatever holds for the others.
    #[must_use]
    pub fn retention_of<W: Workflow>(mut self, retention: Retention) -> Self {
        self.retentions.of.insert(W::DEFINITION.name, retention);
        self
    }

    /// Sets how long the key of a run names it after the run has *ended*, where neither the start nor the workflow
    /// says so; 24 hours otherwise. What was promised to runs that were started before stays.
    #[must_use]
    pub fn key_ttl(mut self, time: Duration) -> Self {
        self.config.key_ttl = time;
        self
    }

    /// Sets what becomes of the key of a run that fails, is cancelled or aborts, where neither the start nor the
    /// workflow says so; it is kept otherwise. What was promised to runs that were started before stays.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.config.on_failure = policy;
        self
    }

    /// Opens an engine on an embedded database in a directory, which is made if it is not there,
    /// and resumes every unfinished run.
    ///
    /// # Errors
    ///
    /// If the configuration cannot work, or the directory is in use, damaged, of a newer format, or
    /// no store; then nothing was changed on disk.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<Engine, EngineError> {
        self.check()?;
        let path = path.as_ref().to_owned();
        let opened =
            tokio::task::spawn_blocking(move || SledStore::open(path, SledOptions::default()));
        let store = match opened.await {
            Ok(store) => store?,
            Err(error) => return Err(EngineError::Stopped(error.to_string())),
        };
        self.open_with(store).await
    }

    /// Opens an engine that keeps everything in memory, for tests: nothing survives it.
    ///
    /// # Errors
    ///
    /// If the configuration cannot work.
    pub async fn open_in_memory(self) -> Result<Engine, EngineError> {
        self.open_with(MemoryStore::new()).await
    }

    /// Opens an engine on a store, and resumes every unfinished run.
    ///
    /// # Errors
    ///
    /// If the configuration cannot work or the store fails.
    pub async fn open_with(self, store: impl Store) -> Result<Engine, EngineError> {
        self.check()?;
        self.open_on(Arc::new(store)).await
    }

    /// The same, on a store that may be another one than the engine's first.
    pub(super) async fn open_on(self, store: Arc<dyn Store>) -> Result<Engine, EngineError> {
        let mut again = self.clone();
        again.reopened = true;
        let payloads = Payloads::new(self.payload_limit, self.codec, &self.namespace);
        let keys = Arc::new(Book::new(
            store.clone(),
            self.namespace.clone(),
            payloads.clone(),
            self.clock.clone(),
        ));
        let services = Arc::new(Services {
            payloads,
            resources: Arc::new(self.resources),
            timers: Timers::start(self.clock.clone()),
            crowd: Arc::default(),
            config: self.config,
            warnings: Warnings::default(),
            counters: Counters::default(),
            under_way: UnderWay::default(),
            recovery: Recovery::begin(self.clock.now()),
            clock: self.clock,
            run_ids: self.run_ids,
            active: Arc::new(Semaphore::new(self.max_active.min(Semaphore::MAX_PERMITS))),
            registry: self.registry,
            undo_steps: self.undo_steps,
            pauses: Pauses::default(),
            namespace: self.namespace,
            audit_key: self.audit_key,
            #[cfg(feature = "testing")]
            tested: self.tested,
            engine: OnceLock::new(),
        });
        let shared = Arc::new(Shared {
            runs: Mutex::default(),
            closing: AtomicBool::new(false),
            failed: Watched::default(),
            again: Again::with(again),
            reopened: self.reopened,
            max_active: self.max_active.min(Semaphore::MAX_PERMITS),
            left: Notify::new(),
            published: Notify::new(),
            sleepers: Sleepers::default(),
            claiming: Semaphore::new(CLAIMS_AT_ONCE),
            marks: Arc::default(),
            known_keys: KnownKeys::new(store.is_exclusive(), services.clock.clone()),
            duplicates: Arc::new(duplicates::Recorder::new(services.clock.clone())),
            retentions: self.retentions,
            step_keys: StepKeys::new(keys.clone()),
            keys,
            plan: Plan::default(),
            relays: outbox::Relays::default(),
            store,
            services,
        });
        let _ = shared.services.engine.set(Arc::downgrade(&shared));
        health::serve(&shared);
        pause::read(&shared).await?;
        queues::declare(&shared, self.queues).await?;
        task::resume_all(&shared).await?;
        sleepers::start(&shared);
        schedules::serve(&shared);
        queues::serve(&shared);
        successors::serve(&shared);
        duplicates::serve(&shared);
        retention::serve(&shared);
        keys::serve(&shared);
        for relay in self.relays {
            outbox::serve(&shared, relay)?;
        }
        Ok(Engine {
            owner: Arc::new(Owner { shared }),
        })
    }

    /// Gives the engine a clock and a source of ids of its own, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn timed(mut self, clock: Clock, run_ids: RunIds) -> Self {
        (self.clock, self.run_ids) = (clock, run_ids);
        self
    }

    /// Gives a test control over the engine's steps.
    #[cfg(feature = "testing")]
    pub(crate) fn tested(mut self, tested: Arc<dyn super::tested::Tested>) -> Self {
        self.tested = Some(tested);
        self
    }

    /// Delays the bodies of steps by a seed, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn shuffled(mut self, seed: u64) -> Self {
        self.config.shuffle = Some(seed);
        self
    }

    fn check(&self) -> Result<(), EngineError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        Err(EngineError::Configuration(self.problems.join("; ")))
    }
}
