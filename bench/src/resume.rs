//! W4, taken apart: a process is killed within a step; how long does the next one take beyond opening the store?

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Notify;
use workflow_runtime::store::Durability;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::{Engine, EngineBuilder, step, workflow};

use crate::engine::{runtime, trivial};
use crate::report::{Figure, median};

/// Steps that are recorded before the kill.
const STEPS: u64 = 10_000;

/// Told that the step that never ends has begun.
#[derive(Default)]
struct Held(Notify);

#[step]
async fn held(#[resource] held: &Held) -> bool {
    held.0.notify_one();
    std::future::pending().await
}

#[workflow]
async fn long_chain(steps: u64) -> bool {
    let mut n = 0;
    while n < steps {
        n = trivial(n).await;
    }
    held().await
}

fn builder() -> (EngineBuilder, Arc<Held>) {
    let held = Arc::new(Held::default());
    let builder = Engine::builder()
        .register::<long_chain>()
        .durability(Durability::Buffered)
        .resource_arc(held.clone());
    (builder, held)
}

/// Records the steps, says so, and waits to be killed.
pub fn record(path: &Path) {
    runtime().block_on(async {
        let (builder, held) = builder();
        let engine = builder.open(path).await.expect("it opens");
        engine.start(long_chain(STEPS)).await.expect("it starts");
        held.0.notified().await;
        println!("here");
        std::future::pending::<()>().await;
    });
}

/// Opens what the killed process left; prints the milliseconds of the store, and from there to the step.
pub fn resume(path: &Path) {
    runtime().block_on(async {
        let (builder, held) = builder();
        let began = Instant::now();
        let store = SledStore::open(path, SledOptions::default()).expect("the store opens");
        let opened = Instant::now();
        let engine = builder.open_with(store).await.expect("the engine opens");
        held.0.notified().await;
        let (store, beyond) = (opened - began, opened.elapsed());
        println!(
            "{} {}",
            store.as_secs_f64() * 1e3,
            beyond.as_secs_f64() * 1e3
        );
        drop(engine);
    });
}

/// Measures it. Says whether it is what was asked for.
pub fn after_a_kill(scratch: &Path, repeats: usize) -> bool {
    let (mut stores, mut beyonds) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let directory = tempfile::tempdir_in(scratch).expect("a directory can be made");
        let path = directory.path().join("store");
        kill_after_recording(&path);
        let words = ["resume-killed", path.to_str().expect("a path of text")];
        let said = crate::leaving::child(&words);
        stores.push(said[0]);
        beyonds.push(said[1]);
    }
    let figure =
        |metric, values: &mut [f64]| Figure::engine("resume-10000", metric, median(values));
    figure("store_open_ms", &mut stores).print();
    figure("ms_beyond_opening_the_store", &mut beyonds)
        .at_most(50.0)
        .print()
}

fn kill_after_recording(path: &Path) {
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["child", "record-to-kill"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child can be started");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    out.read_line(&mut line).expect("it says that it is there");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    assert_eq!(
        line.trim(),
        "here",
        "the child did not get to its last step"
    );
}
