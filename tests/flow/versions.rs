//! Two versions of a workflow side by side, and names that outlive a rename.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunId, get_workflow_metadata, sleep, step, workflow,
};
use workflow_tests::{Ledger, cut, frames, survive};

#[step]
async fn charge(#[resource] ledger: &Ledger, cents: u64) -> Result<u64> {
    ledger.act(&format!("charge {cents}"));
    Ok(cents)
}

#[step]
async fn inspect(#[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("inspect");
    Ok(())
}

#[workflow(name = "checkout", version = 1)]
async fn checkout_1(cents: u64) -> Result<u64> {
    charge(cents).await?;
    sleep(Duration::from_millis(20)).await;
    charge(1).await?;
    Ok(u64::from(get_workflow_metadata().version))
}

/// Another order of steps and another type of result: nothing of the old journals would fit.
#[workflow(version = 2)]
async fn checkout(cents: u64) -> Result<String> {
    inspect().await?;
    charge(cents).await?;
    Ok(format!("version {}", get_workflow_metadata().version))
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<checkout_1>()
        .register::<checkout>()
        .resource_arc(ledger.clone())
}

#[tokio::test]
async fn two_versions_run_side_by_side_and_each_run_keeps_its_own() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = Engine::builder()
        .register::<checkout_1>()
        .resource_arc(ledger.clone())
        .open_with(store.clone())
        .await
        .expect("opens");
    let old = first.start(checkout_1(5)).key("old").await.expect("starts");
    while frames(&store, old.id()).await.len() < 3 {
        tokio::task::yield_now().await;
    }
    drop(first);

    let store = store.reopen(Surviving::Synced);
    let engine = engine(&ledger).open_with(store).await.expect("opens");
    let new = engine.start(checkout(7)).key("new").await.expect("starts");
    assert_eq!(new.result().await.expect("ends well"), "version 2");
    let old = engine.run::<checkout_1>(old.id()).await.expect("is there");
    assert_eq!(old.result().await.expect("ends well"), 1);
    assert_eq!(
        ledger.effects(),
        ["charge 1", "charge 5", "charge 7", "inspect"]
    );
    let versions = |run: RunId| {
        let engine = engine.clone();
        async move { engine.journal(run).await.expect("reads").header().version }
    };
    assert_eq!((versions(old.id()).await, versions(new.id()).await), (1, 2));
    assert_eq!((checkout_1::VERSION, checkout::VERSION), (1, 2));
    assert_eq!(checkout_1::NAME, checkout::NAME);
}

#[tokio::test]
async fn a_crash_at_any_write_leaves_a_run_with_its_version() {
    let (_, clean) = survive(|| engine(&Ledger::shared()), || checkout_1(5), []).await;
    for write in 0..clean.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let (result, _) = survive(|| engine(&ledger), || checkout_1(5), [plan]).await;
            assert_eq!(result.expect("ends well"), 1, "{fault:?} at {write}");
            assert_eq!(ledger.effects(), ["charge 1", "charge 5"]);
        }
    }
}

#[step(name = "charge")]
async fn take_money(#[resource] ledger: &Ledger, cents: u64) -> Result<u64> {
    ledger.act(&format!("charge {cents}"));
    Ok(cents)
}

#[workflow(name = "checkout", version = 1)]
async fn buy(cents: u64) -> Result<u64> {
    take_money(cents).await?;
    sleep(Duration::from_millis(20)).await;
    take_money(1).await?;
    Ok(u64::from(get_workflow_metadata().version))
}

#[tokio::test]
async fn functions_that_keep_their_names_are_renamed_under_a_run_at_any_record() {
    let ledger = Ledger::shared();
    let (_, store) = survive(|| engine(&ledger), || checkout_1(5), []).await;
    let store = store.reopen(Surviving::Synced);
    let before = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let header = before.runs().await.expect("lists").runs[0].clone();
    let recorded = frames(&store, header.run).await;
    for records in 1..recorded.len() {
        let renamed = Engine::builder()
            .register::<buy>()
            .resource_arc(ledger.clone())
            .open_with(cut(&header, &recorded, records).await)
            .await
            .expect("opens");
        let run = renamed.run::<buy>(header.run).await.expect("is there");
        assert_eq!(run.result().await.expect("ends well"), 1);
        // The outside world was asked under the same ids, so it did nothing twice.
        assert_eq!(ledger.effects(), ["charge 1", "charge 5"]);
    }
}
