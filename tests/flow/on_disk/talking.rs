//! Signals, hooks and published values of runs that sleep on a disk.

use std::time::Duration;

use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Result, RunError, RunId, Sent, hook, publish, signals,
    sleep, step, wait_for, workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, Stop, until, until_memory_is_empty};

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

#[workflow]
async fn collecting(name: String, count: usize) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    let mut numbers = signals::<u32>("number");
    while seen.len() < count {
        let number = numbers.next().await?;
        act(format!("{name} {number}")).await?;
        seen.push(number);
    }
    Ok(seen)
}

#[workflow]
async fn paying(token: String, count: usize) -> Result<Vec<u64>> {
    let mut payments = hook::<u64>(&token).await?;
    let mut paid = Vec::new();
    while paid.len() < count {
        let cents = payments.next().await?;
        act(format!("paid {cents}")).await?;
        paid.push(cents);
    }
    Ok(paid)
}

#[workflow]
async fn publishing(bytes: usize) -> Result<usize> {
    act("before".to_owned()).await?;
    publish("text", &"x".repeat(bytes));
    wait_for::<()>("go on").await?;
    publish("text", "the last");
    Ok(bytes)
}

/// Sleeps until its letters are many, and hears all of them at once.
#[workflow]
async fn hearing(count: usize) -> Result<usize> {
    sleep(Duration::from_millis(1)).await;
    let mut texts = signals::<String>("text");
    let mut bytes = 0;
    for number in 0..count {
        let text = texts.next().await?;
        assert!(text.starts_with(&format!("{number} ")), "out of order");
        bytes += text.len();
    }
    Ok(bytes)
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<collecting>()
        .register::<paying>()
        .register::<publishing>()
        .register::<hearing>()
        .evict_after(Duration::from_millis(2))
}

#[tokio::test]
async fn signals_to_sleeping_runs_are_heard_once_and_in_order_through_every_stop() {
    const RUNS: usize = 50;
    let disk = Disk::new(engine);
    let mut engine = disk.open().await;
    let mut runs: Vec<RunId> = Vec::new();
    for n in 0..RUNS {
        let call = collecting(format!("run {n}"), 6);
        runs.push(engine.start(call).await.expect("starts").id());
    }
    for number in 0..6_u32 {
        if number % 3 != 1 {
            until_memory_is_empty(&engine).await;
        }
        for run in &runs {
            let sent = engine.signal(*run, "number", &number).key(number).await;
            assert_eq!(sent.expect("sends"), Sent::Accepted);
        }
        // In the middle of being heard.
        engine = disk
            .restart(engine, BOTH[usize::from(number % 2 == 1)])
            .await;
        if number < 5 {
            let again = engine.signal(runs[0], "number", &number).key(number).await;
            assert_eq!(again.expect("is known"), Sent::Duplicate);
        }
    }
    for run in runs {
        let run = engine.run::<collecting>(run).await.expect("is there");
        assert_eq!(run.result().await.expect("ends well"), [0, 1, 2, 3, 4, 5]);
    }
    assert_eq!(disk.ledger.effects().len(), RUNS * 6);
    disk.is_sound(engine).await;
}

#[tokio::test]
async fn a_token_is_held_over_stops_and_free_after_the_end() {
    for stop in BOTH {
        let disk = Disk::new(engine);
        let first = disk.open().await;
        let run = first.start(paying("t".into(), 2)).await.expect("starts");
        until_memory_is_empty(&first).await;
        let second = disk.restart(first, stop).await;
        let other = second.start(paying("t".into(), 1)).await.expect("starts");
        let refused = other.result().await.expect_err("the token is held");
        assert!(refused.to_string().contains(&run.id().to_string()));
        second.signal_token("t", &1_u64).await.expect("sends");
        let third = disk.restart(second, stop).await;
        third.signal_token("t", &2_u64).await.expect("sends");
        let run = third.run::<paying>(run.id()).await.expect("is there");
        assert_eq!(run.result().await.expect("ends well"), [1, 2]);
        let fourth = disk.restart(third, stop).await;
        let late = fourth
            .signal_token("t", &3_u64)
            .await
            .expect_err("is let go");
        assert!(matches!(late, EngineError::NoHook { .. }), "{late}");
        let next = fourth.start(paying("t".into(), 0)).await.expect("starts");
        assert!(next.result().await.expect("takes it").is_empty());
        assert_eq!(disk.ledger.effects().len(), 2);
        disk.is_sound(fourth).await;
    }
}

