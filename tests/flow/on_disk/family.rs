//! Children by the thousand, undoing and steps that run at most once, on a disk.

use std::time::Duration;

use futures::future::join_all;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunStatus, sleep, step, workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, Stop, until, until_memory_is_empty};

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

#[workflow]
async fn child(number: usize) -> Result<usize> {
    act(format!("child {number}")).await?;
    if number.is_multiple_of(2) {
        sleep(Duration::from_millis(20)).await;
    }
    act(format!("grown {number}")).await?;
    Ok(number)
}

#[workflow]
async fn fan_out(count: usize) -> Result<usize> {
    let ends = join_all((0..count).map(child)).await;
    act("all are back".to_owned()).await?;
    ends.into_iter().sum()
}

/// Gives back what it was given.
#[workflow]
async fn echo(text: String) -> Result<String> {
    Ok(text)
}

#[step]
async fn repeat(#[resource] ledger: &Ledger, number: usize, bytes: usize) -> Result<String> {
    ledger.act(&format!("repeat {number}"));
    Ok(number.to_string().repeat(bytes / number.to_string().len()))
}

/// Children and steps that are large only together.
#[workflow]
async fn large_family(count: usize, bytes: usize) -> Result<(usize, usize)> {
    let calls = (0..count).map(|number| {
        let text = number.to_string();
        echo(text.repeat(bytes / text.len()))
    });
    let mut children = 0;
    for text in join_all(calls).await {
        children += text?.len();
    }
    let calls: Vec<_> = (0..count).map(|number| repeat(number, bytes)).collect();
    let mut steps = 0;
    for text in join_all(calls).await {
        steps += text?.len();
    }
    Ok((children, steps))
}

#[step(undo = release)]
async fn reserve(#[resource] ledger: &Ledger, item: u32) -> Result<u32> {
    ledger.act(&format!("reserve {item}"));
    Ok(item * 10)
}

#[step(backoff = "1ms..2ms")]
async fn release(#[resource] ledger: &Ledger, item: u32, reservation: Option<u32>) -> Result<()> {
    ledger.act(&format!("release {item} {reservation:?}"));
    tokio::time::sleep(Duration::from_millis(3)).await;
    Ok(())
}

#[workflow]
async fn travelling(parts: u32, fails: bool) -> Result<u32> {
    for part in 0..parts {
        reserve(part).await?;
    }
    if fails {
        return Err(Error::fatal("no visa"));
    }
    sleep(Duration::from_secs(3600)).await;
    Ok(parts)
}

#[step(at_most_once)]
async fn ship(#[resource] ledger: &Ledger, millis: u64) -> Result<u32> {
    ledger.act("shipped");
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(1)
}

#[workflow]
async fn shipping(millis: u64) -> Result<String> {
    match ship(millis).await {
        Ok(shipped) => Ok(format!("shipped {shipped}")),
        Err(error) => {
            let interrupted = error.interrupted().ok_or(error)?;
            Ok(format!("interrupted {}", interrupted.attempt()))
        }
    }
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<child>()
        .register::<fan_out>()
        .register::<echo>()
        .register::<large_family>()
        .register::<travelling>()
        .register::<shipping>()
        .cancel_grace(Duration::from_millis(20))
        .evict_after(Duration::from_millis(2))
}

#[tokio::test]
async fn a_thousand_children_at_once_come_back_through_every_stop() {
    const COUNT: usize = 1_000;
    for stop in BOTH {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let run = engine.start(fan_out(COUNT)).key("family").await;
        let run = run.expect("starts").id();
        for far in [1, 300, 900, 1_500, 1_999] {
            until("they are so far", async || {
                disk.ledger.effects().len() >= far
            })
            .await;
            engine = disk.restart(engine, stop).await;
        }
        let run = engine.run::<fan_out>(run).await.expect("is there");
        let sum = COUNT * (COUNT - 1) / 2;
        assert_eq!(run.result().await.expect("ends well"), sum);
        assert_eq!(disk.ledger.effects().len(), 2 * COUNT + 1, "{stop:?}");
        let page = engine.runs().workflow("child").limit(10_000).await;
        assert_eq!(page.expect("lists").runs.len(), COUNT);
        disk.is_sound(engine).await;
    }
}

/// Inputs, ends and outcomes that come together are more than a store takes in one write.
#[tokio::test]
async fn a_family_larger_than_any_write_comes_back_through_every_stop() {
    let (count, bytes) = (70, 1_000_000);
    for stop in BOTH {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let run = engine.start(large_family(count, bytes)).await;
        let run = run.expect("starts").id();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let engine = disk.restart(engine, stop).await;
        until("steps have run", async || !disk.ledger.effects().is_empty()).await;
        let engine = disk.restart(engine, stop).await;
        let run = engine.run::<large_family>(run).await.expect("is there");
        let all = count * bytes;
        assert_eq!(run.result().await.expect("ends well"), (all, all));
        assert_eq!(disk.ledger.effects().len(), count);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn what_a_cancelled_or_failed_run_did_is_undone_once_and_in_reverse_through_every_stop() {
    const PARTS: u32 = 6;
    let undone: Vec<String> = (0..PARTS)
        .rev()
        .map(|part| format!("release {part} {:?}", Some(part * 10)))
        .collect();
    for (stop, fails) in [
        (BOTH[0], false),
        (BOTH[1], false),
        (BOTH[0], true),
        (BOTH[1], true),
    ] {
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let run = engine.start(travelling(PARTS, fails)).await;
        let run = run.expect("starts").id();
        if !fails {
            until_memory_is_empty(&engine).await;
            engine = disk.restart(engine, stop).await;
            engine.cancel(run).reason("ill").await.expect("asks");
        }
        // In the middle of undoing, at another place every time.
        for far in 1..=4 {
            let far = PARTS as usize + far;
            until("it undoes", async || disk.ledger.effects().len() >= far).await;
            engine = disk.restart(engine, stop).await;
        }
        match engine.cancel(run).reason("twice").await {
            Ok(()) | Err(EngineError::Ended(_)) => {}
            Err(error) => panic!("{error}"),
        }
        let handle = engine.run::<travelling>(run).await.expect("is there");
        let error = handle.result().await.expect_err("does not complete");
        match fails {
            true => assert!(matches!(&error, RunError::Failed(_)), "{error}"),
            false => assert!(
                matches!(&error, RunError::Cancelled { reason } if reason == "ill"),
                "{error}"
            ),
        }
        let done = disk.ledger.in_order();
        assert_eq!(done[PARTS as usize..], undone, "{stop:?}");
        let engine = disk.restart(engine, stop).await;
        let expected = match fails {
            true => RunStatus::Failed,
            false => RunStatus::Cancelled,
        };
        assert_eq!(engine.status(run).await.expect("is there"), expected);
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_step_that_runs_at_most_once_is_interrupted_and_never_run_twice() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let long = engine.start(shipping(3_600_000)).await.expect("starts");
        until("it ships", async || disk.ledger.asked() == 1).await;
        let engine = disk.restart(engine, stop).await;
        let long = engine.run::<shipping>(long.id()).await.expect("is there");
        assert_eq!(long.result().await.expect("ends well"), "interrupted 1");
        let short = engine.start(shipping(1)).await.expect("starts").id();
        let engine = disk.restart(engine, Stop::InOrder).await;
        let short = engine.run::<shipping>(short).await.expect("is there");
        let end = short.result().await.expect("ends well");
        assert!(["shipped 1", "interrupted 1"].contains(&&*end), "{end}");
        assert!(disk.ledger.asked() <= 2);
        disk.is_sound(engine).await;
    }
}
