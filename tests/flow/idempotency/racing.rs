//! Many starts of one key at once, in processes that die at random.
//!
//! 1,000 rounds; `WORKFLOW_ROUNDS` says otherwise.

use std::collections::HashSet;

use workflow_runtime::store::memory::{Fault, FaultPlan, Surviving};

use super::*;

const STARTS: u64 = 64;

fn rounds() -> u64 {
    let asked = std::env::var("WORKFLOW_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(1000)
}

/// Starts one key 64 times at once in one process. Returns the ids that were told, or `None` if it died.
async fn process(
    ledger: &Arc<Ledger>,
    store: &MemoryStore,
    queued: bool,
) -> Option<HashSet<String>> {
    let living = async {
        let builder = engine(ledger).queue(workflow_runtime::Queue::named("mail"));
        let engine = builder.open_with(store.clone()).await.expect("opens");
        let tasks: Vec<_> = (0..STARTS)
            .map(|n| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let start = engine.start(pay(7)).key("order");
                    let start = match queued && n % 2 == 0 {
                        true => start.queue("mail"),
                        false => start,
                    };
                    // A process that dies answers with an error, or not at all.
                    let run = start.await.ok()?;
                    let result = run.result().await.ok()?;
                    assert_eq!(result, 7);
                    Some(run.id().to_string())
                })
            })
            .collect();
        let mut told = HashSet::new();
        for task in tasks {
            told.insert(task.await.expect("no panic"));
        }
        told.remove(&None);
        told.into_iter().flatten().collect()
    };
    tokio::select! {
        biased;
        () = store.crashed() => None,
        told = living => Some(told),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_starts_of_one_key_are_one_run_through_random_crashes() {
    // Not random numbers: a failure names the round, and the round is the seed.
    let mut crashed = 0;
    for round in 0..rounds() {
        let mix = |salt: u64| {
            (round + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(17)
                ^ salt
        };
        let faults = [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear];
        let ledger = Ledger::shared();
        let mut store = MemoryStore::new();
        let mut told = HashSet::new();
        for life in 0..3 {
            let at = mix(life * 7919) % 9;
            let fault = faults[(mix(life) % 3) as usize];
            let plan = match life {
                2 => FaultPlan::none(),
                _ => FaultPlan::at(at, fault),
            };
            store.set_faults(plan);
            match process(&ledger, &store, round % 3 == 0).await {
                Some(ids) => told.extend(ids),
                None => crashed += 1,
            }
            store = store.reopen(Surviving::Synced);
        }
        assert_eq!(told.len(), 1, "round {round}: {told:?}");
        let runs = all_runs(&store).await;
        assert_eq!(runs.len(), 1, "round {round}");
        assert_eq!(ledger.effects(), ["charge 7"], "round {round}");
    }
    assert!(crashed > 0, "no process has died: nothing was tried");
}
