//! Schedules: one run per tick, through crashes, overlaps, downtime and whoever looks after them.

mod crashes;
mod queued;
mod upkeep;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use workflow_runtime::clock::Timestamp;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{
    Changes, Commit, EndKind, NoteChange, NoteKey, RunHeader, StateKind, Store,
};
use workflow_runtime::{
    CatchUp, Engine, EngineBuilder, EngineError, Overlap, Result, RunStatus, Schedule,
    ScheduleHandle, step, workflow,
};
use workflow_tests::Ledger;

/// What a schedule's runs wait for before they end.
struct Gate(Semaphore);

#[step]
async fn act(#[resource] ledger: &Ledger, #[resource] gate: &Gate, what: &str) -> Result<()> {
    ledger.act(what);
    gate.0.acquire().await?.forget();
    Ok(())
}

#[workflow]
async fn report(city: String) -> Result<()> {
    act(&city).await
}

#[workflow]
async fn other() -> Result<()> {
    act("other").await
}

struct World {
    ledger: Arc<Ledger>,
    gate: Arc<Gate>,
}

impl World {
    /// In which as many runs can end as the gate has room for.
    fn new(room: usize) -> Self {
        Self {
            ledger: Ledger::shared(),
            gate: Arc::new(Gate(Semaphore::new(room))),
        }
    }

    fn engine(&self) -> EngineBuilder {
        self.engine_without_report().register::<report>()
    }

    fn engine_without_report(&self) -> EngineBuilder {
        Engine::builder()
            .register::<other>()
            .resource_arc(self.ledger.clone())
            .resource_arc(self.gate.clone())
    }
}

const OPEN: usize = Semaphore::MAX_PERMITS;
const HOUR: Duration = Duration::from_secs(3600);

/// A schedule whose five ticks are all past, from an hour ago on.
fn five_past(engine: &Engine, now: SystemTime) -> Schedule<report> {
    engine
        .schedule("five", report("Berlin".into()))
        .start_at(now - HOUR)
        .every(Duration::from_secs(600))
        .end_at(now - Duration::from_secs(1200))
}

const ALL: CatchUp = CatchUp::All { at_most: 100 };

async fn runs(engine: &Engine, state: Option<StateKind>) -> Vec<RunHeader> {
    let listing = engine.runs().workflow("report").limit(1000);
    let listing = match state {
        Some(state) => listing.state(state),
        None => listing,
    };
    let mut runs = listing.await.expect("lists").runs;
    runs.reverse();
    runs
}

async fn ended(engine: &Engine) -> Vec<RunHeader> {
    let completed = StateKind::Ended(workflow_runtime::store::EndKind::Completed);
    runs(engine, Some(completed)).await
}

/// Looks until it is so; a test that waits for ever says where.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..5000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("still not: {what}");
}

