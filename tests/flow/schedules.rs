//! Schedules: one run per tick, through crashes, overlaps, downtime and whoever looks after them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Semaphore;
use workflow_runtime::clock::Timestamp;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{Changes, Commit, NoteChange, NoteKey, RunHeader, StateKind, Store};
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

/// Lives through crashes until the five ticks have been settled and `count` runs have ended.
async fn live_through(
    world: &World,
    overlap: Overlap,
    count: usize,
    plans: Vec<FaultPlan>,
) -> MemoryStore {
    let now = SystemTime::now();
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    loop {
        let living = async {
            let engine = world
                .engine()
                .open_with(store.clone())
                .await
                .expect("opens");
            let five = five_past(&engine, now).catch_up(ALL).overlap(overlap);
            let five = five.await.expect("is declared");
            until("all runs have ended", async || {
                ended(&engine).await.len() == count && is_over(&five).await
            })
            .await;
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => return store,
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    }
}

/// Says whether every tick has been run, kept or skipped, and none is kept any more.
async fn is_over(five: &ScheduleHandle) -> bool {
    let five = five.describe().await.expect("is there");
    five.buffered.is_none() && five.last_tick.is_some()
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
    let step = |pair: &[RunHeader]| pair[1].created_at.since(pair[0].created_at);
    assert!(
        runs.windows(2)
            .all(|pair| step(pair) >= Duration::from_millis(1)),
        "{runs:?}"
    );
    assert_eq!(world.ledger.effects().len(), runs.len());
    let key = runs[0].key.as_deref().expect("has a key");
    assert!(key.starts_with("schedule/quick/20"), "{key}");
}

#[tokio::test]
async fn a_crash_at_any_write_neither_skips_nor_doubles_a_tick() {
    let clean = live_through(&World::new(OPEN), Overlap::Allow, 5, vec![]).await;
    assert_eq!(keys_of(&clean).await.len(), 5);
    let writes = clean.writes();
    assert!(writes >= 1 + 5 + 10, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let world = World::new(OPEN);
            let plans = vec![FaultPlan::at(write, fault)];
            let store = live_through(&world, Overlap::Allow, 5, plans).await;
            assert_eq!(keys_of(&store).await.len(), 5, "{fault:?} at {write}");
            assert_eq!(world.ledger.effects().len(), 5, "{fault:?} at {write}");
        }
    }
}

#[tokio::test]
async fn two_crashes_at_any_writes_neither_skip_nor_double_a_tick() {
    let clean = live_through(&World::new(OPEN), Overlap::Allow, 5, vec![]).await;
    for first in 0..clean.writes() {
        for second in 0..clean.writes() - first {
            let world = World::new(OPEN);
            let plans = vec![
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ];
            let store = live_through(&world, Overlap::Allow, 5, plans).await;
            assert_eq!(keys_of(&store).await.len(), 5, "{first}, {second}");
            assert_eq!(world.ledger.effects().len(), 5, "{first}, {second}");
        }
    }
}

#[tokio::test]
async fn engines_one_after_the_other_and_beside_each_other_run_a_tick_once() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let now = SystemTime::now();
    let mut engines = Vec::new();
    for _ in 0..3 {
        engines.push(
            world
                .engine()
                .open_with(store.clone())
                .await
                .expect("opens"),
        );
    }
    let declaring = engines.iter().map(|engine| async {
        let five = five_past(engine, now).catch_up(ALL).overlap(Overlap::Allow);
        five.await.expect("is declared");
    });
    futures::future::join_all(declaring).await;
    until("all have ended", async || {
        ended(&engines[0]).await.len() == 5
    })
    .await;
    assert_eq!(keys_of(&store).await.len(), 5);
    assert_eq!(world.ledger.effects().len(), 5);
}

