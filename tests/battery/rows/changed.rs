//! Code that changed over recorded journals: a step added, removed, moved, renamed or given something else. Where that
//! touches what is on record, the run is parked before any side effect; elsewhere it goes on.

use std::cell::RefCell;

use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::testing::{Ledger, TestEngine, check_invariants};
use workflow_runtime::{Result, RunError, get_step_metadata, step, workflow};

use super::Case;
use super::scratch;
use crate::chance::Chance;

/// A call: which of the four steps, and what it is given.
type Call = (u64, u64);

thread_local! {
    /// What the code says. It stands for the source of the workflow, which a deploy changes.
    static CODE: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

fn post(ledger: &Ledger, what: &str, given: u64) -> Result<u64> {
    ledger.post(get_step_metadata().step_id, (what, given))?;
    Ok(given + 1)
}

#[step]
async fn pick(#[resource] ledger: &Ledger, given: u64) -> Result<u64> {
    post(ledger, "pick", given)
}

#[step]
async fn pack(#[resource] ledger: &Ledger, given: u64) -> Result<u64> {
    post(ledger, "pack", given)
}

#[step]
async fn ship(#[resource] ledger: &Ledger, given: u64) -> Result<u64> {
    post(ledger, "ship", given)
}

#[step]
async fn bill(#[resource] ledger: &Ledger, given: u64) -> Result<u64> {
    post(ledger, "bill", given)
}

fn code() -> Vec<Call> {
    CODE.with_borrow(Clone::clone)
}

/// Does what the code says, one call after the other.
#[workflow]
async fn edited() -> Result<u64> {
    let mut sum = 0;
    for (which, given) in code() {
        sum += match which {
            0 => pick(given).await?,
            1 => pack(given).await?,
            2 => ship(given).await?,
            _ => bill(given).await?,
        };
    }
    Ok(sum)
}

/// Changes the code as the seed has it.
fn edit(code: &[Call], chance: &mut Chance, kind: u64) -> Vec<Call> {
    let mut new = code.to_vec();
    let at = usize::try_from(chance.below(new.len() as u64)).expect("an index");
    match kind {
        0 => new.insert(at, (chance.below(4), chance.below(3))),
        1 => drop(new.remove(at)),
        2 => {
            let to = usize::try_from(chance.below(new.len() as u64)).expect("an index");
            new.swap(at, to);
        }
        3 => new[at].0 = (new[at].0 + 1 + chance.below(3)) % 4,
        _ => new[at].1 += 1,
    }
    new
}

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let old: Vec<Call> = (0..1 + chance.below(7))
        .map(|_| (chance.below(4), chance.below(3)))
        .collect();
    let recorded = usize::try_from(chance.below(old.len() as u64 + 1)).expect("small");
    let new = edit(&old, &mut chance, seed % 5);
    // One call after the other: the code fits while it asks for what is on record.
    let fits = new.len() >= recorded && new[..recorded] == old[..recorded];
    let mut case = Case::default();
    let ledger = Ledger::honouring_keys();
    let plan = FaultPlan::at(recorded as u64, Fault::CrashAfter);
    let store = MemoryStore::with_faults(plan);
    CODE.set(old.clone());
    scratch::runtime().block_on(async {
        let living = async {
            let engine = open(&store, &ledger).await;
            let run = engine.start(edited()).key("run").await.expect("it starts");
            let _ = run.result().await;
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => case.wrong("the process did not die where it was to"),
        }
    });
    let store = store.reopen(Surviving::Synced);
    let before = ledger.calls().len();
    case.holds(before == recorded, || {
        format!("{before} effects of {recorded} recorded outcomes")
    });
    CODE.set(new.clone());
    scratch::runtime().block_on(async {
        let engine = open(&store, &ledger).await;
        let run = engine
            .start(edited())
            .key("run")
            .await
            .expect("it is there");
        let result = run.result().await;
        let calls = ledger.calls().len();
        let what = || format!("{old:?} became {new:?} behind {recorded}: {result:?}");
        match (&result, fits) {
            (Ok(sum), true) => {
                let right: u64 = new.iter().map(|(_, given)| given + 1).sum();
                case.holds(*sum == right, || format!("7: {}", what()));
                case.holds(calls == new.len(), || {
                    format!("4: {calls} effects: {}", what())
                });
            }
            (Err(RunError::Parked(parking)), false) => {
                case.holds(parking.reason == ParkReason::Diverged, || {
                    format!("7: {}", what())
                });
                case.holds(calls == before, || {
                    format!("7: effects before it: {}", what())
                });
                case.count = 1;
            }
            _ => case.wrong(format!("7: {}", what())),
        }
        let broken = check_invariants(&engine).await.expect("memory is readable");
        case.violations
            .extend(broken.iter().map(ToString::to_string));
    });
    case
}

async fn open(store: &MemoryStore, ledger: &Ledger) -> TestEngine {
    let engine = TestEngine::builder()
        .register::<edited>()
        .resource(ledger.clone())
        .store(store.clone());
    engine.open().await.expect("a store in memory opens")
}
