//! Tolerant replay: calls that the journal does not know run as inserted steps, and every later resume
//! delivers everything in the same order again.

use std::collections::HashSet;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all};
use futures::stream::{FuturesUnordered, StreamExt};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use workflow_runtime::journal::Journal;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunError, RunHandle, Workflow, now, patched, scope, sleep, step,
    workflow,
};
use workflow_tests::{Ledger, cut, frames, steps, survive};

#[step(backoff = "1ms")]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<u32> {
    ledger.act(what);
    Ok(1)
}

#[step]
async fn inserted(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("inserted");
    Ok(10)
}

#[workflow(name = "order")]
async fn before() -> Result<u32> {
    let mut sum = act("first").await?;
    sum += act("second").await?;
    sleep(Duration::from_millis(1)).await;
    sum += act("third").await?;
    Ok(sum)
}

#[workflow(name = "order", changes = "tolerant")]
async fn with_more() -> Result<(u32, bool)> {
    let mut sum = act("first").await?;
    sum += inserted().await?;
    let behind_history = patched("late");
    let at = now();
    sum += act("second").await?;
    assert!(now() >= at, "time goes back");
    sleep(Duration::from_millis(1)).await;
    sum += inserted().await?;
    sum += act("third").await?;
    Ok((sum, behind_history))
}

#[workflow(name = "order", changes = "tolerant")]
async fn with_less() -> Result<u32> {
    act("first").await?;
    let sum = act("second").await? + inserted().await?;
    Ok(sum)
}

#[workflow(name = "order", changes = "tolerant")]
async fn with_other_input() -> Result<u32> {
    act("first").await?;
    inserted().await?;
    act("something else").await
}

#[workflow(name = "order", changes = "strict")]
async fn strictly_more() -> Result<u32> {
    act("first").await?;
    inserted().await?;
    act("second").await
}

fn engine<W: Workflow>(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<W>()
        .resource_arc(ledger.clone())
}

async fn open<W: Workflow>(ledger: &Arc<Ledger>, store: &MemoryStore) -> (Engine, RunHandle<W>) {
    let store = store.clone();
    let engine = engine::<W>(ledger).open_with(store).await.expect("opens");
    let run = engine.runs().await.expect("lists").runs[0].run;
    let handle = engine.run::<W>(run).await.expect("is there");
    (engine, handle)
}

/// A journal of the old code.
async fn recorded() -> (Journal, Vec<bytes::Bytes>) {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine::<before>(&ledger), before, []).await;
    assert_eq!(result.expect("ends well"), 3);
    let store = store.reopen(Surviving::Synced);
    let (engine, run) = open::<before>(&ledger, &store).await;
    let journal = engine.journal(run.id()).await.expect("reads");
    (journal, frames(&store, run.id()).await)
}

fn warned(engine: &Engine, part: &str) -> bool {
    let warnings = engine.warnings();
    warnings
        .iter()
        .any(|warning| warning.message.contains(part))
}

