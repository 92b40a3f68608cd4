//! Journals that are so long that more than one thread reads them: what comes out is what one thread would make of them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Notify;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{Engine, EngineBuilder, RunError, RunId, step, workflow};
use workflow_tests::{Edited, Ledger, frames};

/// Steps of the run: more than one thread reads as many.
const STEPS: u64 = 3_000;

/// Where the run waits until it may end.
#[derive(Default)]
struct Gate {
    reached: Notify,
    is_open: AtomicBool,
}

#[step]
async fn act(#[resource] ledger: &Ledger, n: u64) -> u64 {
    ledger.act(&n.to_string());
    n + 1
}

#[step]
async fn wait(#[resource] gate: &Gate) -> bool {
    gate.reached.notify_one();
    if !gate.is_open.load(Ordering::SeqCst) {
        pending::<()>().await;
    }
    true
}

/// One after the other, two side by side, and several that have wakers of their own.
#[workflow]
async fn many(steps: u64) -> u64 {
    let (mut n, mut sum) = (0, 0);
    while n + 8 <= steps {
        sum += act(n).await;
        let (one, two) = futures::join!(act(n + 1), act(n + 2));
        sum += one + two;
        let mut others: FuturesUnordered<_> = (n + 3..n + 8).map(act).collect();
        let mut place = 1;
        while let Some(got) = others.next().await {
            sum += got * place;
            place += 1;
        }
        n += 8;
    }
    wait().await;
    sum
}

fn engine(ledger: &Arc<Ledger>, gate: &Arc<Gate>) -> EngineBuilder {
    Engine::builder()
        .register::<many>()
        .resource_arc(ledger.clone())
        .resource_arc(gate.clone())
}

/// Drives a run to its last step, and stops there.
async fn record(engine: Engine, gate: &Gate) -> RunId {
    let run = engine.start(many(STEPS)).key("long").await.expect("starts");
    gate.reached.notified().await;
    let run = run.id();
    let stopped = engine.shutdown().grace(Duration::ZERO).await;
    stopped.expect("stops");
    run
}

#[tokio::test]
async fn a_long_run_goes_on_where_it_was_and_no_step_runs_again() {
    let (ledger, gate) = (Ledger::shared(), Arc::new(Gate::default()));
    let whole = {
        let (ledger, gate) = (Ledger::shared(), Arc::new(Gate::default()));
        gate.is_open.store(true, Ordering::SeqCst);
        let engine = engine(&ledger, &gate).open_with(MemoryStore::new()).await;
        let engine = engine.expect("opens");
        let run = engine.start(many(STEPS)).await.expect("starts");
        run.result().await.expect("ends")
    };
    let store = MemoryStore::new();
    let first = engine(&ledger, &gate).open_with(store.clone()).await;
    let run = record(first.expect("opens"), &gate).await;
    assert_eq!(ledger.asked() as u64, STEPS);
    // Stopped in order, and as if the process had died.
    for clean in [true, false] {
        let left = store.reopen(Surviving::All);
        if !clean {
            let crashing = engine(&ledger, &gate).open_with(left.clone()).await;
            let crashing = crashing.expect("opens");
            gate.reached.notified().await;
            drop(crashing);
        }
        gate.is_open.store(true, Ordering::SeqCst);
        let again = engine(&ledger, &gate)
            .open_with(left.reopen(Surviving::Synced))
            .await;
        let again = again.expect("opens");
        let handle = again.run::<many>(run).await.expect("is there");
        assert_eq!(
            handle.result().await.expect("ends"),
            whole,
            "clean: {clean}"
        );
        assert_eq!(ledger.asked() as u64, STEPS, "nothing ran again");
        assert!(again.verify().await.expect("verifies").damaged.is_empty());
        gate.is_open.store(false, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_long_run_goes_on_from_a_real_directory() {
    let (ledger, gate) = (Ledger::shared(), Arc::new(Gate::default()));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    let first = engine(&ledger, &gate).open(&path).await.expect("opens");
    let run = record(first, &gate).await;
    gate.is_open.store(true, Ordering::SeqCst);
    let again = engine(&ledger, &gate).open(&path).await.expect("opens");
    let handle = again.run::<many>(run).await.expect("is there");
    handle.result().await.expect("ends");
    assert_eq!(ledger.asked() as u64, STEPS, "nothing ran again");
    assert!(again.verify().await.expect("verifies").damaged.is_empty());
    again.shutdown().await.expect("stops");
}

#[tokio::test]
async fn damage_anywhere_in_a_long_journal_parks_its_run_before_any_step() {
    let (ledger, gate) = (Ledger::shared(), Arc::new(Gate::default()));
    let store = MemoryStore::new();
    let first = engine(&ledger, &gate).open_with(store.clone()).await;
    let run = record(first.expect("opens"), &gate).await;
    let last = frames(&store.reopen(Surviving::All), run).await.len() - 1;
    assert!(last as u64 >= STEPS);
    ledger.forget_asking();
    for at in [1, 127, 128, last / 2, last - 1, last] {
        let edit = move |frames: &mut Vec<Bytes>| {
            if let Some(frame) = frames.get_mut(at) {
                let mut bytes = frame.to_vec();
                bytes[40] ^= 1;
                *frame = bytes.into();
            }
        };
        let store = store.reopen(Surviving::All);
        let engine = engine(&ledger, &gate)
            .open_with(Edited { store, edit })
            .await;
        let engine = engine.expect("opens");
        let handle = engine.run::<many>(run).await.expect("is there");
        let Err(RunError::Parked(parking)) = handle.result().await else {
            panic!("it is parked, with record {at} damaged");
        };
        assert_eq!(parking.reason, ParkReason::Corrupt);
        let named = format!("record {at} is not what was written there");
        assert!(parking.report.contains(&named), "{}", parking.report);
        assert_eq!(ledger.asked(), 0);
    }
}
