//! The engine of a test: in memory, with a clock that jumps.
//!
//! Owns the set-up: tokio's paused time as the engine's clock, a seed as the source of its ids. It runs
//! the same engine as a service does, on the same code; it never replaces a part of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

use super::steps::{Control, TellFaults};
use super::{chaos, driving};
use crate::call::Workflow;
use crate::clock::{Clock, Timestamp};
use crate::engine::{Engine, EngineBuilder, EngineError};
use crate::ids::RunIds;
use crate::store::memory::MemoryStore;

/// When a test's clock begins, unless it is told otherwise: 2030-01-01 00:00 UTC.
pub(super) const BEGINS: Timestamp = Timestamp::from_micros(1_893_456_000_000_000);

/// An engine for tests: in memory, with virtual time.
///
/// When everything waits, the clock jumps to the next moment at which something is due: a workflow
/// that sleeps for a month is tested in a millisecond. Nothing really sleeps, also not
/// `tokio::time::sleep` in a step. The same seed gives the same ids and times, so the same journal,
/// byte for byte.
///
/// Time has steps of a millisecond. The engine needs the current-thread runtime, which is what `#[tokio::test]` gives. It pauses tokio's time on
/// that runtime, for good.
///
/// **Real input and output in a step** (a socket, a file) is not seen by tokio as something that is about
/// to happen: time jumps on while the step waits for it, to its timeout if it has one. Stub such steps, or
/// give the step's client as a `#[resource]` and the test a fake.
///
/// ```
/// use std::time::Duration;
/// use workflow_runtime::testing::TestEngine;
/// use workflow_runtime::{Result, sleep, workflow};
///
/// #[workflow]
/// async fn reminder(days: u64) -> Result<u64> {
///     sleep(Duration::from_secs(days * 86_400)).await;
///     Ok(days)
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<()> {
///     let engine = TestEngine::builder().register::<reminder>().open().await?;
///     let run = engine.start(reminder(30)).await?;
///     assert_eq!(run.result().await?, 30);
///     assert_eq!(engine.elapsed(), Duration::from_secs(30 * 86_400));
///     Ok(())
/// }
/// ```
pub struct TestEngine {
    pub(super) engine: Engine,
    told: TellFaults,
    pub(super) patience: Duration,
    clock: Clock,
    opened_at: Timestamp,
}

/// Sets a [`TestEngine`] up.
#[must_use = "nothing is opened until `open` is awaited"]
pub struct TestEngineBuilder {
    pub(super) engine: EngineBuilder,
    pub(super) control: Arc<Control>,
    pub(super) patience: Duration,
    pub(super) store: MemoryStore,
    pub(super) seed: u64,
    starts_at: Timestamp,
    /// A clock that goes already: that of an engine which lived before.
    pub(super) clock: Option<Clock>,
    pub(super) jumps: Option<u64>,
}

impl TestEngine {
    /// Begins to set one up.
    pub fn builder() -> TestEngineBuilder {
        TestEngineBuilder {
            engine: Engine::builder(),
            control: Arc::default(),
            patience: driving::PATIENCE,
            store: MemoryStore::new(),
            seed: 0,
            starts_at: BEGINS,
            clock: None,
            jumps: None,
        }
    }

    /// What the test has in its hands of the engine.
    pub(super) fn control(&self) -> &Arc<Control> {
        &self.told.0
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads the test's clock.
    pub fn now(&self) -> SystemTime {
        self.clock.now().into()
    }

    /// Says how much time has passed since the engine was opened, by its own clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.opened_at)
    }

    /// Lets this much time pass: all that is due meanwhile happens, each at its moment.
    ///
    /// To wait for something, await that instead (a result, a [`Watch`](crate::Watch)): time passes by
    /// itself as far as it has to. This is for looking at what has *not* happened by then.
    pub async fn advance(&self, time: Duration) {
        self.clock.pass(time).await;
        // What is due at this very moment was woken with this task, or behind it.
        self.settle().await;
    }

    /// Turns the clock forward, as an operator or a time server turns a machine's: no timer has run meanwhile.
    pub fn turn_forward(&self, by: Duration) {
        self.clock.turn(micros(by));
    }

    /// Turns the clock back.
    pub fn turn_back(&self, by: Duration) {
        self.clock.turn(-micros(by));
    }
}

/// How often a test yields so that all tasks that can go on do: from a timer's wake-up to the end of a run
/// are a few tasks, each woken by the one before it.
pub(super) const SETTLING: usize = 64;

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Deref for TestEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl TestEngineBuilder {
    /// Registers a workflow.
    pub fn register<W: Workflow>(mut self) -> Self {
        self.engine = self.engine.register::<W>();
        self
    }

    /// Provides a resource, most often a fake.
    pub fn resource<T: Send + Sync + 'static>(mut self, resource: T) -> Self {
        self.engine = self.engine.resource(resource);
        self
    }

    /// Provides a resource that the test keeps too, or a trait object.
    pub fn resource_arc<T: ?Sized + Send + Sync + 'static>(mut self, resource: Arc<T>) -> Self {
        self.engine = self.engine.resource_arc(resource);
        self
    }

    /// Sets everything else that an engine can be told: queues, namespaces, limits.
    pub fn configure(mut self, change: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        self.engine = change(self.engine);
        self
    }

    /// Sets the seed of the ids of runs without a key; 0 otherwise.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets what the clock shows at first; 2030-01-01 00:00 UTC otherwise.
    pub fn starts_at(mut self, time: SystemTime) -> Self {
        self.starts_at = time.into();
        self
    }

    /// Keeps the runs in this store: one with planned faults, or one that an engine was opened on before.
    pub fn store(mut self, store: MemoryStore) -> Self {
        self.store = store;
        self
    }

    /// Opens the engine, and pauses tokio's time if it is not paused yet.
    ///
    /// # Errors
    ///
    /// If the runtime has more than one thread, or the configuration cannot work.
    pub async fn open(self) -> Result<TestEngine, EngineError> {
        pause_time().await?;
        let starts_at = self.starts_at;
        let clock = self.clock.unwrap_or_else(|| Clock::virtual_from(starts_at));
        if let Some(seed) = self.jumps {
            chaos::jump_at_each_write(&self.store, &clock, seed);
        }
        let opened_at = clock.now();
        let ids = RunIds::seeded(self.seed);
        let engine = self.engine.timed(clock.clone(), ids);
        let engine = engine.tested(self.control.clone());
        Ok(TestEngine {
            engine: engine.open_with(self.store).await?,
            told: TellFaults(self.control),
            patience: self.patience,
            clock,
            opened_at,
        })
    }
}

