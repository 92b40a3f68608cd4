//! Virtual time: it jumps, it is the same in every run of a test, and nothing really sleeps.

use std::time::{Duration, SystemTime};

use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Error, Result, RunStatus, get_step_metadata, now, sleep, step, timeout, wait_for, workflow,
};

const DAY: Duration = Duration::from_secs(86_400);

#[step(max_attempts = 3, backoff = "1h..2h")]
async fn flaky() -> Result<u32> {
    match get_step_metadata().attempt {
        3 => Ok(3),
        attempt => Err(Error::new(format!("attempt {attempt}"))),
    }
}

#[step]
async fn slow() -> Result<()> {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Ok(())
}

#[step(timeout = "1m", max_attempts = 1)]
async fn hanging() -> Result<()> {
    std::future::pending().await
}

#[workflow]
async fn monthly() -> Result<SystemTime> {
    for _ in 0..12 {
        sleep(30 * DAY).await;
    }
    Ok(now())
}

#[workflow]
async fn everything() -> Result<(u32, bool, bool)> {
    let attempts = flaky().await?;
    slow().await?;
    sleep(DAY).await;
    let hung = hanging().await.is_err();
    let waited = timeout(7 * DAY, wait_for::<u32>("never")).await.is_err();
    Ok((attempts, hung, waited))
}

#[tokio::test]
async fn a_workflow_that_sleeps_for_a_year_ends_at_once() {
    let engine = TestEngine::builder()
        .register::<monthly>()
        .open()
        .await
        .unwrap();
    let began = engine.now();
    let run = engine.start(monthly()).await.unwrap();
    let ended = run.result().await.unwrap();
    assert_eq!(ended, began + 360 * DAY);
    assert_eq!(engine.elapsed(), 360 * DAY);
}

#[tokio::test]
async fn retries_slow_steps_and_timeouts_take_no_time_either() {
    let engine = TestEngine::builder()
        .register::<everything>()
        .open()
        .await
        .unwrap();
    let run = engine.start(everything()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (3, true, true));
    assert!(engine.elapsed() >= 8 * DAY + Duration::from_secs(3 * 3600));
    assert!(engine.elapsed() < 9 * DAY);
}

#[tokio::test]
async fn time_that_is_advanced_by_hand_stops_where_it_was_told() {
    let engine = TestEngine::builder()
        .register::<monthly>()
        .open()
        .await
        .unwrap();
    let run = engine.start(monthly()).await.unwrap();
    engine.advance(359 * DAY).await;
    assert!(
        matches!(run.status().await.unwrap(), RunStatus::Active),
        "{:?}",
        run.status().await
    );
    assert_eq!(engine.elapsed(), 359 * DAY);
    engine.advance(DAY).await;
    assert!(
        matches!(run.status().await.unwrap(), RunStatus::Completed),
        "{:?}",
        run.status().await
    );
}

/// One whole life of an engine: the frames of all that it wrote.
async fn frames(seed: u64) -> Vec<String> {
    let engine = TestEngine::builder()
        .register::<everything>()
        .register::<monthly>()
        .seed(seed)
        .open()
        .await
        .unwrap();
    let (first, second) = (engine.start(everything()), engine.start(monthly()));
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    first.result().await.unwrap();
    second.result().await.unwrap();
    let mut frames = Vec::new();
    for run in [first.id(), second.id()] {
        let journal = engine.journal(run).await.unwrap();
        frames.push(format!("{run} {journal:?}"));
    }
    frames
}

#[test]
fn the_same_seed_gives_the_same_journals_and_another_seed_others() {
    let live = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(frames(seed))
    };
    assert_eq!(live(1), live(1));
    assert_ne!(live(1), live(2));
}

#[workflow]
async fn tick() -> Result<SystemTime> {
    Ok(now())
}

#[tokio::test]
async fn a_schedule_ticks_in_virtual_time() {
    let engine = TestEngine::builder()
        .register::<tick>()
        .open()
        .await
        .unwrap();
    let daily = engine.schedule("daily", tick()).cron("0 9 * * *");
    daily.await.unwrap();
    engine.advance(10 * DAY).await;
    let runs = engine.runs().limit(100).await.unwrap();
    assert_eq!(runs.runs.len(), 10, "one run for each morning");
}

#[tokio::test]
async fn a_clock_that_is_turned_back_wakes_nothing_early() {
    let engine = TestEngine::builder()
        .register::<monthly>()
        .open()
        .await
        .unwrap();
    let began = engine.now();
    let run = engine.start(monthly()).await.unwrap();
    engine.advance(15 * DAY).await;
    engine.turn_back(3 * DAY);
    engine.advance(17 * DAY).await;
    assert_eq!(engine.now(), began + 29 * DAY);
    let fired = |journal: &workflow_runtime::journal::Journal| {
        let events = journal.records().iter().map(|record| &record.event);
        events
            .filter(|event| matches!(event, workflow_runtime::journal::Event::TimerFired(_)))
            .count()
    };
    assert_eq!(fired(&engine.journal(run.id()).await.unwrap()), 0);
    engine.advance(DAY).await;
    assert_eq!(fired(&engine.journal(run.id()).await.unwrap()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_whose_time_cannot_be_paused_is_refused() {
    let refused = TestEngine::builder().register::<monthly>().open().await;
    let Err(error) = refused else {
        panic!("it must be refused")
    };
    assert!(
        error
            .to_string()
            .contains("`#[tokio::test]` without `flavor`"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn two_engines_in_a_test_that_paused_time_itself_share_it() {
    let first = TestEngine::builder()
        .register::<monthly>()
        .open()
        .await
        .unwrap();
    let second = TestEngine::builder()
        .register::<monthly>()
        .open()
        .await
        .unwrap();
    let run = first.start(monthly()).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(second.elapsed(), first.elapsed());
}

#[step(max_attempts = 4, backoff = "1ms..7ms")]
async fn uneven(n: u64) -> Result<u64> {
    tokio::time::sleep(Duration::from_micros(137 * n)).await;
    match get_step_metadata().attempt {
        1 | 2 => Err(Error::new("again")),
        _ => Ok(n),
    }
}

/// Waits that are no whole milliseconds.
#[workflow]
async fn unevenly() -> Result<SystemTime> {
    for n in 1..12_u64 {
        uneven(n).await?;
        sleep(Duration::from_micros(311 * n)).await;
    }
    Ok(now())
}

/// Tokio counts milliseconds from the beginning of a runtime. How much real time passes between that and the opening of the
/// engine must not be seen.
#[test]
fn a_seed_has_the_same_times_however_long_its_runtime_went_before() {
    let journal = |micros: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_micros(micros) {
                std::hint::spin_loop();
            }
            let engine = TestEngine::builder().register::<unevenly>().seed(7);
            let engine = engine.open().await.unwrap();
            let run = engine.start(unevenly()).await.unwrap();
            run.result().await.unwrap();
            format!("{:?}", engine.journal(run.id()).await.unwrap())
        })
    };
    let first = journal(0);
    for delay in (0..2_000).step_by(83) {
        assert_eq!(journal(delay), first, "after {delay} µs");
    }
}
