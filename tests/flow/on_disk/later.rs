//! What happens to runs from outside, on a disk: starts under a key, retries, forks, queues, schedules,
//! retention.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use workflow_runtime::{
    CatchUp, Engine, EngineBuilder, EngineError, Error, Overlap, Queue, Result, Retention,
    RunError, RunStatus, get_workflow_metadata, step, workflow,
};
use workflow_tests::{Ledger, ids_of};

use super::{BOTH, Disk, Stop, until};

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

/// Each test that breaks the world has one of its own.
static FIRST_WORLD: AtomicBool = AtomicBool::new(false);
static SECOND_WORLD: AtomicBool = AtomicBool::new(false);

#[step(max_attempts = 2, backoff = "1ms")]
async fn shaky(#[resource] ledger: &Ledger, world: usize) -> Result<usize> {
    ledger.act("shaky");
    let works = [&FIRST_WORLD, &SECOND_WORLD][world].load(Ordering::SeqCst);
    works
        .then_some(world)
        .ok_or_else(|| Error::new("the world is broken"))
}

#[workflow]
async fn order(world: usize) -> Result<usize> {
    let first = act("first".repeat(2_000)).await?;
    let second = shaky(world).await?;
    let third = act("third".to_owned()).await?;
    Ok(first + second + third)
}

#[workflow]
async fn travel() -> Result<Vec<usize>> {
    let mut done = Vec::new();
    for place in ["Bonn", "Köln", "Trier", "Metz"] {
        let run = get_workflow_metadata().run_id;
        done.push(act(format!("{place} {run} {}", "x".repeat(5_000))).await?);
    }
    Ok(done)
}

#[step]
async fn work(#[resource] ledger: &Ledger, name: usize) -> Result<usize> {
    ledger.act(&format!("job {name}"));
    tokio::time::sleep(Duration::from_millis(2)).await;
    Ok(name)
}

#[workflow]
async fn job(name: usize) -> Result<usize> {
    work(name).await
}

#[workflow]
async fn pay(order: u64) -> Result<u64> {
    act(format!("order {order}")).await?;
    Ok(order)
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<order>()
        .register::<travel>()
        .register::<job>()
        .register::<pay>()
        .queue(Queue::named("mail").concurrency(3))
}

fn forgetful() -> EngineBuilder {
    engine()
        .retention(Retention::of(Duration::ZERO))
        .key_ttl(Duration::ZERO)
}

