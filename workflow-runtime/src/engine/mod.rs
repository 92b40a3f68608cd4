//! The engine: starts runs, resumes what was left, and lets them be looked at.
//!
//! The files in the order a run goes through them: `builder` opens an engine, `start` begins a run,
//! `task` claims, replays and drives it, `driver` holds the loop, `core` is what driver and calls
//! share, `writer` appends to the journal; `letters` sends to runs, `handle` waits for the end, `retry`
//! takes a failed run up again, `fork` makes another run of its beginning, `terminate` ends one, `pause` holds
//! them, `sleepers` are those that left memory, `poison` watches those that kill their process,
//! `inspect` and `published` read. A start with a key goes through `known_keys`, `keyed` and `generations`; one that
//! replaces a run through `successors`; `duplicates` has what was asked for again. Around them: `registry`, `resources`, `recovery`, `timers`, `signal`,
//! `warnings`, `shutdown`. Beside the runs, as tasks of `plan` that keep `notes`: `schedules`, `queues`,
//! `retention` (with the `generations` of keys), the relays of `outbox`. `inbox` starts runs and sends signals for events.

mod audit;
mod begun;
mod builder;
pub(crate) mod core;
pub(crate) mod crowd;
#[cfg(feature = "testing")]
mod custody;
mod driver;
pub(crate) mod duplicates;
mod entries;
mod error;
#[cfg(feature = "export")]
mod export;
mod fork;
mod generations;
mod handle;
mod health;
mod inbox;
mod inspect;
mod keyed;
mod keys;
mod known_keys;
pub(crate) mod letters;
mod lines;
mod metrics;
pub(crate) mod notes;
pub(crate) mod obstacle;
pub(crate) mod outbox;
mod owed;
mod pause;
mod picture;
mod plan;
mod poison;
pub(crate) mod prepared;
mod progress;
mod published;
mod queues;
pub(crate) mod recovery;
mod registry;
mod reopen;
pub(crate) mod resources;
mod retention;
mod retry;
mod retry_children;
mod retry_choice;
mod schedules;
mod shutdown;
pub(crate) mod signal;
mod sleepers;
#[cfg(feature = "testing")]
pub(crate) mod standing;
mod start;
mod successors;
mod taking;
mod task;
mod terminate;
#[cfg(feature = "testing")]
pub(crate) mod tested;
pub(crate) mod timers;
pub(crate) mod tokens;
pub(crate) mod undo_steps;
#[cfg(feature = "testing")]
pub(crate) mod verify;
mod waking;
mod warnings;
mod writer;

use std::panic::Location;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use self::entries::RunEntry;
use self::letters::Body;
use crate::call::{Workflow, WorkflowCall};
use crate::clock::Clock;
use crate::id_map::IdMap;
use crate::idempotency::{Book, StepKeys};
use crate::ids::{RunId, RunIds};
use crate::journal::AuditKey;
use crate::payload::Payloads;
use crate::store::{Durability, Store};

pub use builder::EngineBuilder;
pub use duplicates::{Duplicate, DuplicateBody, DuplicateKind, Duplicates};
pub use error::{EngineError, RunError};
#[cfg(feature = "export")]
pub use export::Export;
pub use fork::{Fork, ForkPoint};
pub use handle::{RunHandle, RunStatus};
pub use health::{Health, StoreFailure};
pub use inbox::{AcceptStart, Acceptance, Accepted, Delivery, Inbox, InboxError, InboxEvent};
pub use inspect::{ParseCursorError, RunCursor, Runs, RunsPage, Verification};
pub use keyed::{OnConflict, OnFailure};
pub use letters::{Cancel, SendSignal, Sent};
pub use lines::Lineage;
pub use metrics::Metrics;
pub use outbox::{Message, OutboxHandle, RelayOptions, SetAside};
pub use pause::Paused;
pub use published::Watch;
pub use queues::{Debounce, Debounced, Queue, QueueDescription, QueueHandle};
pub use retention::Retention;
pub use schedules::{CatchUp, Overlap, Schedule, ScheduleDescription, ScheduleHandle};
pub use shutdown::Shutdown;
pub use start::Start;
pub use terminate::Terminate;
pub use warnings::Warning;

/// Runs workflows on one store.
///
/// Clones are handles to the same engine. When the last one is dropped, running workflows are
/// left where they are, as in a crash, and the next engine on the store resumes them;
/// [`Engine::shutdown`] stops in an orderly way.
///
/// ```no_run
/// use workflow_runtime::{step, workflow, Engine, Result};
///
/// #[step]
/// async fn greet(name: &str) -> Result<String> {
///     Ok(format!("hello {name}"))
/// }
///
/// #[workflow]
/// async fn welcome(name: String) -> Result<String> {
///     greet(&name).await
/// }
///
/// # async fn example() -> Result<()> {
/// let engine = Engine::builder().register::<welcome>().open("welcome.db").await?;
/// let run = engine.start(welcome("Ada".into())).key("ada").await?;
/// assert_eq!(run.result().await?, "hello Ada");
/// engine.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    owner: Arc<Owner>,
}