#[tokio::test]
async fn inserted_steps_run_once_and_every_later_resume_agrees() {
    let (journal, recorded) = recorded().await;
    let all = recorded.len() - 1;
    let store = cut(journal.header(), &recorded, all).await;
    let ledger = Ledger::shared();
    let (engine, run) = open::<with_more>(&ledger, &store).await;
    assert_eq!(run.result().await.expect("ends well"), (23, false));
    assert_eq!(ledger.effects(), ["inserted", "inserted"]);
    assert_eq!(ledger.asked(), 2, "a recorded step ran again");
    assert!(warned(
        &engine,
        "not asked for yet: 3, the first of step `act` (record 2)"
    ));
    assert!(!warned(&engine, "never asked for"));
    let after = frames(&store, run.id()).await;
    assert_eq!(after[..all], recorded[..all]);

    for records in all..after.len() {
        let again = cut(journal.header(), &after, records).await;
        let (_engine, run) = open::<with_more>(&ledger, &again).await;
        assert_eq!(run.result().await.expect("ends well"), (23, false));
        assert_eq!(ledger.effects(), ["inserted", "inserted"]);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_tolerant_run_changes_neither_result_nor_effects() {
    let (journal, recorded) = recorded().await;
    for records in 1..recorded.len() {
        for write in 0..9 {
            for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
                let store = cut(journal.header(), &recorded, records).await;
                store.set_faults(FaultPlan::at(write, fault));
                let ledger = Ledger::shared();
                let living = async {
                    let (_first, run) = open::<with_more>(&ledger, &store).await;
                    run.result().await
                };
                tokio::select! {
                    biased;
                    () = store.crashed() => {}
                    result = living => drop(result.expect("ends well")),
                }
                let store = store.reopen(Surviving::Synced);
                let (second, run) = open::<with_more>(&ledger, &store).await;
                let (sum, behind_history) = run.result().await.expect("ends well");
                assert_eq!(sum, 23, "{records} records, {fault:?} at {write}");
                assert_eq!(behind_history, records < 3, "{records} records");
                let inserted = ledger
                    .effects()
                    .iter()
                    .filter(|it| *it == "inserted")
                    .count();
                assert_eq!(inserted, 2);
                let checked = second.verify().await.expect("verifies");
                assert!(checked.damaged.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn what_the_code_no_longer_asks_for_is_reported_and_parks_nothing() {
    let (journal, recorded) = recorded().await;
    let store = cut(journal.header(), &recorded, recorded.len() - 1).await;
    let ledger = Ledger::shared();
    let (engine, run) = open::<with_less>(&ledger, &store).await;
    assert_eq!(run.result().await.expect("ends well"), 11);
    assert!(warned(
        &engine,
        "never asked for: 2, the first of a timer (record 4)"
    ));
    assert_eq!(ledger.asked(), 1);
}

#[tokio::test]
async fn a_known_call_with_other_input_still_parks() {
    let (journal, recorded) = recorded().await;
    let store = cut(journal.header(), &recorded, recorded.len() - 1).await;
    let ledger = Ledger::shared();
    let (engine, run) = open::<with_other_input>(&ledger, &store).await;
    match run.result().await {
        Err(RunError::Parked(parking)) => {
            assert_eq!(parking.reason, ParkReason::Diverged);
            assert!(
                parking.report.contains("other input: what"),
                "{}",
                parking.report
            );
        }
        other => panic!("{other:?}"),
    }
    drop(engine);
    // The inserted step had run before that was seen; it does not run again after the fix.
    let store = store.reopen(Surviving::Synced);
    let (engine, run) = open::<with_more>(&ledger, &store).await;
    engine.resume(run.id()).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well").0, 23);
    assert_eq!(ledger.effects(), ["inserted", "inserted"]);
    assert_eq!(ledger.asked(), 2);
}

#[tokio::test]
async fn without_the_option_an_inserted_step_parks_the_run() {
    let (journal, recorded) = recorded().await;
    let store = cut(journal.header(), &recorded, recorded.len() - 1).await;
    let ledger = Ledger::shared();
    let (_engine, run) = open::<strictly_more>(&ledger, &store).await;
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    assert_eq!(ledger.asked(), 0);
}

/// Lets the bodies of `gated` end.
#[derive(Default)]
struct Gate(Notify, AtomicU64);

#[step]
async fn gated(#[resource] gate: &Gate, what: &str) -> Result<()> {
    let open = gate.0.notified();
    gate.1.fetch_add(1, Ordering::SeqCst);
    open.await;
    let _ = what;
    Ok(())
}

#[workflow(name = "race")]
async fn no_race() -> Result<String> {
    async { act("recorded").await }.await?;
    act("recorded").await?;
    Ok("old".into())
}

/// Whoever is first: the first of the recorded steps behind an inserted one, or an inserted one.
#[workflow(name = "race", changes = "tolerant")]
async fn race() -> Result<String> {
    let (winner, ..) = select_all([
        async {
            gated("a").await?;
            act("recorded").await?;
            Ok("recorded".to_owned())
        }
        .boxed(),
        async {
            gated("b").await?;
            Ok("inserted".to_owned())
        }
        .boxed(),
    ])
    .await;
    winner
}

#[tokio::test]
async fn a_shutdown_does_not_change_the_order_of_delivery() {
    let ledger = Ledger::shared();
    let (_, store) = survive(|| engine::<no_race>(&ledger), no_race, []).await;
    let store = store.reopen(Surviving::Synced);
    let (engine, run) = open::<no_race>(&ledger, &store).await;
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let store = cut(journal.header(), &recorded, recorded.len() - 1).await;

    let gate = Arc::new(Gate::default());
    let engine = self::engine::<race>(&ledger).resource_arc(gate.clone());
    let engine = engine.open_with(store.clone()).await.expect("opens");
    while gate.1.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    // Both inserted steps end while the engine stops.
    let opening = async {
        tokio::task::yield_now().await;
        gate.0.notify_waiters();
    };
    let (stopped, ()) = futures::join!(engine.shutdown().into_future(), opening);
    stopped.expect("stops");
    let store = store.reopen(Surviving::Synced);
    let engine = self::engine::<race>(&ledger).resource_arc(gate.clone());
    let engine = engine.open_with(store).await.expect("opens");
    let run = engine.run::<race>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), "recorded");
    assert_eq!(gate.1.load(Ordering::SeqCst), 2, "both were journaled");
}

#[workflow(name = "pair")]
async fn pair() -> Result<u32> {
    let (a, b) = futures::join!(act("a"), act("b"));
    Ok(a? + b?)
}

#[workflow(name = "pair", changes = "tolerant")]
async fn first_of_pair() -> Result<u32> {
    inserted().await?;
    let (first, ..) = select_all([act("a"), act("b")]).await;
    first
}

#[tokio::test]
async fn the_outcome_of_a_call_that_lost_a_race_is_not_reported_as_left() {
    let ledger = Ledger::shared();
    let (_, store) = survive(|| engine::<pair>(&ledger), pair, []).await;
    let store = store.reopen(Surviving::Synced);
    let (engine, run) = open::<pair>(&ledger, &store).await;
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let store = cut(journal.header(), &recorded, recorded.len() - 1).await;
    let (engine, run) = open::<first_of_pair>(&ledger, &store).await;
    assert_eq!(run.result().await.expect("ends well"), 1);
    assert!(warned(&engine, "not asked for yet: 2"));
    assert!(
        !warned(&engine, "never asked for"),
        "{:?}",
        engine.warnings()
    );
}

/// A workflow as data, with what the new code does otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Program {
    /// A step, and what new code does around it.
    Step {
        before: bool,
        after: bool,
        removed: bool,
    },
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
}

fn programs() -> impl Strategy<Value = Program> {
    let step = (0..4u8, 0..4u8, 0..6u8).prop_map(|(before, after, removed)| Program::Step {
        before: before == 0,
        after: after == 0,
        removed: removed == 0,
    });
    let leaf = prop_oneof![8 => step, 1 => Just(Program::Nap)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            3 => some().prop_map(Program::Chain),
            2 => some().prop_map(Program::Join),
            2 => some().prop_map(Program::Race),
            2 => some().prop_map(Program::Unordered),
        ]
    })
}

/// What is decided anew whenever a body runs.
struct Chance(AtomicU64);

impl Chance {
    fn draw(&self) -> u64 {
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Takes its time and never gives the same value twice.
#[step]
async fn work(#[resource] ledger: &Ledger, #[resource] chance: &Chance) -> Result<u64> {
    ledger.act("work");
    for _ in 0..(chance.draw() % 6).saturating_sub(3) {
        tokio::task::yield_now().await;
    }
    Ok(chance.draw())
}

#[step]
async fn extra(#[resource] ledger: &Ledger, #[resource] chance: &Chance) -> Result<u64> {
    ledger.act("extra");
    for _ in 0..(chance.draw() % 6).saturating_sub(3) {
        tokio::task::yield_now().await;
    }
    Ok(chance.draw())
}

/// Everything that the workflow was given, in order.
type Seen = Arc<Mutex<Vec<u64>>>;

/// Runs a program, each part of it in a scope of its own.
fn run(program: Program, new: bool, seen: Seen) -> BoxFuture<'static, Result<()>> {
    async move {
        let part = |n: usize, program: Program| {
            let seen = seen.clone();
            scope(&n.to_string(), || run(program, new, seen)).boxed()
        };
        let parts = |programs: Vec<Program>| {
            let parts = programs.into_iter().enumerate();
            parts.map(|(n, it)| part(n, it)).collect::<Vec<_>>()
        };
        let note = |value: u64| seen.lock().unwrap().push(value);
        match program {
            Program::Step {
                before,
                after,
                removed,
            } => {
                if new && before {
                    note(extra().await?);
                }
                if !(new && removed) {
                    note(work().await?);
                }
                if new && after {
                    note(extra().await?);
                }
            }
            Program::Nap => sleep(Duration::from_millis(1)).await,
            Program::Chain(programs) => {
                for (n, program) in programs.into_iter().enumerate() {
                    part(n, program).await?;
                }
            }
            Program::Join(programs) => {
                join_all(parts(programs)).await;
            }
            Program::Race(programs) => {
                let (_, winner, _losers) = select_all(parts(programs)).await;
                note(winner as u64);
            }
            Program::Unordered(programs) => {
                let mut parts: FuturesUnordered<_> = parts(programs).into_iter().collect();
                while parts.next().await.is_some() {}
            }
        }
        Ok(())
    }
    .boxed()
}

#[workflow(name = "interpret")]
async fn interpret_old(program: Program) -> Result<Vec<u64>> {
    let seen = Seen::default();
    run(program, false, seen.clone()).await?;
    let seen = seen.lock().unwrap().clone();
    Ok(seen)
}

#[workflow(name = "interpret", changes = "tolerant")]
async fn interpret_new(program: Program) -> Result<Vec<u64>> {
    let seen = Seen::default();
    run(program, true, seen.clone()).await?;
    let seen = seen.lock().unwrap().clone();
    Ok(seen)
}

async fn random_engine<W: Workflow>(
    ledger: &Arc<Ledger>,
    seed: u64,
    store: &MemoryStore,
) -> Engine {
    let builder = engine::<W>(ledger).resource(Chance(AtomicU64::new(seed)));
    builder.open_with(store.clone()).await.unwrap()
}

/// A disk that is slow in an irregular way: outcomes pile up behind it.
async fn slow_disk(store: &MemoryStore, seed: u64) -> std::convert::Infallible {
    let chance = Chance(AtomicU64::new(!seed));
    loop {
        store.hold();
        for _ in 0..chance.draw() % 8 {
            tokio::task::yield_now().await;
        }
        store.release();
        tokio::task::yield_now().await;
    }
}

/// Resumes a store with the new code and returns what the workflow saw, and its journal.
async fn resume(
    ledger: &Arc<Ledger>,
    seed: u64,
    store: &MemoryStore,
) -> (Vec<u64>, Journal, Vec<bytes::Bytes>) {
    let engine = random_engine::<interpret_new>(ledger, seed, store).await;
    let run = engine.runs().await.unwrap().runs[0].run;
    let run = engine.run::<interpret_new>(run).await.unwrap();
    let seen = tokio::select! {
        result = run.result() => result.unwrap(),
        never = slow_disk(store, seed) => match never {},
    };
    store.release();
    let journal = engine.journal(run.id()).await.unwrap();
    let recorded = frames(store, run.id()).await;
    (seen, journal, recorded)
}

async fn resumes_agree(program: Program, seed: u64) {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let old = random_engine::<interpret_old>(&ledger, seed, &store).await;
    let run = old.start(interpret_old(program)).await.unwrap();
    tokio::select! {
        result = run.result() => drop(result.unwrap()),
        never = slow_disk(&store, seed) => match never {},
    }
    store.release();
    let journal = old.journal(run.id()).await.unwrap();
    let recorded = frames(&store, run.id()).await;

    let stride = recorded.len().div_ceil(5);
    for changed_at in (1..recorded.len()).step_by(stride) {
        // New code under the run.
        let store = cut(journal.header(), &recorded, changed_at).await;
        let (seen, _, after) = resume(&ledger, seed ^ 1, &store).await;
        let stride = after.len().div_ceil(6);
        let places =
            (changed_at..after.len()).filter(|n| (after.len() - 1 - n).is_multiple_of(stride));
        for records in places {
            // The process dies there; the next one carries on.
            let store = cut(journal.header(), &after, records).await;
            ledger.forget_asking();
            let (again, journal, full) = resume(&ledger, seed ^ 2, &store).await;
            if records == after.len() - 1 {
                assert_eq!(again, seen, "a full replay saw something else\n{journal}");
                assert_eq!(ledger.asked(), 0);
            }
            assert_eq!(full[..records], after[..records], "records changed");
            let unique: HashSet<_> = steps(&journal).iter().map(|step| step.step).collect();
            assert_eq!(
                unique.len(),
                steps(&journal).len(),
                "two outcomes\n{journal}"
            );
            // And the one after that sees all of it again.
            let store = cut(journal.header(), &full, full.len() - 1).await;
            ledger.forget_asking();
            let (once_more, ..) = resume(&ledger, seed ^ 3, &store).await;
            assert_eq!(once_more, again, "two resumes differ\n{journal}");
            assert_eq!(ledger.asked(), 0, "a body ran again\n{journal}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_two_resumes_of_any_changed_program_agree(program in programs(), seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), resumes_agree(program, seed))
                .await
                .expect("a run hangs");
        });
    }
}