/// Pauses tokio's time, unless it is paused already.
pub(super) async fn pause_time() -> Result<(), EngineError> {
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        return Err(EngineError::Configuration(
            "a `TestEngine` needs the current-thread runtime, whose time can be paused: use \
             `#[tokio::test]` without `flavor`"
                .into(),
        ));
    }
    if !is_paused() {
        tokio::time::pause();
        begin_on_a_millisecond().await;
    }
    Ok(())
}

/// Lets tokio's paused time pass to just behind a whole millisecond of its own count.
///
/// Tokio's timers end at whole milliseconds since its runtime began. Real time has passed between that and the pause,
/// and paused time jumps by whole milliseconds only, so that what is left over stays for ever: whether a wait of 1.3 ms
/// takes two jumps or three would follow from how fast the machine was. What is left over cannot be read, but asked for: a
/// wait that is longer than what is missing to the next millisecond takes one jump more.
async fn begin_on_a_millisecond() {
    const STEP: Duration = Duration::from_millis(1);
    let (mut fits, mut too_long) = (Duration::ZERO, STEP);
    while too_long - fits > Duration::from_nanos(1) {
        let middle = fits + (too_long - fits) / 2;
        let before = Instant::now();
        tokio::time::sleep(middle).await;
        match before.elapsed() <= STEP {
            true => fits = middle,
            false => too_long = middle,
        }
    }
    // A wait that ends on the millisecond is the longest that fits; a whole one fits only if nothing is left over.
    let before = Instant::now();
    tokio::time::sleep(STEP).await;
    let missing = match before.elapsed() > STEP {
        true => fits,
        false => Duration::ZERO,
    };
    // Just behind it, where every runtime was that was paused later: what tests have recorded stays as it is.
    tokio::time::advance(missing + Duration::from_nanos(1)).await;
}

/// Says whether tokio's time stands still. To pause it twice is a panic, and there is no way to ask.
fn is_paused() -> bool {
    let (before, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
    before == Instant::now()
}
