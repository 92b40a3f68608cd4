//! The work whose instructions are counted: one run of many steps, recorded, and replayed if asked.
//!
//! `speed record STEPS [DIR]` drives a run to a step that does not end, and stops the engine there. `speed reopen STEPS` also
//! makes the store that a restart would find, and `speed replay STEPS` opens a second engine on that, until the run is at
//! its last step again. So the difference between two numbers of steps is steps and nothing else, and that between the last
//! two words is a replay. In memory, on one thread; in `DIR` on the embedded store, which has threads of its own.
//!
//! Prints nothing and measures nothing: `guard.rs` does, from outside.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{Engine, EngineBuilder, step, workflow};

/// What a step gives back: a small struct, as most do.
#[derive(Clone, Serialize, Deserialize)]
struct Receipt {
    customer: String,
    cents: u64,
}

#[step]
async fn charge(customer: &str, cents: u64) -> Receipt {
    Receipt {
        customer: customer.to_owned(),
        cents,
    }
}

/// Where the recorded part of the run ends.
#[derive(Default)]
struct Frontier {
    reached: Notify,
    is_open: AtomicBool,
}

#[step]
async fn last(#[resource] frontier: &Frontier) -> bool {
    frontier.reached.notify_one();
    if !frontier.is_open.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    true
}

#[workflow]
async fn bill(customer: String, steps: u64) -> u64 {
    let mut sum = 0;
    for cents in 0..steps {
        sum += charge(&customer, cents).await.cents;
    }
    last().await;
    sum
}

fn builder(frontier: &Arc<Frontier>) -> EngineBuilder {
    Engine::builder()
        .register::<bill>()
        .resource_arc(frontier.clone())
}

/// Drives a run to its last step, and stops there.
async fn record(engine: Engine, frontier: &Frontier, steps: u64) {
    let started = engine.start(bill("Ada".into(), steps)).await;
    started.expect("it starts");
    frontier.reached.notified().await;
    let stopped = engine.shutdown().grace(Duration::ZERO).await;
    stopped.expect("it stops");
}

/// How far the work in memory goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Recorded,
    Reopened,
    Replayed,
}

async fn in_memory(steps: u64, until: Until) {
    let (frontier, store) = (Arc::new(Frontier::default()), MemoryStore::new());
    let engine = builder(&frontier).open_with(store.clone()).await;
    record(engine.expect("it opens"), &frontier, steps).await;
    if until == Until::Recorded {
        return;
    }
    let left = store.reopen(Surviving::All);
    if until == Until::Reopened {
        return;
    }
    frontier.is_open.store(true, Ordering::Relaxed);
    let engine = builder(&frontier).open_with(left).await;
    let engine = engine.expect("it opens again");
    frontier.reached.notified().await;
    engine.shutdown().await.expect("it stops again");
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be made");
    let steps = |text: &str| text.parse().expect("a number of steps");
    match words.as_slice() {
        ["record", text] => runtime.block_on(in_memory(steps(text), Until::Recorded)),
        ["reopen", text] => runtime.block_on(in_memory(steps(text), Until::Reopened)),
        ["replay", text] => runtime.block_on(in_memory(steps(text), Until::Replayed)),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}