/// Stops the engine's tasks when the last [`Engine`] is dropped.
struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared
            .stop_all(&EngineError::Stopped("the engine was dropped".into()));
    }
}

/// What all tasks of an engine share.
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    services: Arc<Services>,
    runs: Mutex<IdMap<RunId, Arc<RunEntry>>>,
    closing: AtomicBool,
    failed: health::Watched,
    again: reopen::Again,
    /// Whether the store failed before in this process, and was opened again.
    reopened: bool,
    max_active: usize,
    /// Notified whenever a run leaves the engine.
    left: Notify,
    /// Notified whenever a run has published something.
    published: Notify,
    /// Runs that left memory.
    sleepers: sleepers::Sleepers,
    /// The right to read a run's journal, for a limited number at a time: timers that are due
    /// together must not fill the memory together.
    claiming: Semaphore,
    retentions: retention::Retentions,
    /// Keys that guard work outside of runs.
    keys: Arc<Book>,
    /// Keys that steps of several runs share.
    step_keys: Arc<StepKeys>,
    /// The tasks beside the runs.
    plan: plan::Plan,
    /// Who relays the messages of which outbox.
    relays: outbox::Relays,
    /// Runs that were driven when the process died.
    marks: Arc<poison::Marks>,
    /// What is known of keys without asking the store.
    known_keys: known_keys::KnownKeys,
    /// What was asked for again and not done again.
    duplicates: Arc<duplicates::Recorder>,
}

/// What calls and drivers need while a run goes on.
pub(crate) struct Services {
    pub(crate) payloads: Payloads,
    pub(crate) resources: Arc<resources::Resources>,
    pub(crate) clock: Clock,
    pub(crate) run_ids: RunIds,
    pub(crate) timers: Arc<timers::Timers>,
    pub(crate) crowd: Arc<crowd::Crowd>,
    pub(crate) config: Config,
    pub(crate) warnings: warnings::Warnings,
    pub(crate) counters: metrics::Counters,
    pub(crate) under_way: health::UnderWay,
    pub(crate) recovery: recovery::Recovery,
    /// The right to be active, for a limited number of runs at a time.
    pub(crate) active: Arc<Semaphore>,
    pub(crate) registry: registry::Registry,
    pub(crate) undo_steps: undo_steps::UndoSteps,
    /// Workflows whose steps do not begin.
    pub(crate) pauses: pause::Pauses,
    pub(crate) namespace: Arc<str>,
    pub(crate) audit_key: Option<AuditKey>,
    /// The test that has the engine in its hands, if one has.
    #[cfg(feature = "testing")]
    pub(crate) tested: Option<Arc<dyn tested::Tested>>,
    /// The engine that these belong to.
    engine: OnceLock<Weak<Shared>>,
}

impl Services {
    /// The keys that steps of several runs share, unless the engine is gone. Not kept here: whoever has a handle keeps
    /// these services, and must not keep the store with them.
    pub(crate) fn step_keys(&self) -> Option<Arc<StepKeys>> {
        Some(self.engine()?.step_keys.clone())
    }

    /// Makes the id of a run that has no key.
    pub(crate) fn new_run_id(&self) -> RunId {
        self.run_ids.next(self.clock.now())
    }

    /// The engine, unless it is gone.
    pub(crate) fn engine(&self) -> Option<Arc<Shared>> {
        self.engine.get()?.upgrade()
    }
}

/// What an engine's owner can choose.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) max_attempts: u32,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) kept_input_limit: usize,
    pub(crate) durability: Durability,
    /// How long bodies in flight may take to finish when their run is cancelled.
    pub(crate) cancel_grace: Duration,
    /// How long a run only waits before it leaves memory; `None`: it never does.
    pub(crate) evict_after: Option<Duration>,
    /// Whether records of passes that are over are kept for ever.
    pub(crate) keep_passes: bool,
    /// How long a key names its run after the run has ended.
    pub(crate) key_ttl: Duration,
    /// Whether the key of a run that did not complete is kept.
    pub(crate) on_failure: OnFailure,
    /// The seed by which a test delays the bodies of steps.
    #[cfg(feature = "testing")]
    pub(crate) shuffle: Option<u64>,
}

impl Engine {
    /// Begins to configure an engine.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Starts a run of a workflow.
    ///
    /// The returned value is awaited, with or without a key: `engine.start(call).key(k).await`.
    /// When it resolves, the start is durable.
    #[track_caller]
    pub fn start<W: Workflow>(&self, call: WorkflowCall<W>) -> Start<W> {
        Start::new(self.shared().clone(), call, Location::caller())
    }

    /// Takes a parked run up again, after what stopped it was mended. If it went on as a new run, that is the
    /// newest of its line, as for everything that is done to a run by its id.
    ///
    /// Replay begins anew, so nothing is run twice. A run that is not parked is left alone.
    ///
    /// # Errors
    ///
    /// If there is no such run, it has ended, or the store fails.
    pub async fn resume(&self, run: RunId) -> Result<(), EngineError> {
        task::resume(self.shared(), run).await
    }

