//! A run that goes on for ever takes no more space the longer it does, whether it is always busy or sleeps in every pass.

use std::path::Path;
use std::time::Duration;

use workflow_runtime::store::Durability;
use workflow_runtime::{
    Engine, EngineBuilder, Result, checkpoint, sleep, step, wait_for, workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, Stop, until};

#[step]
async fn count(#[resource] _ledger: &Ledger, n: u64) -> Result<u64> {
    Ok(n + 1)
}

/// Says that the last pass has begun.
#[step]
async fn arrive(#[resource] ledger: &Ledger, n: u64) -> Result<()> {
    ledger.act(&format!("arrived {n}"));
    Ok(())
}

#[workflow]
async fn counting(n: u64, until: u64) -> Result<u64> {
    if n == until {
        arrive(n).await?;
        wait_for::<()>("end").await?;
        return Ok(n);
    }
    checkpoint(&(count(n).await?, until)).await
}

/// Leaves memory in every pass.
#[workflow]
async fn napping(n: u64, until: u64) -> Result<u64> {
    if n == until {
        arrive(n).await?;
        wait_for::<()>("end").await?;
        return Ok(n);
    }
    let next = count(n).await?;
    sleep(Duration::from_millis(5)).await;
    checkpoint(&(next, until)).await
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<counting>()
        .register::<napping>()
        .durability(Durability::Buffered)
        .evict_after(Duration::from_millis(1))
}

fn bytes_below(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("a directory");
    let size = |entry: std::fs::DirEntry| match entry.metadata().expect("is there") {
        found if found.is_dir() => bytes_below(&entry.path()),
        found => found.len(),
    };
    entries.map(|entry| size(entry.expect("reads"))).sum()
}

async fn arrived(disk: &Disk, n: u64) {
    let arrived = format!("arrived {n}");
    until("it got to its last pass", async || {
        disk.ledger.effects().contains(&arrived)
    })
    .await;
}

/// What the store takes after a run of so many passes, in bytes, while it waits in the next process.
async fn size_after(passes: u64, stop: Stop) -> u64 {
    let disk = Disk::new(engine);
    let engine = disk.open().await;
    let run = engine.start(counting(0, passes)).await;
    let run = run.expect("starts").id();
    arrived(&disk, passes).await;
    let engine = disk.restart(engine, stop).await;
    let size = bytes_below(&disk.dir.path().join("store"));
    engine.signal(run, "end", &()).await.expect("sends");
    let handle = engine.run::<counting>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), passes);
    disk.is_sound(engine).await;
    size
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_a_hundred_times_the_passes_takes_about_the_same_space() {
    for stop in BOTH {
        let (few, many) = (size_after(200, stop).await, size_after(20_000, stop).await);
        // Files of the log of 4 MiB and segments of sled's of 1 MiB come and go; without forgetting it is 8 MB and more.
        let most = match stop {
            Stop::InOrder => 2 * few + 1024 * 1024,
            Stop::Dropped => 14 * 1024 * 1024,
        };
        assert!(many <= most, "{few} and {many} bytes, {stop:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_sleeps_in_every_pass_removes_what_it_forgot() {
    const PASSES: u64 = 400;
    let disk = Disk::new(engine);
    let mut engine = disk.open().await;
    let run = engine.start(napping(0, PASSES)).await;
    let run = run.expect("starts").id();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        engine = disk.restart(engine, Stop::Dropped).await;
    }
    arrived(&disk, PASSES).await;
    let engine = disk.restart(engine, Stop::InOrder).await;
    let journal = engine.journal(run).await.expect("reads");
    let kept = journal.records().len();
    assert!(kept < 300, "{kept} records are left");
    engine.signal(run, "end", &()).await.expect("sends");
    let handle = engine.run::<napping>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), PASSES);
    disk.is_sound(engine).await;
}
