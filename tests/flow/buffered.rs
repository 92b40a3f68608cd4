//! `#[step(durability = "buffered")]`: the outcome survives the process, and the power only once a synced
//! step, a result, or anything else that others rely on comes after it.

use std::sync::Arc;

use tokio::sync::Notify;
use workflow_runtime::store::Durability;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{Engine, EngineBuilder, Result, RunId, step, workflow};
use workflow_tests::{Ledger, frames};

/// Lets a test look at the disk while a body runs.
#[derive(Default)]
struct Door {
    reached: Notify,
    open: Notify,
}

impl Door {
    async fn pass(&self) {
        self.reached.notify_one();
        self.open.notified().await;
    }
}

#[step(durability = "buffered")]
async fn look(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[step(durability = "buffered")]
async fn look_slowly(#[resource] door: &Door) -> Result<()> {
    door.pass().await;
    Ok(())
}

#[step]
async fn pay(#[resource] door: &Door, #[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("paid");
    door.pass().await;
    Ok(())
}

#[step(durability = "synced")]
async fn pay_for_sure(#[resource] door: &Door) -> Result<()> {
    door.pass().await;
    Ok(())
}

#[workflow]
async fn look_and_pay(looks: u32) -> Result<()> {
    for n in 0..looks {
        look(&n.to_string()).await?;
    }
    pay().await
}

#[workflow]
async fn look_twice() -> Result<()> {
    look("first").await?;
    look_slowly().await
}

#[workflow]
async fn look_and_pay_for_sure() -> Result<()> {
    look("first").await?;
    pay_for_sure().await
}

#[workflow]
async fn look_beside() -> Result<()> {
    let (looked, paid) = futures::join!(look("beside"), pay());
    looked.and(paid)
}

fn engine(ledger: &Arc<Ledger>, door: &Arc<Door>) -> EngineBuilder {
    Engine::builder()
        .register::<look_and_pay>()
        .register::<look_twice>()
        .register::<look_and_pay_for_sure>()
        .register::<look_beside>()
        .resource_arc(ledger.clone())
        .resource_arc(door.clone())
}

/// Lets everything happen that can happen without the disk.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// How many records of a run a power cut leaves.
async fn survive_a_power_cut(store: &MemoryStore, run: RunId) -> usize {
    frames(&store.reopen(Surviving::Synced), run).await.len()
}

#[tokio::test]
async fn before_the_body_of_a_synced_step_starts_all_buffered_outcomes_are_synced() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(look_and_pay(3)).await.expect("starts");
    door.reached.notified().await;
    assert_eq!(store.writes(), 5, "start, three outcomes, one sync");
    let survived = survive_a_power_cut(&store, run.id()).await;
    assert_eq!(survived, 4, "what the payment was based on is there");
}

#[tokio::test]
async fn the_body_waits_for_that_sync() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .open_with(store.clone())
        .await
        .expect("opens");
    store.hold();
    let start = tokio::spawn(engine.start(look_and_pay(1)).into_future());
    settle().await;
    for writes in 1..3 {
        assert_eq!(store.writes(), writes);
        store.release();
        store.hold();
        settle().await;
    }
    let run = start.await.expect("joins").expect("starts");
    assert_eq!(store.writes(), 3, "start, outcome, sync");
    assert_eq!(ledger.effects(), ["0"], "not paid before the disk answers");
    store.release();
    door.open.notify_one();
    run.result().await.expect("ends well");
    assert_eq!(ledger.effects(), ["0", "paid"]);
    assert_eq!(store.writes(), 5, "start, outcome, sync, outcome, end");
}

#[tokio::test]
async fn a_buffered_step_syncs_nothing_before_it() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(look_twice()).await.expect("starts");
    door.reached.notified().await;
    assert_eq!(store.writes(), 2, "start, outcome");
    assert_eq!(
        survive_a_power_cut(&store, run.id()).await,
        1,
        "only the start"
    );
}

#[tokio::test]
async fn a_result_syncs_all_before_it() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(look_twice()).await.expect("starts");
    door.open.notify_one();
    run.result().await.expect("ends well");
    assert_eq!(survive_a_power_cut(&store, run.id()).await, 4);
}

#[tokio::test]
async fn a_synced_step_needs_no_sync_of_its_own_where_nothing_is_buffered() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(look_and_pay(0)).await.expect("starts");
    door.open.notify_one();
    run.result().await.expect("ends well");
    assert_eq!(store.writes(), 3, "start, outcome, end");
}

#[tokio::test]
async fn a_step_of_a_buffered_engine_can_ask_to_be_synced() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .durability(Durability::Buffered)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(look_and_pay_for_sure()).await.expect("starts");
    door.reached.notified().await;
    assert_eq!(survive_a_power_cut(&store, run.id()).await, 2);
}

#[tokio::test]
async fn a_synced_outcome_syncs_the_buffered_one_beside_it() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &door)
        .open_with(store.clone())
        .await
        .expect("opens");
    door.open.notify_one();
    let run = engine.start(look_beside()).await.expect("starts");
    run.result().await.expect("ends well");
    assert_eq!(ledger.effects(), ["beside", "paid"]);
    assert_eq!(survive_a_power_cut(&store, run.id()).await, 4);
}

#[tokio::test]
async fn on_disk_the_sync_between_leaves_a_store_that_opens_and_verifies() {
    let (ledger, door) = (Ledger::shared(), Arc::<Door>::default());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("runs.db");
    let first = engine(&ledger, &door).open(&path).await.expect("opens");
    let run = first.start(look_and_pay(3)).await.expect("starts");
    door.reached.notified().await;
    drop(first); // as in a crash, with the payment in flight
    door.open.notify_one();
    let second = loop {
        match engine(&ledger, &door).open(&path).await {
            Ok(engine) => break engine,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    };
    let run = second
        .run::<look_and_pay>(run.id())
        .await
        .expect("is there");
    run.result().await.expect("ends well");
    let journal = second.journal(run.id()).await.expect("reads");
    assert_eq!(
        journal.records().len(),
        7,
        "start, 3, recovery, 1, end\n{journal}"
    );
    let verification = second.verify().await.expect("verifies");
    assert!(verification.damaged.is_empty(), "{verification:?}");
    second.shutdown().await.expect("stops");
}