async fn keys_of(store: &MemoryStore) -> Vec<String> {
    let query = workflow_runtime::store::RunQuery {
        limit: 1000,
        ..Default::default()
    };
    let runs = store.list(query).await.expect("lists");
    let key = |run: RunHeader| run.key.expect("runs of schedules have keys").into();
    let mut keys: Vec<String> = runs.into_iter().map(key).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn every_tick_has_one_run_with_a_key_of_its_own() {
    let world = World::new(OPEN);
    let engine = world.engine().open_in_memory().await.expect("opens");
    let began = SystemTime::now();
    let quick = engine
        .schedule("quick", report("Berlin".into()))
        .every(Duration::from_millis(15))
        .overlap(Overlap::Allow)
        .await
        .expect("is declared");
    until("five runs", async || ended(&engine).await.len() >= 5).await;
    quick.delete().await.expect("is deleted");
    assert!(
        began.elapsed().expect("goes on") >= Duration::from_millis(75),
        "early"
    );
    until("none is left", async || {
        runs(&engine, Some(StateKind::Active)).await.is_empty()
    })
    .await;
    let runs = runs(&engine, None).await;
    let keys: std::collections::HashSet<_> = runs.iter().map(|run| run.key.clone()).collect();
    assert_eq!(keys.len(), runs.len());
    assert_eq!(world.ledger.effects().len(), runs.len());
    let key = runs[0].key.as_deref().expect("has a key");
    assert!(key.starts_with("schedule/quick/20"), "{key}");
}

#[tokio::test]
async fn ticks_during_a_run_are_skipped_kept_or_run_beside_it() {
    for (overlap, at_once, skipped, buffered) in [
        (Overlap::Skip, 1, 4, false),
        (Overlap::BufferOne, 1, 3, true),
        (Overlap::Allow, 5, 0, false),
    ] {
        let world = World::new(0);
        let engine = world.engine().open_in_memory().await.expect("opens");
        let five = five_past(&engine, SystemTime::now())
            .catch_up(ALL)
            .overlap(overlap);
        let five = five.await.expect("is declared");
        until("all ticks are settled", async || {
            let described = five.describe().await.expect("is there");
            (described.skipped, described.buffered.is_some()) == (skipped, buffered)
                && world.ledger.asked() == at_once
        })
        .await;
        assert_eq!(runs(&engine, None).await.len(), at_once, "{overlap:?}");
        world.gate.0.add_permits(10);
        let in_all = at_once + usize::from(buffered);
        until("all have ended", async || {
            ended(&engine).await.len() == in_all
        })
        .await;
        let described = five.describe().await.expect("is there");
        assert_eq!(
            (described.skipped, described.buffered),
            (skipped, None),
            "{overlap:?}"
        );
    }
}

#[tokio::test]
async fn missed_ticks_are_caught_up_as_the_policy_says() {
    for (catch_up, expected) in [
        (CatchUp::None, 0),
        (CatchUp::Last, 1),
        (CatchUp::All { at_most: 2 }, 2),
        (ALL, 5),
    ] {
        let world = World::new(OPEN);
        let store = MemoryStore::new();
        let engine = world
            .engine()
            .open_with(store.clone())
            .await
            .expect("opens");
        let now = SystemTime::now();
        let five = five_past(&engine, now)
            .catch_up(catch_up)
            .overlap(Overlap::Allow);
        let five = five.await.expect("is declared");
        until("they have ended", async || {
            ended(&engine).await.len() == expected && store.writes() > 1
        })
        .await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let keys = keys_of(&store).await;
        assert_eq!(keys.len(), expected, "{catch_up:?}");
        if expected > 0 {
            let last = five.describe().await.expect("is there").last_tick;
            let tick = Timestamp::from(now - Duration::from_secs(1200));
            assert_eq!(last, Some(tick), "{catch_up:?}");
        }
    }
}

#[tokio::test]
async fn a_schedule_that_is_declared_again_runs_no_tick_twice() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let now = SystemTime::now();
    for _ in 0..2 {
        let five = five_past(&engine, now)
            .catch_up(ALL)
            .overlap(Overlap::Allow);
        let five = five.await.expect("is declared");
        until("it is over", async || {
            let described = five.describe().await.expect("is there");
            described.last_tick == Some(Timestamp::from(now - Duration::from_secs(1200)))
        })
        .await;
        five.delete().await.expect("is deleted");
    }
    until("all have ended", async || ended(&engine).await.len() == 5).await;
    assert_eq!(keys_of(&store).await.len(), 5);
    assert_eq!(world.ledger.effects().len(), 5);
}

#[tokio::test]
async fn a_tick_can_cancel_the_run_before_it() {
    let world = World::new(0);
    let engine = world
        .engine()
        .cancel_grace(Duration::ZERO)
        .open_in_memory()
        .await
        .expect("opens");
    let five = five_past(&engine, SystemTime::now())
        .catch_up(ALL)
        .overlap(Overlap::CancelPrevious);
    let five = five.await.expect("is declared");
    let cancelled = StateKind::Ended(EndKind::Cancelled);
    until("all but the last are cancelled", async || {
        runs(&engine, Some(cancelled)).await.len() == 4
    })
    .await;
    world.gate.0.add_permits(10);
    until("the last has ended", async || {
        ended(&engine).await.len() == 1
    })
    .await;
    let last = ended(&engine).await;
    let described = five.describe().await.expect("is there");
    assert_eq!(
        last.iter().map(|run| Some(run.run)).collect::<Vec<_>>(),
        [described.last_run]
    );
}
