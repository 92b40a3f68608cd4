//! Starts that are made again: answered without a look at the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use workflow_runtime::{Engine, Key, wait_for, workflow};

use crate::engine::trivial;
use crate::report::{Figure, median};

/// Duplicates of one measurement.
const DUPLICATES: u32 = 100_000;

/// First starts of one measurement, one after the other.
const FIRST: u64 = 200;

/// Duplicate starts a second that were asked for, on one core.
const ASKED: f64 = 100_000.0;

#[workflow]
async fn order(id: u64, cents: u64, customer: String) -> u64 {
    trivial(id).await + cents + customer.len() as u64
}

#[workflow]
async fn held(id: u64) -> u64 {
    trivial(id).await;
    wait_for::<u64>("go on").await.unwrap_or_default()
}

/// What one measurement gave, in starts a second.
struct Rates {
    first: f64,
    ended: f64,
    in_memory: f64,
    asleep: f64,
    writes: f64,
}

/// How often this process has written, as the kernel counts it.
fn write_calls() -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("the kernel tells");
    let line = io.lines().find_map(|line| line.strip_prefix("syscw: "));
    line.and_then(|count| count.parse().ok())
        .expect("a number of writes")
}

async fn open(scratch: &Path, evict_after: Option<Duration>) -> (tempfile::TempDir, Engine) {
    let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
    let engine = Engine::builder()
        .register::<order>()
        .register::<held>()
        .evict_after(evict_after)
        .open(directory.path().join("store"))
        .await
        .expect("it opens");
    (directory, engine)
}

/// Starts a second of a run that waits.
async fn of_held(scratch: &Path, evict_after: Option<Duration>) -> f64 {
    let (_directory, engine) = open(scratch, evict_after).await;
    let start = || engine.start(held(7)).key(Key::business("held", 7));
    let run = start().await.expect("it starts");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let left = engine.runs_in_memory() == 0;
    assert_eq!(left, evict_after.is_some(), "it is where it should be");
    let began = Instant::now();
    for _ in 0..DUPLICATES {
        assert_eq!(start().await.expect("it is found").id(), run.id());
    }
    let rate = f64::from(DUPLICATES) / began.elapsed().as_secs_f64();
    engine.shutdown().await.expect("it stops");
    rate
}

fn measure(scratch: &Path) -> Rates {
    // One thread for all of it; the store's own threads have nothing to do meanwhile.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let (_directory, engine) = open(scratch, None).await;
        let start = |id: u64| {
            let call = order(id, 4_200, "a customer of the shop".into());
            engine.start(call).key(Key::business("order", id))
        };
        let began = Instant::now();
        for id in 0..FIRST {
            start(id).await.expect("it starts");
        }
        let first = FIRST as f64 / began.elapsed().as_secs_f64();
        for id in 0..FIRST {
            let run = start(id).await.expect("it is found");
            run.result().await.expect("it ends");
        }
        // What has ended leaves the store's memory a moment later.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (writes, began) = (write_calls(), Instant::now());
        for n in 0..u64::from(DUPLICATES) {
            start(n % FIRST).await.expect("it is found");
        }
        let ended = f64::from(DUPLICATES) / began.elapsed().as_secs_f64();
        let writes = write_calls() - writes;
        engine.shutdown().await.expect("it stops");
        Rates {
            first,
            ended,
            in_memory: of_held(scratch, None).await,
            asleep: of_held(scratch, Some(Duration::from_millis(1))).await,
            writes,
        }
    })
}

/// Measures duplicate starts beside first ones. Says whether they are as fast as asked.
pub fn duplicates(scratch: &Path, repeats: usize) -> bool {
    let all: Vec<Rates> = (0..repeats).map(|_| measure(scratch)).collect();
    let of = |rate: fn(&Rates) -> f64| median(&mut all.iter().map(rate).collect::<Vec<_>>());
    let figure = |metric, value| Figure::engine("duplicates", metric, value);
    figure("first_starts_per_s", of(|rates| rates.first)).print();
    let asked = [
        ("of_ended_per_s", of(|rates| rates.ended)),
        ("of_running_per_s", of(|rates| rates.in_memory)),
        ("of_sleeping_per_s", of(|rates| rates.asleep)),
    ];
    let met = asked.map(|(metric, rate)| figure(metric, rate).at_least(ASKED).print());
    let ratio = of(|rates| rates.ended / rates.first);
    figure("duplicates_to_first", ratio).print();
    // Each kind of writing that goes on anyway, once a second or less.
    let few = figure("write_calls_of_100000", of(|rates| rates.writes))
        .at_most(100.0)
        .print();
    met.into_iter().all(|met| met) && few
}