#[tokio::test]
async fn what_another_process_changed_is_not_written_over() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let serving = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let quick = serving
        .schedule("quick", report("Berlin".into()))
        .every(Duration::from_millis(5))
        .overlap(Overlap::Allow);
    quick.await.expect("is declared");
    until("it is served", async || !ended(&serving).await.is_empty()).await;
    // The serving engine knows the schedule as it was, and nobody tells it.
    let other = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let quick = other.schedule_handle("quick");
    quick.pause().await.expect("is paused");
    let before = keys_of(&store).await.len();
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(keys_of(&store).await.len(), before);
    assert!(quick.describe().await.expect("is there").paused);
    quick.resume().await.expect("is resumed");
    until("it ticks again", async || {
        keys_of(&store).await.len() > before
    })
    .await;
    quick.delete().await.expect("is deleted");
    let before = keys_of(&store).await.len();
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(keys_of(&store).await.len(), before);
    assert!(other.schedules().await.expect("lists").is_empty());
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
async fn a_kept_tick_survives_a_crash_at_any_write() {
    // With the gate open, runs end at once; how many ticks find one running depends on the
    // moment of the crash. What must hold: a kept tick is run, and nothing is run twice.
    let world = World::new(0);
    let store = MemoryStore::new();
    let now = SystemTime::now();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let declare = |engine: &Engine| {
        five_past(engine, now)
            .catch_up(ALL)
            .overlap(Overlap::BufferOne)
    };
    let five = declare(&engine).await.expect("is declared");
    until("one is kept", async || {
        five.describe().await.expect("is there").skipped == 3
    })
    .await;
    drop(engine);
    let before = store.reopen(Surviving::Synced);
    for write in 0..9 {
        let store = before.reopen(Surviving::Synced);
        store.set_faults(FaultPlan::at(write, Fault::CrashAfter));
        let world = World::new(OPEN);
        let mut store = store;
        loop {
            let living = async {
                let engine = world
                    .engine()
                    .open_with(store.clone())
                    .await
                    .expect("opens");
                let five = engine.schedule_handle("five");
                until("both have ended", async || {
                    ended(&engine).await.len() == 2 && is_over(&five).await
                })
                .await;
            };
            tokio::select! {
                biased;
                () = store.crashed() => store = store.reopen(Surviving::Synced),
                () = living => break,
            }
        }
        assert_eq!(keys_of(&store).await.len(), 2, "{write}");
        assert_eq!(world.ledger.effects().len(), 2, "{write}");
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
async fn a_paused_schedule_does_not_tick_and_does_not_make_up_for_it() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let quick = engine
        .schedule("quick", report("Berlin".into()))
        .every(Duration::from_millis(10))
        .overlap(Overlap::Allow)
        .await
        .expect("is declared");
    quick.pause().await.expect("is paused");
    let paused = quick.describe().await.expect("is there");
    assert!(paused.paused && paused.next.is_empty(), "{paused:?}");
    let before = runs(&engine, None).await.len();
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(runs(&engine, None).await.len(), before);
    engine.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::Synced);
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(
        runs(&engine, None).await.len(),
        before,
        "the pause survives a restart"
    );
    let quick = engine.schedule_handle("quick");
    let resumed = Timestamp::from(SystemTime::now()).to_string();
    quick.resume().await.expect("is resumed");
    until("it ticks", async || {
        runs(&engine, None).await.len() > before
    })
    .await;
    quick.delete().await.expect("is deleted");
    for run in &runs(&engine, None).await[before..] {
        let key = run.key.as_deref().expect("has a key");
        let tick = key
            .strip_prefix("schedule/quick/")
            .expect("of this schedule");
        // To the millisecond: both are times in UTC that sort as text.
        let to_millis = "2026-01-01T00:00:00.000".len();
        assert!(
            tick[..to_millis] >= resumed[..to_millis],
            "{tick} was made up after {resumed}"
        );
    }
}

#[tokio::test]
async fn a_trigger_starts_a_run_now_and_each_one_another() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let rare = engine
        .schedule("rare", report("Berlin".into()))
        .cron("0 0 29 2 *")
        .time_zone("Europe/Berlin")
        .await
        .expect("is declared");
    rare.pause().await.expect("is paused");
    let first = rare.trigger().await.expect("is triggered");
    let second = rare.trigger().await.expect("is triggered");
    assert_ne!(first, second);
    let run = engine.run::<report>(second).await.expect("is there");
    run.result().await.expect("ends well");
    let described = rare.describe().await.expect("is there");
    assert_eq!(
        (described.last_run, described.last_tick),
        (Some(second), None)
    );
    until("both", async || ended(&engine).await.len() == 2).await;
    assert_eq!(
        engine.status(first).await.expect("is there"),
        RunStatus::Completed
    );
}

