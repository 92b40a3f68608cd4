//! A crash at every write of two runs that share a key, in memory and on disk: for each key and generation the outside
//! world has one effect, and all runs one outcome.

use std::sync::Arc;
use std::time::Duration;

use futures::join;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{Durability, StoreError};
use workflow_runtime::{Engine, EngineBuilder, EngineError, Result, step, workflow};
use workflow_tests::{Ledger, steps, value};

use super::{AN_HOUR, Receipt, World, engine, pay};

/// Pays for two things, one of them in common with others.
#[workflow]
async fn shopping(who: String) -> Result<Vec<Receipt>> {
    note(&who).await?;
    let common = pay(5).idempotency_key("common").shared(AN_HOUR);
    let own = pay(7).idempotency_key(&who);
    let (common, own) = join!(common, own);
    let again = pay(5).idempotency_key("common").shared(AN_HOUR).await?;
    Ok(vec![common?, again, own?])
}

#[step]
async fn note(#[resource] ledger: &Ledger, who: &str) -> Result<()> {
    ledger.act(&format!("note {who}"));
    Ok(())
}

fn shop(ledger: &Arc<Ledger>, world: &Arc<World>) -> EngineBuilder {
    engine(ledger, world).register::<shopping>()
}

const EFFECTS: [&str; 5] = ["note ada", "note bob", "pay 5", "pay 7", "pay 7"];

/// Both runs, through one crash per plan.
async fn both_survive(
    durability: Durability,
    plans: Vec<FaultPlan>,
    surviving: Surviving,
) -> MemoryStore {
    let shown = format!("{plans:?}");
    let (ledger, world) = (Ledger::shared(), World::open());
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    let engine = || shop(&ledger, &world).durability(durability);
    let (ada, bob) = loop {
        let living = async {
            let engine = engine().open_with(store.clone()).await.expect("opens");
            let buy = async |who: &str| {
                let run = engine.start(shopping(who.into())).key(who).await;
                run.expect("starts").result().await.expect("ends well")
            };
            join!(buy("ada"), buy("bob"))
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            receipts = living => break receipts,
        }
        store = store.reopen(surviving);
        store.set_faults(plans.next().unwrap_or_default());
    };
    assert_eq!(ledger.effects(), EFFECTS, "{shown}");
    let common = [&ada[0], &ada[1], &bob[0], &bob[1]];
    assert!(
        common.iter().all(|one| **one == ada[0]),
        "{shown}: {ada:?} {bob:?}"
    );
    assert_ne!(ada[2].id, bob[2].id, "{shown}");
    // What the runs saw is what is on record, and a next process sees the same.
    let again = engine().open_with(store.reopen(Surviving::Synced)).await;
    let again = again.expect("opens");
    let verification = again.verify().await.expect("verifies");
    assert!(verification.damaged.is_empty(), "{shown}: {verification:?}");
    for (who, seen) in [("ada", &ada), ("bob", &bob)] {
        let run = again.start(shopping(who.into())).key(who).await;
        let run = run.expect("is there");
        assert_eq!(&run.result().await.expect("ended well"), seen, "{shown}");
        let journal = again.journal(run.id()).await.expect("reads");
        let paid = steps(&journal);
        let paid = paid.iter().filter(|step| &*step.name == "pay");
        let paid: Vec<Receipt> = paid.map(value).collect();
        assert_eq!(paid.len(), 3, "{shown}: {journal}");
        assert!(
            paid.iter().all(|one| seen.contains(one)),
            "{shown}: {journal}"
        );
    }
    store
}

#[tokio::test]
async fn a_crash_at_any_write_leaves_one_effect_and_one_outcome_for_a_key() {
    let clean = both_survive(Durability::Synced, vec![], Surviving::Synced).await;
    for write in 0..clean.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let plans = vec![FaultPlan::at(write, fault)];
            both_survive(Durability::Synced, plans, Surviving::Synced).await;
        }
    }
}

#[tokio::test]
async fn two_crashes_at_any_writes_leave_one_effect_and_one_outcome_for_a_key() {
    let clean = both_survive(Durability::Synced, vec![], Surviving::Synced).await;
    for first in 0..clean.writes() {
        for second in 0..clean.writes() - first {
            let plans = vec![
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ];
            both_survive(Durability::Synced, plans, Surviving::Synced).await;
        }
    }
}

#[tokio::test]
async fn a_power_cut_of_what_was_buffered_leaves_one_effect_for_a_key() {
    let clean = both_survive(Durability::Buffered, vec![], Surviving::All).await;
    for write in 0..clean.writes() {
        for seed in 0..4 {
            let plans = vec![FaultPlan::at(write, Fault::CrashAfter)];
            both_survive(Durability::Buffered, plans, Surviving::Random(seed)).await;
        }
    }
}

#[tokio::test]
async fn after_a_failed_write_nobody_is_given_an_outcome_and_a_reopened_store_goes_on() {
    for write in 0..8 {
        for fault in [Fault::FailWrite, Fault::FailSync] {
            let (ledger, world) = (Ledger::shared(), World::open());
            let store = MemoryStore::with_faults(FaultPlan::at(write, fault));
            let engine = shop(&ledger, &world).open_with(store.clone());
            let engine = engine.await.expect("opens");
            let buy = async |engine: &Engine, who: &str| {
                let run = engine.start(shopping(who.into())).key(who).await;
                run.ok()?.result().await.ok()
            };
            let both = async { join!(buy(&engine, "ada"), buy(&engine, "bob")) };
            let both = tokio::time::timeout(Duration::from_secs(60), both).await;
            both.expect("whoever waits for a key is told");
            assert!(engine.failure().is_some(), "{fault:?} at {write}");
            let begun = world.begun();
            assert!(begun <= 3, "{begun} bodies: {fault:?} at {write}");
            drop(engine);
            let engine = shop(&ledger, &world).open_with(store.reopen(Surviving::Random(write)));
            let engine = engine.await.expect("opens");
            let (ada, bob) = join!(buy(&engine, "ada"), buy(&engine, "bob"));
            let (ada, bob) = (ada.expect("ends well"), bob.expect("ends well"));
            assert_eq!(ada[0], bob[0], "{fault:?} at {write}");
            assert_eq!(ledger.effects(), EFFECTS, "{fault:?} at {write}");
        }
    }
}

#[tokio::test]
async fn a_key_is_shared_across_restarts_on_a_real_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let (ledger, world) = (Ledger::shared(), World::open());
    let mut seen = Vec::new();
    for life in 0..4 {
        let engine = loop {
            let builder = shop(&ledger, &world);
            match builder.open(dir.path().join("db")).await {
                Ok(engine) => break engine,
                // One that was dropped lets the directory go when its last task has ended.
                Err(EngineError::Store(StoreError::InUse { .. })) => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        let who = format!("customer {life}");
        let run = engine.start(shopping(who)).await.expect("starts");
        seen.push(run.result().await.expect("ends well"));
        match life % 2 {
            0 => drop(engine),
            _ => engine.shutdown().await.expect("stops"),
        }
    }
    assert!(seen.iter().all(|one| one[..2] == seen[0][..2]), "{seen:?}");
    assert_eq!(world.begun(), 5, "once in common, and once for each");
    assert_eq!(ledger.effects().len(), 4 + 5);
}
