//! A run that begins anew again and again: what it costs to resume it, after few passes and after many.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use workflow_runtime::store::Durability;
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

/// Milliseconds from opening a store until the resumed run makes its first live call.
async fn resume(path: &Path) -> f64 {
    let arrivals = Arc::<Arrivals>::default();
    let began = Instant::now();
    let engine = builder(&arrivals)
        .open(path)
        .await
        .expect("the store opens");
    arrivals.0.notified().await;
    let took = began.elapsed().as_secs_f64() * 1e3;
    stop(engine).await;
    took
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
    let mut took = [Vec::new(), Vec::new()];
    runtime().block_on(async {
        for path in &paths {
            resume(path).await; // the first opening after the filling clears up after it
        }
        for _ in 0..repeats {
            for (path, took) in paths.iter().zip(&mut took) {
                took.push(resume(path).await);
            }
        }
    });
    let [mut few, mut many] = took;
    eprintln!(
        "after {} passes: {few:.1?} ms; after {}: {many:.1?} ms",
        PASSES[0], PASSES[1]
    );
    let (few, many) = (median(&mut few), median(&mut many));
    Figure::engine("endless-1000", "resume_ms", few).print();
    Figure::engine("endless-1000000", "resume_ms", many).print();
    Figure::engine("endless", "many_to_few", many / few)
        .at_most(AT_MOST)
        .print()
}
