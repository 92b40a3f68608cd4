//! A run that begins anew again and again: what it costs to resume it, after few passes and after many.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use workflow_runtime::store::Durability;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::{Engine, EngineBuilder, checkpoint, step, workflow};

use crate::engine::{runtime, trivial};
use crate::report::{Figure, median};

/// How many passes are few, and how many are many.
const PASSES: [u64; 2] = [1_000, 1_000_000];

/// What a resume after many passes may cost, in resumes after few.
const AT_MOST: f64 = 2.0;

/// Told when the step behind the last checkpoint begins: the first live call of a resumed run.
#[derive(Default)]
struct Arrivals(Notify);

/// Begins and never ends, so that every process begins it anew.
#[step]
async fn arrive(#[resource] arrivals: &Arrivals, n: u64) -> u64 {
    arrivals.0.notify_one();
    std::future::pending::<()>().await;
    n
}

/// One step and a checkpoint in each pass.
#[workflow]
async fn counting(n: u64, until: u64) -> u64 {
    if n == until {
        return arrive(n).await;
    }
    let next = trivial(n).await;
    checkpoint(&(next, until)).await
}

fn builder(arrivals: &Arc<Arrivals>) -> EngineBuilder {
    Engine::builder()
        .register::<counting>()
        .resource_arc(arrivals.clone())
}

async fn stop(engine: Engine) {
    let stopping = engine.shutdown().grace(Duration::ZERO);
    stopping.await.expect("the engine stops");
}

/// Makes a store with one run that has begun anew so often.
pub fn fill(path: &Path, passes: u64) {
    runtime().block_on(async {
        let arrivals = Arc::<Arrivals>::default();
        let engine = builder(&arrivals).durability(Durability::Buffered);
        let engine = engine.open(path).await.expect("the store opens");
        let began = Instant::now();
        let run = engine.start(counting(0, passes)).await.expect("it starts");
        arrivals.0.notified().await;
        let rate = passes as f64 / began.elapsed().as_secs_f64();
        eprintln!("{passes} passes: {rate:.0} a second");
        drop(run);
        stop(engine).await;
    });
}

/// Milliseconds from the beginning.
struct Resumed {
    /// Until the store was open.
    opened: f64,
    /// Until the run made its first live call.
    arrived: f64,
}

async fn resume(path: &Path) -> Resumed {
    let arrivals = Arc::<Arrivals>::default();
    let began = Instant::now();
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let store = SledStore::open(path, SledOptions::default()).expect("the store opens");
    let opened = ms();
    let engine = builder(&arrivals).open_with(store).await;
    let engine = engine.expect("the engine opens");
    arrivals.0.notified().await;
    let arrived = ms();
    stop(engine).await;
    Resumed { opened, arrived }
}

/// Opens a store again and again, to look into.
pub fn look(path: &Path) {
    runtime().block_on(async {
        for _ in 0..6 {
            let Resumed { opened, arrived } = resume(path).await;
            println!("open {opened:.1} ms, live {arrived:.1} ms");
        }
    });
}

/// Measures resumes after few and many passes in turns, in a process that did not make them.
pub fn resumes(scratch: &Path, repeats: usize) -> bool {
    let paths = PASSES.map(|passes| {
        let path = scratch.join(format!("endless-{passes}"));
        let filled = std::process::Command::new(std::env::current_exe().expect("our own path"))
            .args(["child", "fill-endless", &passes.to_string()])
            .arg(&path)
            .status()
            .expect("a child can be started");
        assert!(filled.success(), "the store is filled");
        path
    });
    let (mut took, mut runs) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    runtime().block_on(async {
        for path in &paths {
            resume(path).await; // the first opening after the filling clears up after it
        }
        for _ in 0..repeats {
            for (n, path) in paths.iter().enumerate() {
                let resumed = resume(path).await;
                took[n].push(resumed.arrived);
                runs[n].push(resumed.arrived - resumed.opened);
            }
        }
    });
    let [mut few, mut many] = took;
    eprintln!(
        "after {} passes: {few:.1?} ms; after {}: {many:.1?} ms",
        PASSES[0], PASSES[1]
    );
    let [mut run_few, mut run_many] = runs;
    let (few, many) = (median(&mut few), median(&mut many));
    let (run_few, run_many) = (median(&mut run_few), median(&mut run_many));
    Figure::engine("endless-1000", "run_ms", run_few).print();
    Figure::engine("endless-1000000", "run_ms", run_many).print();
    Figure::engine("endless-1000", "open_and_run_ms", few).print();
    Figure::engine("endless-1000000", "open_and_run_ms", many).print();
    let run = Figure::engine("endless", "run_many_to_few", run_many / run_few);
    let all = Figure::engine("endless", "open_and_run_many_to_few", many / few);
    let run = run.at_most(AT_MOST).print();
    all.at_most(AT_MOST).print() && run
}
