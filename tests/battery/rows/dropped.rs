//! Futures that are dropped and engines that are shut down in the middle: at every await point of a step, of a start, of a
//! signal, of a result. No record is half written, and the next engine goes on.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::poll_fn;
use tokio::sync::Notify;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::{Ledger, TestEngine, check_invariants};
use workflow_runtime::{Engine, Result, get_step_metadata, step, wait_for, workflow};

use super::Case;
use super::scratch;
use crate::chance::Chance;

/// Await points in the body of a step.
const POINTS: u64 = 6;

/// Steps of a run.
const STEPS: u64 = 4;

/// A run that has not ended after so long by the virtual clock never will.
const PATIENCE: Duration = Duration::from_secs(86_400);

/// Where the bodies are.
#[derive(Default)]
struct Points {
    passed: AtomicU64,
    /// At which point somebody is to be told.
    tells_at: AtomicU64,
    there: Notify,
}

impl Points {
    /// One await point: others get their turn.
    async fn pass(&self) {
        let point = self.passed.fetch_add(1, Ordering::Relaxed);
        if point == self.tells_at.load(Ordering::Relaxed) {
            self.there.notify_one();
            // Whoever waits for this has its turn before the body goes on.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::task::yield_now().await;
    }
}

#[step]
async fn act(#[resource] ledger: &Ledger, #[resource] points: &Points, at: u64) -> Result<u64> {
    for point in 0..POINTS {
        if point == POINTS / 2 {
            ledger.post(get_step_metadata().step_id, at)?;
        }
        points.pass().await;
    }
    Ok(at)
}

#[workflow]
async fn several() -> Result<u64> {
    let mut sum = 0;
    for at in 0..STEPS {
        sum += act(at).await?;
    }
    let word: u64 = wait_for("word").await?;
    Ok(sum + word)
}

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let mut case = Case::default();
    let ledger = Ledger::honouring_keys();
    let store = MemoryStore::new();
    let at = seed / 5;
    let stopped = scratch::runtime();
    stopped.block_on(async {
        let points = Arc::new(Points::default());
        points
            .tells_at
            .store(at % (POINTS * STEPS), Ordering::Relaxed);
        let engine = open(&store, &ledger, &points).await;
        match seed % 5 {
            0 => {
                start(&engine).await;
                points.there.notified().await;
                let ended = Engine::clone(&engine)
                    .shutdown()
                    .grace(Duration::ZERO)
                    .await;
                case.holds(ended.is_ok(), || format!("16: shutdown: {ended:?}"));
            }
            1 => {
                // Everything is dropped with the runtime, wherever it is.
                start(&engine).await;
                points.there.notified().await;
            }
            2 => {
                dropped_after(
                    at % 6,
                    &store,
                    engine.start(several()).key("run").into_future(),
                )
                .await
            }
            3 => {
                start(&engine).await;
                let signal = engine
                    .start(several())
                    .key("run")
                    .await
                    .expect("the same run");
                let signal = signal.signal("word", &100_u64).key("word");
                dropped_after(at % 4, &store, signal.into_future()).await;
            }
            _ => {
                let run = engine.start(several()).key("run").await.expect("it starts");
                for _ in 0..=at % 9 {
                    dropped_after(chance.below(5), &store, run.result()).await;
                }
            }
        }
    });
    drop(stopped);
    case.count = 1;
    let surviving = chance.one_of(&[Surviving::Synced, Surviving::All, Surviving::Random(seed)]);
    let store = store.reopen(surviving);
    scratch::runtime().block_on(finish(&store, &ledger, &mut case));
    case
}

async fn start(engine: &TestEngine) {
    let run = engine.start(several()).key("run").await;
    run.expect("it starts");
}

async fn open(store: &MemoryStore, ledger: &Ledger, points: &Arc<Points>) -> TestEngine {
    let engine = TestEngine::builder()
        .register::<several>()
        .resource(ledger.clone())
        .resource_arc(points.clone())
        .store(store.clone());
    engine.open().await.expect("a store in memory opens")
}

/// Polls a future so many times while acknowledgements are kept back, and drops it.
async fn dropped_after<T>(polls: u64, store: &MemoryStore, future: impl Future<Output = T>) {
    store.hold();
    {
        let mut future = pin!(future);
        for _ in 0..polls {
            let once = poll_fn(|_| {
                let waker = Waker::noop();
                Poll::Ready(
                    future
                        .as_mut()
                        .poll(&mut Context::from_waker(waker))
                        .is_ready(),
                )
            });
            if once.await {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    store.release();
    tokio::task::yield_now().await;
}

/// The next engine goes on, whatever was dropped.
async fn finish(store: &MemoryStore, ledger: &Ledger, case: &mut Case) {
    let engine = open(store, ledger, &Arc::default()).await;
    let broken = check_invariants(&engine).await.expect("memory is readable");
    case.violations.extend(
        broken
            .iter()
            .map(|broken| format!("before it goes on: {broken}")),
    );
    let run = engine.start(several()).key("run").await;
    let run = match run {
        Ok(run) => run,
        Err(error) => return case.wrong(format!("8: the start is refused: {error}")),
    };
    let sent = run.signal("word", &100_u64).key("word").await;
    case.holds(sent.is_ok(), || format!("12: {sent:?}"));
    let result = tokio::time::timeout(PATIENCE, run.result()).await;
    let right = STEPS * (STEPS - 1) / 2 + 100;
    case.holds(matches!(result, Ok(Ok(sum)) if sum == right), || {
        format!("14: it ends with {result:?} instead of {right}")
    });
    let entries = ledger.entries().len() as u64;
    case.holds(entries == STEPS, || {
        format!("4: {entries} effects of {STEPS}")
    });
    let runs = engine.runs().await.expect("memory is readable").runs.len();
    case.holds(runs == 1, || format!("8: {runs} runs of one key"));
    let broken = check_invariants(&engine).await.expect("memory is readable");
    case.violations
        .extend(broken.iter().map(ToString::to_string));
}
