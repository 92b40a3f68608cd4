//! What happens inside one run: a signal on its way in, many steps at once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::sync::{Notify, Semaphore};
use workflow_runtime::store::Durability;
use workflow_runtime::{Engine, step, wait_for, workflow};

use crate::engine::{resident_bytes, runtime, trivial};
use crate::floor;
use crate::report::{Figure, median};

/// Signals of one measurement.
const SIGNALS: u64 = 2_000;

/// Told by the workflow's own code that it has gone on. A side effect that no workflow should
/// have: a step would add its own record to what is measured.
static ACTED: Notify = Notify::const_new();

#[workflow]
async fn listener(signals: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..signals {
        sum += wait_for::<u64>("ping").await.expect("a number");
        ACTED.notify_one();
    }
    sum
}

/// Seconds of the median signal: until it is acknowledged, and until the run has acted on it.
fn round_trip(scratch: &Path) -> (f64, f64) {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    runtime().block_on(async {
        let engine = Engine::builder()
            .register::<listener>()
            .durability(Durability::Synced)
            .open(directory.path().join("store"))
            .await
            .expect("it opens");
        let run = engine.start(listener(SIGNALS)).await.expect("it starts");
        let (mut accepted, mut acted) = (Vec::new(), Vec::new());
        for _ in 0..SIGNALS {
            let began = Instant::now();
            run.signal("ping", &1_u64).await.expect("it is accepted");
            accepted.push(began.elapsed().as_secs_f64());
            ACTED.notified().await;
            acted.push(began.elapsed().as_secs_f64());
        }
        assert_eq!(run.result().await.expect("it ends"), SIGNALS);
        engine.shutdown().await.expect("it stops");
        (median(&mut accepted), median(&mut acted))
    })
}

/// Measures signals beside the raw floor. Says whether they take no more syncs than asked.
///
/// A signal is two synced writes, one after the other: into the mailbox and into the journal. The floor's
/// file grows, which costs its sync more; so the figure is also given in syncs of a prepared file, of
/// which two are the least that is possible.
pub fn signals(scratch: &Path, repeats: usize) -> bool {
    let (mut accepted, mut acted, mut by_growing) = (Vec::new(), Vec::new(), Vec::new());
    let (mut syncs, mut growing_syncs, mut times) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = floor::prepared_sync_seconds(scratch);
    for _ in 0..repeats {
        let (accepted_s, acted_s) = round_trip(scratch);
        let after = floor::prepared_sync_seconds(scratch);
        let growing = floor::sync_seconds(scratch);
        let sync = f64::midpoint(before, after);
        accepted.push(accepted_s / sync);
        acted.push(acted_s / sync);
        by_growing.push(acted_s / growing);
        times.push(acted_s * 1e3);
        syncs.push(sync * 1e3);
        growing_syncs.push(growing * 1e3);
        before = after;
    }
    Figure::floor("signals", "sync_ms", median(&mut growing_syncs)).print();
    Figure::floor("signals", "prepared_sync_ms", median(&mut syncs)).print();
    let figure = |metric, value| Figure::engine("signals", metric, value);
    figure("acted_ms", median(&mut times)).print();
    figure("accepted_in_prepared_syncs", median(&mut accepted)).print();
    figure("acted_in_prepared_syncs", median(&mut acted)).print();
    figure("acted_in_syncs", median(&mut by_growing))
        .at_most(2.0)
        .print()
}

#[workflow]
async fn fan_out(steps: u64) -> u64 {
    join_all((0..steps).map(trivial)).await.into_iter().sum()
}

/// Holds steps until all of them have begun.
struct Gate {
    begun: Semaphore,
    open: Semaphore,
}

#[step]
async fn held(#[resource] gate: &Gate, n: u64) -> u64 {
    gate.begun.add_permits(1);
    drop(gate.open.acquire().await);
    n
}

#[workflow]
async fn held_fan_out(steps: u64) -> u64 {
    join_all((0..steps).map(held)).await.into_iter().sum()
}

/// Seconds of one run of so many concurrent steps, its start and its end among them.
fn seconds_of_fan_out(scratch: &Path, steps: u64) -> f64 {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    runtime().block_on(async {
        let engine = Engine::builder()
            .register::<fan_out>()
            .durability(Durability::Synced)
            .open(directory.path().join("store"))
            .await
            .expect("it opens");
        let began = Instant::now();
        let run = engine.start(fan_out(steps)).await.expect("it starts");
        run.result().await.expect("it ends");
        let took = began.elapsed().as_secs_f64();
        engine.shutdown().await.expect("it stops");
        took
    })
}

/// Prints what each of so many steps in flight in one run takes.
pub fn fan_out_memory(scratch: &Path, steps: u64) {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    runtime().block_on(async {
        let gate = Arc::new(Gate {
            begun: Semaphore::new(0),
            open: Semaphore::new(0),
        });
        let engine = Engine::builder()
            .register::<held_fan_out>()
            .durability(Durability::Synced)
            .resource_arc(gate.clone())
            .open(directory.path().join("store"))
            .await
            .expect("it opens");
        let before = resident_bytes();
        let run = engine.start(held_fan_out(steps)).await.expect("it starts");
        let all = u32::try_from(steps).expect("not that many");
        drop(gate.begun.acquire_many(all).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!("{}", (resident_bytes() - before) / steps as f64);
        gate.open.add_permits(1);
        run.result().await.expect("it ends");
        engine.shutdown().await.expect("it stops");
    });
}

/// Measures many steps at once in one run. Says whether the time is linear.
pub fn fan_out_time(scratch: &Path, repeats: usize) -> bool {
    let (mut few, mut many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let at_few = seconds_of_fan_out(scratch, 1_000) / 1_000.0;
        let at_many = seconds_of_fan_out(scratch, 10_000) / 10_000.0;
        few.push(at_few * 1e6);
        many.push(at_many * 1e6);
        ratios.push(at_many / at_few);
    }
    let figure = |metric, value| Figure::engine("fan-out", metric, value);
    figure("us_per_step_of_1000", median(&mut few)).print();
    figure("us_per_step_of_10000", median(&mut many)).print();
    figure("time_per_step_10000_to_1000", median(&mut ratios))
        .at_most(1.25)
        .print()
}
