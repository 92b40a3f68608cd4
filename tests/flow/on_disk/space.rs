//! What a store's directory takes before and after most of it was deleted. A measurement, not a rule:
//! `cargo test --release --test flow on_disk::space -- --ignored --nocapture` prints the figures of `docs/operating.md`.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use workflow_runtime::{Engine, EngineBuilder, Result, Retention, step, workflow};
use workflow_tests::Ledger;

use super::{Disk, Stop};

#[step]
async fn act(#[resource] _ledger: &Ledger, what: String) -> Result<String> {
    Ok(what.repeat(100))
}

#[workflow]
async fn passing(number: u64) -> Result<usize> {
    Ok(act(format!("{number:010}")).await?.len())
}

#[workflow]
async fn lasting(number: u64) -> Result<usize> {
    Ok(act(format!("{number:010}")).await?.len())
}

fn engine() -> EngineBuilder {
    let long = Retention::of(Duration::from_secs(3600));
    Engine::builder()
        .register::<passing>()
        .register::<lasting>()
        .retention(long)
}

fn forgetful() -> EngineBuilder {
    engine().retention_of::<passing>(Retention::of(Duration::ZERO))
}

fn bytes_below(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("a directory");
    let size = |entry: std::fs::DirEntry| match entry.metadata().expect("is there") {
        found if found.is_dir() => bytes_below(&entry.path()),
        found => found.len(),
    };
    entries.map(|entry| size(entry.expect("reads"))).sum()
}

async fn run(engine: &Engine, numbers: std::ops::Range<u64>) {
    for first in numbers.clone().step_by(1_000) {
        let runs = (first..numbers.end.min(first + 1_000)).map(|number| async move {
            match number % 10 {
                0 => engine.start(lasting(number)).await?.result().await?,
                _ => engine.start(passing(number)).await?.result().await?,
            };
            Result::<()>::Ok(())
        });
        join_all(runs)
            .await
            .into_iter()
            .for_each(|run| run.expect("ends well"));
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn space_after_deletion() {
    let mut disk = Disk::new(engine);
    let show = |when: &str, disk: &Disk| {
        let bytes = bytes_below(&disk.dir.path().join("store"));
        eprintln!("{when}: {:.1} MiB", bytes as f64 / 1_048_576.0);
    };
    let engine = disk.open().await;
    run(&engine, 0..20_000).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    show("20,000 runs", &disk);
    disk.engine = forgetful;
    let engine = disk.restart(engine, Stop::InOrder).await;
    show("reopened", &disk);
    let mut deleted = 0;
    loop {
        deleted += engine.sweep().await.expect("sweeps");
        let passing = engine.runs().workflow("passing").limit(1).await;
        if passing.expect("lists").runs.is_empty() {
            break;
        }
    }
    show(&format!("90% deleted ({deleted} by hand)"), &disk);
    for seconds in [2, 8] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        show(&format!("{seconds} s later"), &disk);
    }
    disk.engine = self::engine;
    let engine = disk.restart(engine, Stop::InOrder).await;
    show("reopened", &disk);
    let engine = disk.restart(engine, Stop::InOrder).await;
    show("reopened once more", &disk);
    run(&engine, 20_000..38_000).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    show("18,000 new runs in place of the deleted ones", &disk);
    disk.is_sound(engine).await;
}
