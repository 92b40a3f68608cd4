//! Random workflows with random completion orders: a journal cut anywhere is carried on from
//! exactly where it ends.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all};
use futures::stream::{FuturesUnordered, StreamExt};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use workflow_runtime::journal::{Event, Journal, Outcome};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, EngineBuilder, Error, Result, scope, sleep, step, workflow};
use workflow_tests::{Ledger, cut, frames, steps, value};

/// A workflow as data.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Program {
    /// One step.
    Step,
    /// A durable sleep.
    Nap,
    /// One after the other.
    Chain(Vec<Program>),
    /// All at once.
    Join(Vec<Program>),
    /// Whoever is first; the others are dropped.
    Race(Vec<Program>),
    /// In the order in which they end.
    Unordered(Vec<Program>),
    /// In a scope with a name.
    Named(Box<Program>),
    /// In an inline helper.
    Helper(Box<Program>),
}

fn programs() -> impl Strategy<Value = Program> {
    let leaf = prop_oneof![6 => Just(Program::Step), 1 => Just(Program::Nap)];
    leaf.prop_recursive(3, 14, 4, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            3 => some().prop_map(Program::Chain),
            2 => some().prop_map(Program::Join),
            2 => some().prop_map(Program::Race),
            2 => some().prop_map(Program::Unordered),
            1 => inner.clone().prop_map(|p| Program::Named(Box::new(p))),
            1 => inner.prop_map(|p| Program::Helper(Box::new(p))),
        ]
    })
}

/// What is decided anew whenever a body runs.
struct Chance {
    state: AtomicU64,
}

impl Chance {
    fn draw(&self) -> u64 {
        let mut x = self
            .state
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Takes its time, sometimes fails first, and never gives the same value twice.
#[step(max_attempts = 10, backoff = "1ms")]
async fn work(#[resource] ledger: &Ledger, #[resource] chance: &Chance, given: u64) -> Result<u64> {
    ledger.act("work");
    // Often at once, so that several outcomes lie in one write and a race leaves recorded losers.
    for _ in 0..(chance.draw() % 6).saturating_sub(3) {
        tokio::task::yield_now().await;
    }
    if chance.draw().is_multiple_of(9) {
        return Err(Error::new("once more"));
    }
    Ok(given ^ chance.draw())
}

/// Everything that the workflow was given, in order.
type Seen = Arc<Mutex<Vec<u64>>>;

/// Runs a program; its value depends on everything in it.
fn run(program: Program, given: u64, seen: Seen) -> BoxFuture<'static, Result<u64>> {
    async move {
        let branches = |programs: Vec<Program>| {
            let seen = seen.clone();
            let given = move |n| given.wrapping_add(n as u64);
            programs
                .into_iter()
                .enumerate()
                .map(move |(n, program)| run(program, given(n), seen.clone()))
        };
        Ok(match program {
            Program::Step => {
                let value = work(given).await?;
                seen.lock().unwrap().push(value);
                value
            }
            Program::Nap => {
                sleep(Duration::from_millis(given % 3)).await;
                given
            }
            Program::Chain(programs) => {
                let mut value = given;
                for program in programs {
                    value = run(program, value, seen.clone()).await?;
                }
                value
            }
            Program::Join(programs) => {
                let values = join_all(branches(programs)).await;
                fold(values.into_iter().collect::<Result<Vec<_>>>()?)
            }
            Program::Race(programs) => {
                let (value, winner, _losers) = select_all(branches(programs)).await;
                value? ^ winner as u64
            }
            Program::Unordered(programs) => {
                let values: Vec<_> = branches(programs)
                    .collect::<FuturesUnordered<_>>()
                    .collect()
                    .await;
                fold(values.into_iter().collect::<Result<Vec<_>>>()?)
            }
            Program::Named(program) => scope("named", || run(*program, given, seen)).await?,
            Program::Helper(program) => helper(*program, given, seen).await?,
        })
    }
    .boxed()
}

fn fold(values: Vec<u64>) -> u64 {
    values.iter().fold(7, |all, v| all.wrapping_mul(31) ^ v)
}

#[workflow(inline)]
async fn helper(program: Program, given: u64, seen: Seen) -> Result<u64> {
    async move { run(program, given, seen).await }.await
}

#[workflow]
async fn interpret(program: Program) -> Result<(u64, Vec<u64>)> {
    let seen = Seen::default();
    let value = run(program, 1, seen.clone()).await?;
    let seen = seen.lock().unwrap().clone();
    Ok((value, seen))
}

fn engine(ledger: &Arc<Ledger>, seed: u64) -> EngineBuilder {
    Engine::builder()
        .register::<interpret>()
        .resource_arc(ledger.clone())
        .resource(Chance {
            state: AtomicU64::new(seed),
        })
}

/// What every journal of a finished run keeps to.
fn check_journal(journal: &Journal, seen: &[u64], ledger: &Ledger) {
    let steps = steps(journal);
    let ids: HashSet<_> = steps.iter().map(|step| step.step).collect();
    assert_eq!(
        ids.len(),
        steps.len(),
        "two outcomes of one step\n{journal}"
    );
    let ran: HashSet<_> = ledger.attempts().into_iter().map(|(id, _)| id).collect();
    assert!(ids.is_subset(&ran), "an outcome without a body\n{journal}");
    // The workflow was given what is recorded, in that order; losers were given nothing.
    let mut recorded = steps
        .iter()
        .filter(|step| matches!(step.outcome, Outcome::Ok(_)))
        .map(value::<u64>);
    for given in seen {
        assert!(
            recorded.any(|v| v == *given),
            "{seen:?} is not in\n{journal}"
        );
    }
}

/// A disk that is slow in an irregular way: outcomes pile up behind it.
async fn slow_disk(store: &MemoryStore, seed: u64) -> std::convert::Infallible {
    let chance = Chance {
        state: AtomicU64::new(!seed),
    };
    loop {
        store.hold();
        for _ in 0..chance.draw() % 8 {
            tokio::task::yield_now().await;
        }
        store.release();
        tokio::task::yield_now().await;
    }
}

async fn carries_on_from_anywhere(program: Program, seed: u64) {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger, seed)
        .open_with(store.clone())
        .await
        .unwrap();
    let run = first.start(interpret(program)).await.unwrap();
    let result = tokio::select! {
        result = run.result() => result.unwrap(),
        never = slow_disk(&store, seed) => match never {},
    };
    store.release();
    let journal = first.journal(run.id()).await.unwrap();
    check_journal(&journal, &result.1, &ledger);
    let recorded = frames(&store, run.id()).await;

