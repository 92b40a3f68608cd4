//! A run of one workflow from its start to its end, to be lived again and again under worse conditions.
//!
//! Owns what a user says once (the call, the engine's set-up, the outside world, what is done to the run from outside)
//! and one life of an engine with it. It judges nothing: the checks compare what lives came to.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::invariants::{self, Violation};
use super::{Ledger, TestEngine, TestEngineBuilder};
use crate::call::{Workflow, WorkflowCall};
use crate::clock::Clock;
use crate::engine::{RunError, RunHandle};
use crate::error::Result;
use crate::ids::RunId;
use crate::journal::Journal;
use crate::key::Key;
use crate::store::memory::MemoryStore;

/// How long a run may take by the virtual clock, unless it is told otherwise. Tokio's timers reach about two years.
const LIMIT: Duration = Duration::from_secs(2 * 365 * 86_400);

/// How long what a run left behind (messages, detached children) has to come to rest by the virtual clock.
const SETTLING: Duration = Duration::from_secs(1);

/// For so many milliseconds at most are answers held back: a test that waits for a month must not take as many of them.
const ABREAST: usize = 1_000;

/// The key that a run is started under, unless it is told otherwise.
const KEY: &str = "the-run-under-test";

type SetUp = Box<dyn Fn(TestEngineBuilder, &Ledger) -> TestEngineBuilder>;
type Driving<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
type Drive<W> = Box<dyn for<'a> Fn(&'a TestEngine, &'a RunHandle<W>) -> Driving<'a>>;
type Same<W> = Box<dyn Fn(&<W as Workflow>::Ok, &<W as Workflow>::Ok) -> bool>;

/// What a user says of a run.
pub(super) struct Scenario<W: Workflow> {
    pub(super) call: Box<dyn Fn() -> WorkflowCall<W>>,
    pub(super) set_up: SetUp,
    pub(super) ledger: Box<dyn Fn() -> Ledger>,
    pub(super) drive: Option<Drive<W>>,
    /// What counts as the same result, if not what `==` says.
    pub(super) same: Option<Same<W>>,
    pub(super) key: Key,
    pub(super) settling: Duration,
    pub(super) limit: Duration,
}

/// How a run came to an end.
pub(super) enum How<W: Workflow> {
    /// It gave a result; of an error, its text.
    Ended(std::result::Result<W::Ok, String>),
    /// The engine refused to start it.
    Refused(String),
    /// It did not end in time.
    Hung,
}

/// What a life came to.
pub(super) struct Lived<W: Workflow> {
    pub(super) how: How<W>,
    pub(super) run: Option<RunId>,
    pub(super) journals: Vec<Journal>,
    pub(super) violations: Vec<Violation>,
    /// What went wrong in the user's own driving.
    pub(super) driving: Option<String>,
}

/// How often things are delivered in a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    Once,
    /// Three times at the same time.
    AtOnce,
    /// Three times, one after the other, before the end is waited for.
    InTurn,
    /// Once, and twice more when the run has ended.
    AfterTheEnd,
}

impl<W: Workflow> Scenario<W> {
    pub(super) fn new(call: impl Fn() -> WorkflowCall<W> + 'static) -> Self {
        Self {
            call: Box::new(call),
            set_up: Box::new(|engine, _| engine),
            ledger: Box::new(Ledger::honouring_keys),
            drive: None,
            same: None,
            key: KEY.into(),
            settling: SETTLING,
            limit: LIMIT,
        }
    }

    pub(super) fn drive_with<D>(&mut self, drive: D)
    where
        D: AsyncFn(&TestEngine, &RunHandle<W>) -> Result<()> + 'static,
    {
        let drive = Rc::new(drive);
        self.drive = Some(Box::new(move |engine, run| {
            let drive = drive.clone();
            Box::pin(async move { drive(engine, run).await })
        }));
    }

    /// Makes the outside world, and the clock that goes on through all lives in it.
    pub(super) async fn world(&self) -> (Ledger, Clock) {
        if let Err(error) = super::engine::pause_time().await {
            panic!("{error}");
        }
        let (ledger, clock) = ((self.ledger)(), Clock::virtual_from(super::engine::BEGINS));
        ledger.keep_time(clock.clone());
        (ledger, clock)
    }