#[tokio::test]
async fn a_failed_run_is_tried_again_by_a_later_process() {
    for (world, stop) in BOTH.into_iter().enumerate() {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let run = engine.start(order(world)).key("o").await.expect("starts");
        run.result().await.expect_err("the world is broken");
        let ids: HashSet<_> = disk.ledger.attempts().iter().map(|one| one.0).collect();
        assert_eq!(ids.len(), 2);
        // Long enough for its journal to be in the archive only.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut engine = disk.restart(engine, stop).await;
        // The world stays broken once more, and the run fails once more.
        for works in [false, true] {
            [&FIRST_WORLD, &SECOND_WORLD][world].store(works, Ordering::SeqCst);
            engine.retry(run.id()).await.expect("is retried");
            engine = disk.restart(engine, stop).await;
            let run = engine.run::<order>(run.id()).await.expect("is there");
            match (works, run.result().await) {
                (false, Err(RunError::Failed(_))) => {}
                (true, Ok(sum)) => assert_eq!(sum, 10_000 + world + 5),
                (_, other) => panic!("{other:?}"),
            }
        }
        assert_eq!(disk.ledger.effects().len(), 3);
        let same = engine.start(order(world)).key("o").await.expect("is there");
        assert_eq!(same.id(), run.id());
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_run_of_an_earlier_process_is_forked() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let origin = engine.start(travel()).await.expect("starts").id();
        let handle = engine.run::<travel>(origin).await.expect("is there");
        let done = handle.result().await.expect("ends well");
        let engine = disk.restart(engine, stop).await;
        let ids = ids_of(&engine.journal(origin).await.expect("reads"), "act");
        disk.ledger.forget_asking();
        let fork = engine.fork(origin).at(ids[2]).await.expect("is forked");
        let engine = disk.restart(engine, stop).await;
        let fork = engine.run::<travel>(fork).await.expect("is there");
        assert_eq!(fork.result().await.expect("ends well"), done);
        let own = ids_of(&engine.journal(fork.id()).await.expect("reads"), "act");
        assert_eq!(own[..2], ids[..2]);
        assert!(own[2..].iter().all(|id| !ids.contains(id)));
        assert_eq!(disk.ledger.effects().len(), 6);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_queue_goes_on_with_its_limits_through_every_stop() {
    const JOBS: usize = 60;
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        engine.queue("mail").pause().await.expect("is paused");
        let mut runs = Vec::new();
        for number in 0..JOBS {
            let start = engine.start(job(number)).key(format!("job {number}"));
            runs.push(start.queue("mail").await.expect("is queued").id());
        }
        engine = disk.restart(engine, stop).await;
        let mail = engine.queue("mail").describe().await.expect("is there");
        assert_eq!((mail.waiting, mail.running), (JOBS as u64, 0));
        assert_eq!(disk.ledger.asked(), 0, "it is paused");
        engine.queue("mail").resume().await.expect("is resumed");
        for far in [1, 20, 40] {
            until("it is so far", async || disk.ledger.effects().len() >= far).await;
            let mail = engine.queue("mail").describe().await.expect("is there");
            assert!(mail.running <= 3, "{}", mail.running);
            engine = disk.restart(engine, stop).await;
        }
        for (number, run) in runs.iter().enumerate() {
            let run = engine.run::<job>(*run).await.expect("is there");
            assert_eq!(run.result().await.expect("ends well"), number);
        }
        assert_eq!(disk.ledger.effects().len(), JOBS);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_schedule_runs_every_tick_once_through_every_stop() {
    let minute = Duration::from_secs(60);
    for stop in BOTH {
        let disk = Disk::new(engine);
        let now = SystemTime::now();
        let mut engine = disk.open().await;
        for pause in [0, 1, 5, 0, 20] {
            let past = engine
                .schedule("past", pay(7))
                .every(minute)
                .start_at(now - minute * 30)
                .end_at(now - minute)
                .overlap(Overlap::Allow)
                .catch_up(CatchUp::All { at_most: 100 });
            past.await.expect("is declared");
            tokio::time::sleep(Duration::from_millis(pause)).await;
            engine = disk.restart(engine, stop).await;
        }
        until("every tick has run", async || {
            disk.ledger.effects().len() >= 30
        })
        .await;
        until("all have ended", async || {
            let runs = engine.runs().workflow("pay").limit(1_000).await;
            let runs = runs.expect("lists").runs;
            let keys: HashSet<_> = runs.iter().map(|run| run.key.clone()).collect();
            assert_eq!(keys.len(), runs.len());
            runs.len() == 30 && runs.iter().all(|run| run.end().is_some())
        })
        .await;
        assert_eq!(disk.ledger.effects().len(), 30);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_key_whose_run_was_swept_names_a_new_run_with_new_step_ids_in_every_process() {
    let disk = Disk::new(forgetful);
    let mut engine = disk.open().await;
    let (mut runs, mut steps) = (HashSet::new(), HashSet::new());
    for generation in 0..8 {
        // Others that are swept with it, more than one batch.
        let others = (0..150).map(|n| engine.start(pay(n)).key(format!("{generation} {n}")));
        for other in join_all(others.map(IntoFuture::into_future)).await {
            let other = other.expect("starts");
            let _ = other.result().await; // it may have been swept already
        }
        let run = engine.start(pay(7)).key("order-7").await.expect("starts");
        assert!(runs.insert(run.id()), "generation {generation}");
        until("it is done", async || {
            let done = engine.status(run.id()).await;
            !matches!(done, Ok(RunStatus::Active))
        })
        .await;
        until("all are swept", async || {
            engine.sweep().await.expect("sweeps");
            engine.runs().await.expect("lists").runs.is_empty()
        })
        .await;
        let gone = engine.status(run.id()).await;
        assert!(matches!(gone, Err(EngineError::UnknownRun(_))), "{gone:?}");
        engine = disk.restart(engine, BOTH[generation % 2]).await;
        let gone = engine.status(run.id()).await;
        assert!(matches!(gone, Err(EngineError::UnknownRun(_))), "{gone:?}");
        steps.extend(disk.ledger.attempts().iter().map(|one| one.0));
    }
    assert_eq!(steps.len(), 8 * 151);
    assert_eq!(disk.ledger.asked(), 8 * 151, "a step id ran twice");
    disk.is_sound(engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_starts_of_one_key_make_one_run_through_every_stop() {
    const KEYS: u64 = 20;
    let disk = Disk::new(engine);
    let mut engine = disk.open().await;
    let mut runs: Vec<HashSet<_>> = vec![HashSet::new(); KEYS as usize];
    for round in 0..4 {
        let racers = (0..KEYS * 16).map(|n| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let order = n % KEYS;
                let start = engine.start(pay(order)).key(format!("order-{order}"));
                (order, start.await.expect("starts").id())
            })
        });
        for started in join_all(racers).await {
            let (order, run) = started.expect("no panic");
            runs[order as usize].insert(run);
        }
        let conflict = engine.start(pay(99)).key("order-3").await;
        assert!(matches!(conflict, Err(EngineError::Conflict { .. })));
        engine = disk.restart(engine, BOTH[round % 2]).await;
    }
    for (order, runs) in runs.iter().enumerate() {
        assert_eq!(runs.len(), 1, "order {order}");
        for run in runs {
            let run = engine.run::<pay>(*run).await.expect("is there");
            assert_eq!(run.result().await.expect("ends well"), order as u64);
        }
    }
    assert_eq!(disk.ledger.effects().len(), KEYS as usize);
    let page = engine.runs().limit(1_000).await.expect("lists");
    assert_eq!(page.runs.len(), KEYS as usize);
    let engine = disk.restart(engine, Stop::Dropped).await;
    disk.is_sound(engine).await;
}
