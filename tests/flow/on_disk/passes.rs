//! Endless workflows and sleepers on a disk: their journals move to the archive while they go on.

use std::time::Duration;

use workflow_runtime::journal::Event;
use workflow_runtime::{
    Engine, EngineBuilder, Result, checkpoint, random, sleep, step, wait_for, workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, until, until_memory_is_empty};

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

/// A step whose outcome is more than the store keeps in one value.
#[step]
async fn fetch(#[resource] ledger: &Ledger, page: u64) -> Result<String> {
    ledger.act(&format!("page {page}"));
    Ok(format!("{page} ").repeat(1_500))
}

/// Carries a state of a few kilobytes from pass to pass.
#[workflow]
async fn reading(page: u64, until: u64, sums: Vec<u64>) -> Result<Vec<u64>> {
    let text = fetch(page).await?;
    let mut sums = sums;
    sums.push(text.len() as u64 ^ (random::<u64>() & 1));
    if page % 20 == 19 {
        sleep(Duration::from_millis(10)).await;
    }
    if page + 1 == until {
        return Ok(sums);
    }
    checkpoint(&(page + 1, until, sums)).await
}

/// Waits in every pass; what was not taken carries over.
#[workflow]
async fn listening(heard: Vec<String>) -> Result<Vec<String>> {
    let mut heard = heard;
    let text = wait_for::<String>("text").await?;
    act(format!("heard {}", heard.len())).await?;
    heard.push(text[..1].to_owned());
    if heard.len() == 9 {
        return Ok(heard);
    }
    checkpoint(&heard).await
}

#[workflow]
async fn napping(name: String, naps: u32, millis: u64) -> Result<u32> {
    for nap in 0..naps {
        act(format!("{name} nap {nap}")).await?;
        sleep(Duration::from_millis(millis)).await;
    }
    Ok(naps)
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<reading>()
        .register::<listening>()
        .register::<napping>()
        .evict_after(Duration::from_millis(2))
}

#[tokio::test]
async fn many_passes_with_large_payloads_are_resumed_wherever_their_journal_is() {
    const PAGES: u64 = 300;
    let mut sums = Vec::new();
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let call = reading(0, PAGES, Vec::new());
        let run = engine.start(call).key("book").await.expect("starts").id();
        // At last the archiver has nothing left to do: it waits for a second at most.
        for (pages, pause) in [(5, 0), (60, 30), (61, 0), (150, 1_100), (299, 0)] {
            until("it has read so far", async || {
                disk.ledger.effects().len() >= pages
            })
            .await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
            engine = disk.restart(engine, stop).await;
        }
        disk.ledger.forget_asking();
        let handle = engine.run::<reading>(run).await.expect("is there");
        let mut read = handle.result().await.expect("ends well");
        assert_eq!(read.len() as u64, PAGES);
        assert_eq!(disk.ledger.effects().len() as u64, PAGES);
        assert!(disk.ledger.asked() < 200, "passes were gone through again");
        // Chance is of the run, which is another one on another disk.
        read.iter_mut().for_each(|sum| *sum &= !1);
        match sums.is_empty() {
            true => sums = read,
            false => assert_eq!(read, sums),
        }
        let engine = disk.restart(engine, stop).await;
        let journal = engine.journal(run).await.expect("reads");
        let records = journal.records().iter();
        let passes: Vec<u64> = records
            .filter_map(|record| match &record.event {
                Event::Checkpoint(checkpoint) => Some(checkpoint.pass),
                _ => None,
            })
            .collect();
        assert_eq!(passes.last(), Some(&(PAGES - 1)));
        assert!(
            passes.len() < 150,
            "those long over are forgotten: {passes:?}"
        );
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn signals_carry_over_passes_and_stops() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let run = engine.start(listening(Vec::new())).await;
        let run = run.expect("starts").id();
        for texts in ["abc", "def", "ghi"] {
            for text in texts.chars() {
                let text = text.to_string().repeat(6_000);
                engine.signal(run, "text", &text).await.expect("sends");
            }
            engine = disk.restart(engine, stop).await;
            if texts != "ghi" {
                until_memory_is_empty(&engine).await;
            }
        }
        let run = engine.run::<listening>(run).await.expect("is there");
        let heard = run.result().await.expect("ends well").concat();
        assert_eq!(heard, "abcdefghi");
        assert_eq!(disk.ledger.effects().len(), 9);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn runs_that_come_and_go_lose_no_nap_through_any_stop() {
    const RUNS: usize = 200;
    let disk = Disk::new(engine);
    let mut engine = disk.open().await;
    let mut runs = Vec::new();
    for n in 0..RUNS {
        let call = napping(format!("run {n}"), 4, 40 + n as u64 % 20);
        let run = engine.start(call).key(format!("run {n}")).await;
        runs.push(run.expect("starts").id());
    }
    for n in 0..6 {
        tokio::time::sleep(Duration::from_millis(7 * n)).await;
        if n % 2 == 0 {
            until("most of them sleep", async || {
                engine.runs_in_memory() < RUNS / 10
            })
            .await;
        }
        engine = disk.restart(engine, BOTH[usize::from(n % 3 == 2)]).await;
    }
    for run in runs {
        let run = engine.run::<napping>(run).await.expect("is there");
        assert_eq!(run.result().await.expect("ends well"), 4);
    }
    assert_eq!(disk.ledger.effects().len(), 4 * RUNS);
    disk.is_sound(engine).await;
}