    // Every place in small journals, some in large ones; always the one before the end.
    let stride = recorded.len().div_ceil(12);
    let places = (1..recorded.len()).filter(|n| (recorded.len() - 1 - n).is_multiple_of(stride));
    for records in places {
        let before = cut(journal.header(), &recorded, records).await;
        ledger.forget_asking();
        let again = engine(&ledger, seed ^ records as u64)
            .open_with(before.clone())
            .await
            .unwrap();
        let run = again.run::<interpret>(run.id()).await.unwrap();
        let resumed = run.result().await.unwrap();
        let after = again.journal(run.id()).await.unwrap();
        assert_eq!(
            recorded[..records],
            frames(&before, run.id()).await[..records],
            "records changed"
        );
        let kept: HashSet<_> = after.records()[..records]
            .iter()
            .filter_map(|record| match &record.event {
                Event::StepCompleted(step) => Some(step.step),
                _ => None,
            })
            .collect();
        for (id, _) in ledger.attempts() {
            assert!(!kept.contains(&id), "{id} ran again\n{after}");
        }
        if records == recorded.len() - 1 {
            assert_eq!(
                resumed, result,
                "a full replay gave something else\n{after}"
            );
            assert_eq!(ledger.asked(), 0);
        }
        let unique: HashSet<_> = steps(&after).iter().map(|step| step.step).collect();
        assert_eq!(unique.len(), steps(&after).len(), "two outcomes\n{after}");
        let mut outputs = steps(&after).into_iter().map(|step| value::<u64>(&step));
        for given in &resumed.1 {
            assert!(
                outputs.any(|v| v == *given),
                "{resumed:?} is not in\n{after}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_program_carries_on_from_any_record(program in programs(), seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), carries_on_from_anywhere(program, seed))
                .await
                .expect("a run hangs");
        });
    }
}
