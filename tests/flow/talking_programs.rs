//! Random workflows with signals, children, races and timeouts, killed at random writes: every run of
//! the family ends, and its whole journal replays to the same result without running a body.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all, select_all};
use futures::stream::{FuturesUnordered, StreamExt, TryStreamExt};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunId, RunStatus, get_workflow_metadata,
    hook, publish, signals, sleep, start_child, step, timeout, wait_for, workflow,
};
use workflow_tests::{Ledger, cut, frames};

/// The names of the signals that programs wait for.
const NAMES: [&str; 2] = ["left", "right"];

/// A workflow as data.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Program {
    /// One step.
    Step,
    /// A durable sleep.
    Nap,
    /// Waits for one signal.
    Hear(usize),
    /// Takes several signals from a stream.
    Stream(usize, usize),
    /// Takes the token that is the run's id, and waits there.
    Hook,
    /// One after the other.
    Chain(Vec<Program>),
    /// All at once.
    Join(Vec<Program>),
    /// Whoever is first; the others are dropped.
    Race(Vec<Program>),
    /// In the order in which they end.
    Unordered(Vec<Program>),
    /// For so many milliseconds at most.
    Timeout(u64, Box<Program>),
    /// In a child that is waited for.
    Child(Box<Program>),
    /// In a child that is started first and waited for afterwards.
    Started(Box<Program>, Box<Program>),
    /// In a child that goes on when its call is dropped.
    Detached(Box<Program>),
}

