//! Stopping: in an orderly way, at once, or by being dropped; nothing is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunStatus, get_step_metadata,
    sleep, step, workflow,
};
use workflow_tests::{Ledger, steps};

#[step]
async fn gated(#[resource] gate: &Semaphore, #[resource] ledger: &Ledger, n: u32) -> Result<u32> {
    ledger.act(&format!("gated {n}"));
    gate.acquire().await?.forget();
    Ok(n)
}

#[workflow]
async fn two_gates() -> Result<u32> {
    Ok(gated(1).await? + gated(2).await?)
}

struct World {
    gate: Arc<Semaphore>,
    ledger: Arc<Ledger>,
}

impl World {
    fn new() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            ledger: Ledger::shared(),
        }
    }

    fn engine(&self) -> EngineBuilder {
        Engine::builder()
            .register::<two_gates>()
            .resource_arc(self.gate.clone())
            .resource_arc(self.ledger.clone())
    }

    async fn until_asked(&self, times: usize) {
        while self.ledger.asked() < times {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_bodies_and_begins_no_new_ones() {
    let world = World::new();
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(two_gates()).await.expect("starts");
    world.until_asked(1).await;
    let mut stopping = Box::pin(engine.shutdown().into_future());
    for _ in 0..20 {
        assert!(futures::poll!(&mut stopping).is_pending(), "a body runs");
        tokio::task::yield_now().await;
    }
    world.gate.add_permits(1);
    stopping.await.expect("stops");
    let error = run.result().await.expect_err("is unfinished");
    assert!(
        matches!(error, RunError::Engine(EngineError::Stopped(_))),
        "{error:?}"
    );
    assert_eq!(world.ledger.asked(), 1, "the second body was not begun");

    world.gate.add_permits(1);
    let engine = world
        .engine()
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = engine.run::<two_gates>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 3);
    assert_eq!(world.ledger.asked(), 2, "the first outcome was recorded");
    let journal = engine.journal(run.id()).await.expect("reads");
    let crashed = |r: &workflow_runtime::journal::Record| matches!(r.event, Event::RunRecovered(_));
    assert!(
        !journal.records().iter().any(crashed),
        "a clean stop is no crash"
    );
}

#[tokio::test]
async fn a_shutdown_without_grace_leaves_bodies_for_the_next_engine() {
    let world = World::new();
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(two_gates()).await.expect("starts").id();
    world.until_asked(1).await;
    let began = Instant::now();
    engine
        .shutdown()
        .grace(Duration::ZERO)
        .await
        .expect("stops");
    assert!(began.elapsed() < Duration::from_secs(1));
    world.gate.add_permits(2);
    let engine = world
        .engine()
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = engine.run::<two_gates>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 3);
    assert_eq!(world.ledger.effects(), ["gated 1", "gated 2"]);
    assert_eq!(
        world.ledger.asked(),
        3,
        "the first body began twice, under one id"
    );
}

#[tokio::test]
async fn a_dropped_engine_stops_and_the_next_one_puts_the_crash_on_record() {
    let world = World::new();
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(two_gates()).await.expect("starts");
    let clone = engine.clone();
    world.until_asked(1).await;
    drop(engine);
    assert_eq!(
        run.status().await.expect("reads"),
        RunStatus::Active,
        "a clone is left"
    );
    drop(clone);
    let error = run.result().await.expect_err("is unfinished");
    assert!(
        matches!(error, RunError::Engine(EngineError::Stopped(_))),
        "{error:?}"
    );

    world.gate.add_permits(2);
    let engine = world
        .engine()
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = engine.run::<two_gates>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 3);
    let journal = engine.journal(run.id()).await.expect("reads");
    let recovered = journal
        .records()
        .iter()
        .find_map(|record| match &record.event {
            Event::RunRecovered(recovered) => Some(recovered.clone()),
            _ => None,
        });
    let recovered = recovered.expect("is on record");
    assert_eq!(recovered.replayed, 0);
    assert_eq!(recovered.in_flight, [steps(&journal)[0].step]);
}

#[tokio::test]
async fn a_stopped_engine_refuses_to_start() {
    let world = World::new();
    let engine = world.engine().open_in_memory().await.expect("opens");
    let start = engine.start(two_gates());
    engine.shutdown().await.expect("stops");
    assert!(matches!(start.await, Err(EngineError::Stopped(_))));
    assert_eq!(world.ledger.asked(), 0);
}

/// One of several chains of steps that run at once, with a retry and a sleep in each.
async fn part(n: u32) -> Result<u32> {
    let first = act(n * 10).await?;
    sleep(Duration::from_millis(1)).await;
    Ok(first + act(n * 10 + 1).await?)
}

#[step(backoff = "1ms")]
async fn act(#[resource] ledger: &Ledger, n: u32) -> Result<u32> {
    tokio::time::sleep(Duration::from_millis(u64::from(n % 3))).await;
    ledger.act(&n.to_string());
    if n % 20 == 1 && get_step_metadata().attempt == 1 {
        return Err(Error::new("once more"));
    }
    Ok(n)
}

#[workflow]
async fn many_parts() -> Result<u32> {
    let parts = (0..4).map(|n| async move { part(n).await });
    futures::future::try_join_all(parts)
        .await
        .map(|sums| sums.iter().sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_come_and_go_in_any_way_lose_nothing() {
    const RUNS: usize = 12;
    for round in 0..6u64 {
        let ledger = Ledger::shared();
        let builder = || {
            Engine::builder()
                .register::<many_parts>()
                .max_active_runs(5)
                .resource_arc(ledger.clone())
        };
        let mut store = MemoryStore::new();
        for life in 0..8u64 {
            let engine = builder().open_with(store.clone()).await.expect("opens");
            for key in 0..RUNS {
                let run = engine.start(many_parts()).key(key).await;
                run.expect("starts");
            }
            tokio::time::sleep(Duration::from_micros((round * 8 + life) * 331 % 5000)).await;
            match (round + life) % 3 {
                0 => engine.shutdown().await.expect("stops"),
                1 => engine
                    .shutdown()
                    .grace(Duration::ZERO)
                    .await
                    .expect("stops"),
                _ => drop(engine),
            }
            store = store.reopen(Surviving::Synced);
        }
        let engine = builder().open_with(store).await.expect("opens");
        for key in 0..RUNS {
            let run = engine.start(many_parts()).key(key).await.expect("starts");
            let result = tokio::time::timeout(Duration::from_secs(10), run.result()).await;
            assert_eq!(result.expect("goes on").expect("ends well"), 124);
            let journal = engine.journal(run.id()).await.expect("reads");
            assert_eq!(steps(&journal).len(), 8, "{journal}");
        }
        assert_eq!(ledger.effects().len(), 8 * RUNS);
        let verification = engine.verify().await.expect("verifies");
        assert!(verification.damaged.is_empty());
        engine.shutdown().await.expect("stops");
    }
}
