//! Schedules through crashes and beside each other: every tick has one run.

use super::*;

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