#[tokio::test]
async fn a_description_says_what_comes_and_a_list_names_all() {
    let world = World::new(OPEN);
    let engine = world.engine().open_in_memory().await.expect("opens");
    let nightly = engine
        .schedule("nightly", report("Berlin".into()))
        .cron("0 2 * * *")
        .time_zone("Europe/Berlin");
    let nightly = nightly.await.expect("is declared");
    let daily = engine.schedule("daily", other()).every(HOUR * 24);
    daily.await.expect("is declared");
    let described = nightly.describe().await.expect("is there");
    assert_eq!(&*described.timing, "0 2 * * * Europe/Berlin");
    assert_eq!(described.next.len(), 5);
    assert!(described.next.is_sorted());
    assert!(described.next[0] > SystemTime::now().into());
    assert_eq!(
        (described.overlap, described.catch_up),
        (Overlap::Skip, CatchUp::Last)
    );
    let all = engine.schedules().await.expect("lists");
    let names: Vec<_> = all.iter().map(|schedule| &*schedule.name).collect();
    assert_eq!(names, ["daily", "nightly"]);
    nightly.delete().await.expect("is deleted");
    assert_eq!(engine.schedules().await.expect("lists").len(), 1);
    for refused in [nightly.describe().await.err(), nightly.delete().await.err()] {
        assert!(matches!(refused, Some(EngineError::UnknownSchedule(name)) if name == "nightly"));
    }
    let elsewhere = world.engine().namespace("elsewhere").open_in_memory().await;
    let elsewhere = elsewhere.expect("opens");
    assert!(elsewhere.schedules().await.expect("lists").is_empty());
}

#[tokio::test]
async fn a_schedule_that_cannot_be_served_is_reported_and_stops_no_other() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let broken = Commit {
        guards: vec![],
        changes: Changes {
            notes: vec![NoteChange {
                key: NoteKey::new(0x40, &[b"default", b"broken"]),
                value: Some(vec![1, 2, 3].into()),
            }],
            ..Changes::default()
        },
    };
    store.commit(broken).await.expect("writes");
    let now = SystemTime::now();
    let first = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let five = five_past(&first, now).catch_up(ALL).overlap(Overlap::Allow);
    five.start_at(now + Duration::from_millis(60))
        .end_at(now + Duration::from_millis(70))
        .await
        .expect("is declared");
    first.shutdown().await.expect("stops");

    let store = store.reopen(Surviving::Synced);
    let second = world.engine_without_report().open_with(store.clone()).await;
    let second = second.expect("opens");
    let quick = second
        .schedule("quick", other())
        .every(Duration::from_millis(10));
    quick.await.expect("is declared");
    let served = || world.ledger.effects().contains(&"other".to_owned());
    until("the other one ticks, both are reported", async || {
        served() && second.warnings().len() >= 2
    })
    .await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let warnings = second.warnings();
    assert_eq!(warnings.len(), 2, "each once: {warnings:?}");
    let text = warnings.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("schedule `broken` is not served"), "{text}");
    assert!(
        text.contains("no workflow `report` version 1 is registered"),
        "{text}"
    );
    assert_eq!(second.schedules().await.expect("lists").len(), 2);
    let handle = second.schedule_handle("broken");
    assert!(matches!(
        handle.pause().await,
        Err(EngineError::Schedule { .. })
    ));
    handle
        .delete()
        .await
        .expect("what cannot be read can be deleted");
    second.shutdown().await.expect("stops");

    let store = store.reopen(Surviving::Synced);
    let third = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    until("the tick was not lost", async || {
        ended(&third).await.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_schedule_that_cannot_work_is_refused_with_the_way_out() {
    let world = World::new(OPEN);
    let engine = world.engine_without_report().open_in_memory().await;
    let engine = engine.expect("opens");
    let named = |name: &str| engine.schedule(name, other());
    let minute = Duration::from_secs(60);
    let now = SystemTime::now();
    for (schedule, words) in [
        (named("a"), "add `.cron("),
        (named("a").cron("* * * * *").every(minute), "leave one out"),
        (
            named("a").every(minute).time_zone("UTC"),
            "has no time zone",
        ),
        (named("a").every(Duration::ZERO), "the shortest is 1ms"),
        (named("a").cron("* * *"), "has five fields"),
        (named("a").cron("@daily"), "has five fields"),
        (named("a").cron("0 0 30 2 *"), "would never tick"),
        (
            named("a").cron("* * * * *").time_zone("Mars"),
            "`Mars` is not a time zone",
        ),
        (named("").every(minute), "cannot be empty"),
        (named(&"x".repeat(300)).every(minute), "at most 256"),
        (
            named("a").every(minute).overlap(Overlap::CancelPrevious),
            "use `Skip`, `Allow`",
        ),
        (
            named("a").every(minute).start_at(now).end_at(now - HOUR),
            "before it starts",
        ),
    ] {
        let error = schedule.await.expect_err(words);
        assert!(matches!(error, EngineError::Schedule { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error} says {words}");
    }
    let unregistered = engine
        .schedule("a", report("Berlin".into()))
        .every(minute)
        .await;
    assert!(matches!(
        unregistered,
        Err(EngineError::NotRegistered { .. })
    ));
    assert!(engine.schedules().await.expect("lists").is_empty());
}