    /// Lives once: opens an engine on a store, starts the run or finds it, and waits for its end.
    pub(super) async fn live(
        &self,
        store: &MemoryStore,
        (ledger, clock): &(Ledger, Clock),
        life: u64,
        delivery: Delivery,
    ) -> Lived<W>
    where
        W::Error: Debug,
    {
        let builder = TestEngine::builder().register::<W>();
        let mut builder = (self.set_up)(builder, ledger);
        (builder.store, builder.clock) = (store.clone(), Some(clock.clone()));
        // A second process makes other ids than the first.
        builder.seed = builder.seed.wrapping_add(life << 32);
        let engine = match builder.open().await {
            Ok(engine) => engine,
            Err(error) => panic!("the engine of this test cannot be opened: {error}"),
        };
        let mut lived = Lived {
            how: How::Hung,
            run: None,
            journals: Vec::new(),
            violations: Vec::new(),
            driving: None,
        };
        let ended =
            tokio::time::timeout(self.limit, self.play(&engine, store, delivery, &mut lived));
        if let Ok(how) = ended.await {
            lived.how = how;
            engine.advance(self.settling).await;
        }
        let checked = invariants::check_invariants(&engine).await;
        lived.violations.extend(checked.expect("reads"));
        lived.journals = invariants::journals(&engine).await.expect("reads");
        lived
    }

    async fn play(
        &self,
        engine: &TestEngine,
        store: &MemoryStore,
        delivery: Delivery,
        lived: &mut Lived<W>,
    ) -> How<W>
    where
        W::Error: Debug,
    {
        let start = || engine.start((self.call)()).key(self.key.clone());
        let (more_before, more_after) = match delivery {
            Delivery::Once => (0, 0),
            Delivery::AtOnce | Delivery::InTurn => (2, 0),
            Delivery::AfterTheEnd => (0, 2),
        };
        let started = match delivery {
            Delivery::AtOnce => {
                let (a, b, c) = tokio::join!(start(), start(), start());
                vec![a, b, c]
            }
            _ => {
                let mut started = Vec::new();
                for _ in 0..=more_before {
                    started.push(start().await);
                }
                started
            }
        };
        let mut runs = Vec::new();
        for run in started {
            match run {
                Ok(run) => runs.push(run),
                Err(error) => return How::Refused(error.to_string()),
            }
        }
        let run = runs[0].clone();
        lived.run = Some(run.id());
        let (result, driving) =
            tokio::join!(run.result(), self.deliver(engine, &run, store, delivery));
        lived.driving = driving.err().map(|error| error.to_string());
        for _ in 0..more_after {
            match start().await {
                Ok(again) => runs.push(again),
                Err(error) => return How::Refused(error.to_string()),
            }
            // To a run that has ended nothing can be sent: what matters is what comes of it.
            let _ = self.deliver(engine, &run, store, Delivery::Once).await;
        }
        lived.violations.extend(same_run(&runs));
        How::Ended(result.map_err(|error| describe(&error)))
    }

    /// Does what the user does to the run from outside, as often as it is said.
    async fn deliver(
        &self,
        engine: &TestEngine,
        run: &RunHandle<W>,
        store: &MemoryStore,
        delivery: Delivery,
    ) -> Result<()> {
        let Some(drive) = &self.drive else {
            return Ok(());
        };
        match delivery {
            Delivery::Once | Delivery::AfterTheEnd => drive(engine, run).await,
            Delivery::AtOnce => {
                let again = || drive(engine, run);
                let all = async { tokio::join!(again(), again(), again()) };
                let (first, ..) = abreast(store, all).await;
                first
            }
            Delivery::InTurn => {
                let first = drive(engine, run).await;
                let _ = drive(engine, run).await;
                let _ = drive(engine, run).await;
                first
            }
        }
    }

    /// Says whether two lives came to the same result.
    pub(super) fn same_result(&self, first: &How<W>, again: &How<W>) -> bool
    where
        W::Ok: PartialEq,
    {
        match (first, again) {
            (How::Ended(Ok(first)), How::Ended(Ok(again))) => match &self.same {
                Some(same) => same(first, again),
                None => first == again,
            },
            (How::Ended(Err(first)), How::Ended(Err(again))) => first == again,
            _ => false,
        }
    }
}

impl<W: Workflow> How<W> {
    /// Tells how it ended.
    pub(super) fn tell(&self, limit: Duration) -> String
    where
        W::Ok: Debug,
    {
        match self {
            Self::Ended(Ok(value)) => format!("Ok({value:?})"),
            Self::Ended(Err(error)) => error.clone(),
            Self::Refused(error) => format!("not started: {error}"),
            Self::Hung => {
                let days = limit.as_secs() / 86_400;
                match days {
                    0 => format!("it did not end within {limit:?} of virtual time"),
                    days => format!("it did not end within {days} days of virtual time"),
                }
            }
        }
    }
}