    /// Sends a run a signal: a named value that its workflow waits for with
    /// [`wait_for`](crate::wait_for).
    ///
    /// When it resolves, the signal is durable in the run's mailbox. Sent before anybody waits, it
    /// is kept; signals of one name are received in the order in which they were accepted. With
    /// [`SendSignal::key`] a repeated sending counts once.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if there is no such run, it has ended, the value cannot be encoded, or a wait
    /// in memory asks for another type.
    #[track_caller]
    pub fn signal<T: serde::Serialize + ?Sized>(
        &self,
        run: RunId,
        name: &str,
        value: &T,
    ) -> SendSignal {
        let body = Body::of(&self.shared().services.payloads, value);
        let shared = Ok(self.shared().clone());
        SendSignal::new(shared, run, name, body, Location::caller())
    }

    /// Sends a value to whichever run holds a token; see [`hook`](crate::hook).
    ///
    /// When it resolves, the value is durable in that run's mailbox. With [`SendSignal::key`] a repeated
    /// sending to the same run counts once.
    ///
    /// # Errors
    ///
    /// Awaiting it fails with [`EngineError::NoHook`] if no run holds the token: it was not taken yet, or
    /// its run has closed it or ended. Otherwise as [`Engine::signal`].
    #[track_caller]
    pub fn signal_token<T: serde::Serialize + ?Sized>(&self, token: &str, value: &T) -> SendSignal {
        let body = Body::of(&self.shared().services.payloads, value);
        SendSignal::to_token(self.shared().clone(), token, body, Location::caller())
    }

    /// Asks for a run to be cancelled: it stops where it waits, and so do its children, and ends as
    /// cancelled.
    ///
    /// When it resolves, the request is durable. A run that is about to end may be faster; one that is
    /// parked hears of it when it is resumed. Cancelling a run twice is fine.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if there is no such run or it has ended.
    pub fn cancel(&self, run: RunId) -> Cancel {
        Cancel::new(Ok(self.shared().clone()), run)
    }

    /// Ends a run at once, whatever it does, parked ones too. Bodies in flight are dropped where they
    /// are, nothing is undone, and its children are cancelled. [`Engine::cancel`] is the orderly way. If its future is
    /// dropped half-way, the run may be ended all the same.
    ///
    /// # Errors
    ///
    /// Awaiting it fails if there is no such run, or it has ended.
    pub fn terminate(&self, run: RunId) -> Terminate {
        Terminate::new(self.shared().clone(), run)
    }

    /// Returns a handle to a run of a known workflow.
    ///
    /// # Errors
    ///
    /// If there is no such run, or it is a run of another workflow.
    pub async fn run<W: Workflow>(&self, run: RunId) -> Result<RunHandle<W>, EngineError> {
        handle::open(self.shared(), run).await
    }

    /// Returns how a run stands, without knowing its workflow's type. Of one that went on as a new run that is
    /// [`RunStatus::Continued`]; [`Engine::lineage`] leads to the newest.
    ///
    /// # Errors
    ///
    /// If there is no such run or the store fails.
    pub async fn status(&self, run: RunId) -> Result<RunStatus, EngineError> {
        handle::status(self.shared(), run).await
    }

    /// Returns what a parked run's report leaves out because it may show values: differing inputs, a
    /// panic's message, a decoder's complaint. `None` if there is nothing more, or it is not parked.
    ///
    /// # Errors
    ///
    /// If there is no such run, the store fails, or the payload codec does.
    pub async fn parked_detail(&self, run: RunId) -> Result<Option<String>, EngineError> {
        handle::parked_detail(self.shared(), run).await
    }

    /// Returns the namespace that this engine's runs live in.
    pub fn namespace(&self) -> &str {
        &self.shared().services.namespace
    }

    /// Returns how many runs are in memory; those that sleep are not.
    pub fn runs_in_memory(&self) -> usize {
        self.shared().runs().len()
    }

    /// Counts the runs that left memory and are to be woken at a time. They are in the store only, so all of them are
    /// looked through: some 5 µs for each.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn runs_asleep(&self) -> Result<u64, EngineError> {
        Ok(sleepers::count(self.shared()).await?)
    }

    /// Returns the newest warnings about runs of this engine.
    pub fn warnings(&self) -> Vec<Warning> {
        self.shared().services.warnings.list()
    }

    /// Returns why the store stopped acknowledging, if it did; [`Engine::health`] says more, [`Engine::reopen`] goes on.
    pub fn failure(&self) -> Option<String> {
        self.shared().store.failure()
    }

    /// Stops the engine: bodies in flight may finish and are journaled, none begins. What does not
    /// finish in time is left for the next engine on the store.
    pub fn shutdown(self) -> Shutdown {
        Shutdown::new(self.owner)
    }
}

/// Hands hostile bytes to the readers of all notes; see `hostile`.
#[cfg(feature = "testing")]
pub(crate) fn hostile_note(bytes: &[u8]) {
    let _ = notes::decode::<u64>(bytes);
    duplicates::hostile(bytes);
    keyed::hostile(bytes);
    outbox::hostile(bytes);
    poison::hostile(bytes);
    queues::hostile(bytes);
    schedules::hostile(bytes);
    successors::hostile(bytes);
}
