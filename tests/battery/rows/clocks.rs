//! Clocks that are turned by up to a day at every write, forward and back, and by crashes in between: no timer fires
//! early, none is lost, none fires twice.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::testing::{TestEngine, check_invariants};
use workflow_runtime::{Result, sleep, workflow};

use super::Case;
use super::scratch;
use crate::chance::{Chance, mix};

/// Timers of one case.
const TIMERS: u64 = 10;

/// A run that has not ended after so long by the virtual clock never will.
const PATIENCE: Duration = Duration::from_secs(1_000 * 86_400);

/// Sets its timers, half of them at once and half one after the other.
#[workflow]
async fn timers(seed: u64) -> Result<u64> {
    let time = |at: u64| Duration::from_millis(mix(seed, at) % (1 << (mix(at, seed) % 28)));
    join_all((0..TIMERS / 2).map(|at| sleep(time(at)))).await;
    for at in TIMERS / 2..TIMERS {
        sleep(time(at)).await;
    }
    Ok(seed)
}

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let mut case = Case::default();
    let mut store = MemoryStore::new();
    let mut began_at = 1_900_000_000;
    for life in 0..4 {
        let plan = match life {
            3 => FaultPlan::none(),
            _ => FaultPlan::at(chance.below(12), Fault::CrashAfter),
        };
        store.set_faults(plan);
        let jumps = chance.draw();
        let engine = TestEngine::builder()
            .register::<timers>()
            .with_clock_jumps(jumps)
            .starts_at(SystemTime::UNIX_EPOCH + Duration::from_secs(began_at))
            .store(store.clone());
        let lived = store.clone();
        scratch::runtime().block_on(async {
            let living = async {
                let engine = engine.open().await.expect("a store in memory opens");
                let start = engine.start(timers(seed)).key("timers");
                let run = start.await.expect("it is the same start");
                let result = tokio::time::timeout(PATIENCE, run.result()).await;
                let ended = matches!(result, Ok(Ok(value)) if value == seed);
                case.holds(ended, || format!("11: a timer is lost: {result:?}"));
                judge(&engine, run.id(), &mut case).await;
            };
            tokio::select! {
                biased;
                () = lived.crashed() => {}
                () = living => {}
            }
        });
        began_at += chance.below(200_000);
        store = store.reopen(Surviving::Synced);
    }
    case
}

/// Looks at the timers of the journal itself, beside the rules of all journals.
async fn judge(engine: &TestEngine, run: workflow_runtime::RunId, case: &mut Case) {
    let broken = check_invariants(engine).await.expect("memory is readable");
    case.violations
        .extend(broken.iter().map(|broken| format!("11: {broken}")));
    let journal = engine.journal(run).await.expect("memory is readable");
    let (mut due, mut fired) = (BTreeMap::new(), 0);
    for record in journal.records() {
        match &record.event {
            Event::TimerSet(timer) => drop(due.insert(timer.timer, timer.deadline)),
            Event::TimerFired(timer) => {
                fired += 1;
                match due.remove(&timer.timer) {
                    None => case.wrong(format!("11: fired twice, or never set:\n{journal}")),
                    Some(deadline) => case.holds(record.time >= deadline, || {
                        format!("11: fired at {:?} instead of {deadline:?}", record.time)
                    }),
                }
            }
            _ => {}
        }
    }
    case.holds(fired == TIMERS, || format!("11: {fired} of {TIMERS} fired"));
    case.count = fired;
}
