//! Power cuts, simulated: a disk in memory that keeps what was synced and a random part of what was only handed over.
//!
//! The outcomes of some steps are only buffered. The process dies at a random write, or while acknowledgements are kept back. The disk of the memory store is a log, so
//! what survives of the rest is a prefix of random length. Files of which any part may survive are in `power`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use workflow_runtime::EngineError;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::testing::TestEngine;

use super::Case;
use super::scratch;
use super::told::Told;
use super::workload::{self, World, transfer};
use crate::chance::Chance;

/// Transfers of one case.
const TRANSFERS: u64 = 3;

/// A run that has not ended after so long by the virtual clock never will.
const PATIENCE: Duration = Duration::from_secs(86_400);

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let mut case = Case::default();
    let mut told = Told::default();
    let world = Arc::new(World::here());
    let mut store = MemoryStore::new();
    let mut began_at = 1_900_000_000;
    for _ in 0..1 + chance.below(3) {
        let faults = [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear];
        let plan = FaultPlan::at(chance.below(14), chance.one_of(&faults));
        store.set_faults(plan);
        live(&store, &world, began_at, &mut chance);
        // Well below the time for which a key is kept.
        began_at += 1_000;
        world.take().into_iter().for_each(|line| told.hear(line));
        store = store.reopen(Surviving::Random(chance.draw()));
        case.count += 1;
    }
    scratch::runtime().block_on(async {
        match open(&store, &world, began_at).await {
            Ok(engine) => told.finish(&engine, &world, PATIENCE).await,
            Err(error) => told.wrong(format!("1: the store does not open: {error}")),
        }
    });
    case.violations.append(&mut told.violations);
    case
}

async fn open(
    store: &MemoryStore,
    world: &Arc<World>,
    began_at: u64,
) -> Result<TestEngine, EngineError> {
    TestEngine::builder()
        .register::<transfer>()
        .resource_arc(world.clone())
        .starts_at(SystemTime::UNIX_EPOCH + Duration::from_secs(began_at))
        .store(store.clone())
        .open()
        .await
}

/// Lives one process until the power is cut.
fn live(store: &MemoryStore, world: &Arc<World>, began_at: u64, chance: &mut Chance) {
    let (held, cut) = (chance.below(20), chance.below(12));
    let is_held = chance.once_in(2);
    scratch::runtime().block_on(async {
        let living = async {
            let Ok(engine) = open(store, world, began_at).await else {
                return;
            };
            let say = |line| world.say(line);
            let all = (0..TRANSFERS).map(|number| workload::one(&engine, number, 20, &say));
            // What an engine refuses when its process dies is not acknowledged.
            let _ = join_all(all).await;
        };
        let cutting = async {
            tokio::time::sleep(Duration::from_millis(held)).await;
            if is_held {
                store.hold();
                tokio::time::sleep(Duration::from_millis(cut)).await;
                store.crash();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => {}
            () = cutting => {}
        }
    });
}
