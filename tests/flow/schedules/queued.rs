//! Schedules whose runs wait for their turn in a queue.

use workflow_runtime::Queue;

use super::*;

fn builder(world: &World) -> EngineBuilder {
    world.engine().queue(Queue::named("mail").concurrency(1))
}

#[tokio::test]
async fn the_runs_of_ticks_and_triggers_wait_for_their_turn_in_order() {
    let world = World::new(0);
    let engine = builder(&world).open_in_memory().await.expect("opens");
    let five = five_past(&engine, SystemTime::now()).catch_up(ALL);
    let five = five.overlap(Overlap::Allow).queue("mail").await;
    let five = five.expect("is declared");
    assert_eq!(
        five.describe().await.expect("is there").queue.as_deref(),
        Some("mail")
    );
    let mail = engine.queue("mail");
    let waiting = async || mail.describe().await.expect("is there").waiting;
    until("one runs and four wait", async || waiting().await == 4).await;
    five.trigger().await.expect("is triggered");
    assert_eq!(waiting().await, 5);
    for turns in 1..=6 {
        assert_eq!(world.ledger.effects().len(), turns, "one at a time");
        world.gate.0.add_permits(1);
        until("its turn is over", async || {
            ended(&engine).await.len() == turns && world.ledger.effects().len() == 6.min(turns + 1)
        })
        .await;
    }
}

#[tokio::test]
async fn a_queue_that_nobody_declared_is_refused() {
    let world = World::new(OPEN);
    let engine = world.engine().open_in_memory().await.expect("opens");
    let five = five_past(&engine, SystemTime::now()).queue("mail").await;
    let error = five.expect_err("refused");
    assert!(
        error.to_string().contains("Queue::named(\"mail\")"),
        "{error}"
    );
}

#[tokio::test]
async fn a_crash_at_any_write_neither_skips_nor_doubles_a_queued_tick() {
    let now = SystemTime::now();
    let live_through = async |world: &World, plan: FaultPlan| {
        let mut store = MemoryStore::with_faults(plan);
        loop {
            let living = async {
                let engine = builder(world).open_with(store.clone()).await;
                let engine = engine.expect("opens");
                let five = five_past(&engine, now).catch_up(ALL);
                let five = five.overlap(Overlap::Allow).queue("mail");
                five.await.expect("is declared");
                until("all have ended", async || ended(&engine).await.len() == 5).await;
            };
            tokio::select! {
                biased;
                () = store.crashed() => {}
                () = living => return store,
            }
            store = store.reopen(Surviving::Synced);
        }
    };
    let writes = live_through(&World::new(OPEN), FaultPlan::none())
        .await
        .writes();
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let world = World::new(OPEN);
            let store = live_through(&world, FaultPlan::at(write, fault)).await;
            assert_eq!(keys_of(&store).await.len(), 5, "{fault:?} at {write}");
            assert_eq!(world.ledger.effects().len(), 5, "{fault:?} at {write}");
        }
    }
}