/// The most that a text may have: beside it, its length takes five bytes.
const MOST: usize = 256 * 1024 - 5;

#[tokio::test]
async fn published_values_of_every_size_up_to_the_limit_are_there_after_every_stop() {
    for (bytes, stop) in [
        (10, BOTH[0]),
        (5_000, BOTH[1]),
        (MOST, BOTH[0]),
        (MOST, BOTH[1]),
    ] {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let run = engine.start(publishing(bytes)).await.expect("starts").id();
        until("it is published", async || {
            let run = engine.run::<publishing>(run).await.expect("is there");
            let text = run.published::<String>("text").await.expect("reads");
            text.is_some_and(|text| text.len() == bytes)
        })
        .await;
        let engine = disk.restart(engine, stop).await;
        let handle = engine.run::<publishing>(run).await.expect("is there");
        let text = handle.published::<String>("text").await.expect("reads");
        assert_eq!(text.map(|text| text.len()), Some(bytes));
        handle.signal("go on", &()).await.expect("sends");
        assert_eq!(handle.result().await.expect("ends well"), bytes);
        let engine = disk.restart(engine, stop).await;
        let handle = engine.run::<publishing>(run).await.expect("is there");
        let text = handle.published::<String>("text").await.expect("reads");
        assert_eq!(text.as_deref(), Some("the last"));
        disk.is_sound(engine).await;
    }
}

#[tokio::test]
async fn a_published_value_above_the_limit_fails_its_run_and_stops_nobody_else() {
    let disk = Disk::new(engine);
    let engine = disk.open().await;
    let other = engine.start(publishing(1)).await.expect("starts").id();
    let run = engine.start(publishing(MOST + 1)).await.expect("starts");
    let error = run.result().await.expect_err("it is too much");
    assert!(matches!(error, RunError::Broken(_)), "{error}");
    for words in ["publish(\"text\")", "262145 bytes", "may take 262144"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let engine = disk.restart(engine, Stop::Dropped).await;
    let again = engine.run::<publishing>(run.id()).await.expect("is there");
    again.result().await.expect_err("it stays failed");
    engine.signal(other, "go on", &()).await.expect("sends");
    let other = engine.run::<publishing>(other).await.expect("is there");
    assert_eq!(other.result().await.expect("ends well"), 1);
    disk.is_sound(engine).await;
}

/// A run that is sent more than a store takes in one write hears all of it.
#[tokio::test]
async fn many_large_signals_are_heard_through_every_stop() {
    const COUNT: usize = 40;
    let text = |number: usize| format!("{number} {}", "x".repeat(1_900_000));
    for stop in BOTH {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let run = engine.start(hearing(COUNT)).await.expect("starts").id();
        engine.signal(run, "text", &text(0)).await.expect("sends");
        let engine = disk.restart(engine, stop).await;
        for number in 1..COUNT {
            let sent = engine.signal(run, "text", &text(number)).await;
            assert_eq!(sent.expect("sends"), Sent::Accepted);
        }
        let engine = disk.restart(engine, stop).await;
        let run = engine.run::<hearing>(run).await.expect("is there");
        let bytes: usize = (0..COUNT).map(|number| text(number).len()).sum();
        assert_eq!(run.result().await.expect("ends well"), bytes);
        disk.is_sound(engine).await;
    }
}

/// What came while the run was paused is taken over at once, and is more than the store takes in one write.
#[tokio::test]
async fn a_mailbox_larger_than_any_write_is_taken_over_in_portions() {
    const COUNT: usize = 70;
    let text = |number: usize| format!("{number} ") + &"x".repeat(1_000_000);
    for stop in BOTH {
        let disk = Disk::new(engine);
        let engine = disk.open().await;
        let run = engine.start(hearing(COUNT)).await.expect("starts").id();
        engine.pause(run).await.expect("pauses");
        for number in 0..COUNT {
            let sent = engine.signal(run, "text", &text(number)).await;
            assert_eq!(sent.expect("sends"), Sent::Accepted);
        }
        let engine = disk.restart(engine, stop).await;
        engine.resume(run).await.expect("resumes");
        let run = engine.run::<hearing>(run).await.expect("is there");
        let bytes: usize = (0..COUNT).map(|number| text(number).len()).sum();
        assert_eq!(run.result().await.expect("ends well"), bytes);
        disk.is_sound(engine).await;
    }
}