fn programs() -> impl Strategy<Value = Program> {
    let leaf = prop_oneof![
        3 => Just(Program::Step),
        1 => Just(Program::Nap),
        3 => (0..NAMES.len()).prop_map(Program::Hear),
        1 => Just(Program::Hook),
        1 => (0..NAMES.len(), 1..4usize).prop_map(|(name, count)| Program::Stream(name, count)),
    ];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        let one = || inner.clone().prop_map(Box::new);
        prop_oneof![
            2 => some().prop_map(Program::Chain),
            2 => some().prop_map(Program::Join),
            3 => some().prop_map(Program::Race),
            2 => some().prop_map(Program::Unordered),
            2 => (0..3u64, one()).prop_map(|(limit, program)| Program::Timeout(limit, program)),
            3 => one().prop_map(Program::Child),
            1 => (one(), one()).prop_map(|(child, program)| Program::Started(child, program)),
            1 => one().prop_map(Program::Detached),
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

/// Takes its time, sometimes fails first, and never gives the same value twice.
#[step(max_attempts = 10, backoff = "1ms")]
async fn work(#[resource] ledger: &Ledger, #[resource] chance: &Chance, given: u64) -> Result<u64> {
    ledger.act("work");
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
        let note = |value: u64| {
            seen.lock().unwrap().push(value);
            value
        };
        Ok(match program {
            Program::Step => note(work(given).await?),
            Program::Nap => {
                sleep(Duration::from_millis(given % 3)).await;
                given
            }
            Program::Hear(name) => note(wait_for(NAMES[name]).await?),
            Program::Stream(name, count) => {
                let heard: Vec<u64> = signals::<u64>(NAMES[name])
                    .take(count)
                    .try_collect()
                    .await?;
                note(fold(heard))
            }
            Program::Hook => {
                let token = get_workflow_metadata().run_id.to_string();
                note(hook::<u64>(&token).await?.next().await?)
            }
            Program::Chain(programs) => {
                let mut value = given;
                for program in programs {
                    publish("at", &value);
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
            Program::Timeout(limit, program) => {
                let limited = run(*program, given, seen.clone());
                match timeout(Duration::from_millis(limit), limited).await {
                    Ok(value) => value?,
                    Err(_) => note(given),
                }
            }
            Program::Child(program) => note(fold(interpret(*program, given).await?)),
            Program::Started(child, program) => {
                let child = start_child(interpret(*child, given));
                let value = run(*program, given, seen.clone()).await?;
                note(value ^ fold(child.await?))
            }
            Program::Detached(program) => note(fold(interpret(*program, given).detached().await?)),
        })
    }
    .boxed()
}

fn fold(values: Vec<u64>) -> u64 {
    values.iter().fold(7, |all, v| all.wrapping_mul(31) ^ v)
}

#[workflow]
async fn interpret(program: Program, given: u64) -> Result<Vec<u64>> {
    let seen = Seen::default();
    let value = run(program, given, seen.clone()).await?;
    let mut seen = seen.lock().unwrap().clone();
    seen.push(value);
    Ok(seen)
}

fn engine(ledger: &Arc<Ledger>, seed: u64) -> EngineBuilder {
    Engine::builder()
        .register::<interpret>()
        .resource_arc(ledger.clone())
        .resource(Chance(AtomicU64::new(seed)))
}

async fn unfinished(engine: &Engine) -> Vec<RunId> {
    let mut found = Vec::new();
    for header in engine.runs().await.expect("lists").runs {
        match engine.status(header.run).await.expect("is there") {
            RunStatus::Active => found.push(header.run),
            RunStatus::Completed | RunStatus::Cancelled => {}
            other => panic!("{} is {other:?}", header.run),
        }
    }
    found
}

/// Sends every unfinished run signals under keys, over and over, until none is left.
async fn talk_until_all_ended(engine: &Engine, chance: &Chance) {
    let mut n = 0u64;
    loop {
        let runs = unfinished(engine).await;
        if runs.is_empty() {
            return;
        }
        for run in runs {
            let name = NAMES[(n % 2) as usize];
            match engine.signal(run, name, &n).key(n / 2).await {
                Ok(_) | Err(EngineError::Ended(_)) => {}
                Err(error) => panic!("{error}"),
            }
            match engine.signal_token(&run.to_string(), &n).key(n).await {
                Ok(_) | Err(EngineError::NoHook { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        n += 1;
        for _ in 0..chance.draw() % 4 {
            tokio::task::yield_now().await;
        }
    }
}

/// Runs a program with its family to the end, through crashes.
async fn lives_through(
    program: &Program,
    seed: u64,
    mut plans: Vec<FaultPlan>,
) -> (MemoryStore, Arc<Ledger>) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plans.pop().unwrap_or_default());
    loop {
        let living = async {
            let chance = Chance(AtomicU64::new(!seed));
            let engine = engine(&ledger, seed)
                .open_with(store.clone())
                .await
                .expect("opens");
            let call = interpret(program.clone(), 1);
            engine.start(call).key("story").await.expect("starts");
            talk_until_all_ended(&engine, &chance).await;
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => return (store, ledger),
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.pop().unwrap_or_default());
    }
}

/// Replays the whole journal of every run that completed.
async fn replays_the_same(store: &MemoryStore, ledger: &Arc<Ledger>) {
    let store = store.reopen(Surviving::Synced);
    let reader = engine(ledger, 0)
        .open_with(store.clone())
        .await
        .expect("opens");
    ledger.forget_asking();
    for header in reader.runs().await.expect("lists").runs {
        if reader.status(header.run).await.expect("is there") != RunStatus::Completed {
            continue;
        }
        let run = reader.run::<interpret>(header.run).await.expect("is there");
        let result = run.result().await.expect("ended well");
        let journal = reader.journal(header.run).await.expect("reads");
        let recorded = frames(&store, header.run).await;
        let before = cut(journal.header(), &recorded, recorded.len() - 1).await;
        let again = engine(ledger, 1).open_with(before).await.expect("opens");
        let run = again.run::<interpret>(header.run).await.expect("is there");
        let replayed = run.result().await.expect("ends well");
        assert_eq!(
            replayed, result,
            "a full replay gave something else\n{journal}"
        );
        assert_eq!(ledger.asked(), 0, "a body ran again\n{journal}");
    }
}

async fn any_family_ends_and_replays(program: Program, seed: u64) {
    let (store, ledger) = lives_through(&program, seed, Vec::new()).await;
    replays_the_same(&store, &ledger).await;
    let chance = Chance(AtomicU64::new(seed));
    for _ in 0..6 {
        let fault =
            [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear][(chance.draw() % 3) as usize];
        let plan = FaultPlan::at(chance.draw() % store.writes(), fault);
        let early = FaultPlan::at(chance.draw() % 8, Fault::CrashAfter);
        let (store, ledger) = lives_through(&program, chance.draw(), vec![early, plan]).await;
        replays_the_same(&store, &ledger).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_family_ends_whatever_crashes_and_replays_to_the_same(program in programs(), seed: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(20), any_family_ends_and_replays(program, seed))
                .await
                .expect("a run hangs");
        });
    }
}