impl<W: Workflow> Lived<W> {
    /// The timeline of the run, and of the others that there are.
    pub(super) fn timelines(&self) -> String {
        let (own, others): (Vec<_>, Vec<_>) = self
            .journals
            .iter()
            .partition(|journal| Some(journal.header().run) == self.run);
        let all = own.into_iter().chain(others);
        all.map(|journal| journal.to_string())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Lets several deliveries go side by side, not one after the other: a store in memory answers at once, so whoever is
/// polled first would be done before the next one begins. Answers are held back for a millisecond at a time.
async fn abreast<T>(store: &MemoryStore, all: impl Future<Output = T>) -> T {
    let pacing = async {
        for _ in 0..ABREAST {
            store.hold();
            tokio::time::sleep(Duration::from_millis(1)).await;
            store.release();
        }
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        biased;
        () = pacing => unreachable!("it never ends"),
        answer = all => answer,
    };
    store.release();
    answer
}

fn same_run<W: Workflow>(runs: &[RunHandle<W>]) -> Vec<Violation> {
    let first = runs[0].id();
    let others = runs.iter().filter(|run| run.id() != first);
    others
        .map(|run| {
            let problem = format!("a second start under the key of {first} made another run");
            Violation::new(run.id(), invariants::Invariant::OneRunPerKey, problem)
        })
        .collect()
}

/// An error as text that is the same in every life.
fn describe<E: Debug>(error: &RunError<E>) -> String {
    match error {
        RunError::Failed(error) => format!("Err({error:?})"),
        RunError::Broken(error) => format!("failed without a value: {error:#}"),
        RunError::Aborted { reason } => format!("aborted: {reason}"),
        RunError::Cancelled { reason } => format!("cancelled: {reason}"),
        RunError::Parked(parking) => format!("parked: {}", parking.report),
        RunError::Engine(error) => format!("no result: {error}"),
    }
}

/// The methods that all checks of a scenario have.
macro_rules! scenario_methods {
    () => {
        /// Sets up the engine of every life: other workflows, resources, stubs. The workflow itself is registered
        /// already. The ledger is the outside world; give it to the engine as a resource, or in a fake of your own.
        pub fn engine(
            mut self,
            set_up: impl Fn(
                $crate::testing::TestEngineBuilder,
                &$crate::testing::Ledger,
            ) -> $crate::testing::TestEngineBuilder
            + 'static,
        ) -> Self {
            self.scenario.set_up = Box::new(set_up);
            self
        }

        /// Makes the outside world; one that [honours keys](crate::testing::Ledger::honouring_keys) otherwise. It is made
        /// anew for every case, and outlives the engines of a case.
        pub fn ledger(mut self, ledger: impl Fn() -> $crate::testing::Ledger + 'static) -> Self {
            self.scenario.ledger = Box::new(ledger);
            self
        }

        /// Does something to the run from outside, beside waiting for its end: sends it signals, answers its hooks.
        ///
        /// It is called in every life from the start, so what it does must be harmless when it was done before: signals
        /// need a key, as they do from a sender that tries again. Its errors count where nothing is disturbed; later a
        /// run that has ended takes no signal, which is as it should be.
        pub fn drive<D>(mut self, drive: D) -> Self
        where
            D: AsyncFn(
                    &$crate::testing::TestEngine,
                    &$crate::RunHandle<W>,
                ) -> $crate::error::Result<()>
                + 'static,
        {
            self.scenario.drive_with(drive);
            self
        }

        /// Starts the run under this key.
        pub fn key(mut self, key: impl Into<$crate::Key>) -> Self {
            self.scenario.key = key.into();
            self
        }

        /// Says which results count as the same, where `==` asks for too much: a result with a time in it.
        pub fn same_result(mut self, same: impl Fn(&W::Ok, &W::Ok) -> bool + 'static) -> Self {
            self.scenario.same = Some(Box::new(same));
            self
        }

        /// Sets how long what the run leaves behind (messages in an outbox, detached children) has to come to rest, by the
        /// virtual clock; 1 s otherwise. The ledger is looked at then.
        pub fn settle(mut self, time: std::time::Duration) -> Self {
            self.scenario.settling = time;
            self
        }

        /// Sets how long the run may take in each life, by the virtual clock; 730 days otherwise.
        pub fn within(mut self, time: std::time::Duration) -> Self {
            self.scenario.limit = time;
            self
        }
    };
}
pub(super) use scenario_methods;
