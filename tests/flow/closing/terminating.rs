//! Terminating: at any moment, at once, and nobody who waits for the run hangs.

use super::*;

#[tokio::test]
async fn two_at_once_end_the_run_once_and_nobody_hangs() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("slow".into())).await.expect("starts");
    settle().await;
    let all = async {
        join!(
            engine.terminate(run.id()).into_future(),
            engine.terminate(run.id()).into_future(),
            run.result(),
            run.result(),
        )
    };
    let (one, two, first, second) = timeout(LONG, all).await.expect("does not hang");
    let ended = |it: Result<(), EngineError>| match it {
        Ok(()) => 1,
        Err(EngineError::Ended(_)) => 0,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(ended(one) + ended(two), 1);
    for result in [first, second] {
        let error = result.expect_err("terminated");
        assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_store_that_fails_answers_everybody() {
    for fault in [Fault::FailWrite, Fault::FailSync] {
        let ledger = Ledger::shared();
        let store = MemoryStore::new();
        let engine = engine(&ledger).open_with(store.clone()).await;
        let engine = engine.expect("opens");
        let run = engine.start(story("slow".into())).await.expect("starts");
        settle().await;
        store.set_faults(FaultPlan::at(store.writes(), fault));
        let all = async { join!(engine.terminate(run.id()).into_future(), run.result()) };
        let (terminated, result) = timeout(LONG, all).await.expect("does not hang");
        terminated.expect_err("the store failed");
        let error = result.expect_err("the store failed");
        assert!(matches!(error, RunError::Engine(_)), "{error}");
    }
}

#[tokio::test]
async fn one_that_is_given_up_midway_leaves_the_run_to_the_next() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let run = engine.start(story("slow".into())).await.expect("starts");
    settle().await;
    store.hold();
    let given_up = engine.terminate(run.id()).into_future();
    let given_up = timeout(Duration::from_millis(20), given_up).await;
    given_up.expect_err("the store is slow");
    store.release();
    let again = timeout(LONG, engine.terminate(run.id()).into_future()).await;
    let again = again.expect("does not hang");
    assert!(
        matches!(again, Ok(()) | Err(EngineError::Ended(_))),
        "{again:?}"
    );
    let error = timeout(LONG, run.result()).await.expect("does not hang");
    let error = error.expect_err("terminated");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
}

static ENTERED: AtomicUsize = AtomicUsize::new(0);

#[workflow]
async fn napper() -> Result<()> {
    ENTERED.fetch_add(1, Ordering::Relaxed);
    sleep(Duration::from_millis(60)).await;
    Ok(())
}

#[tokio::test]
async fn the_timer_of_a_sleeping_run_that_was_ended_wakes_nobody() {
    let builder = Engine::builder()
        .register::<napper>()
        .evict_after(Duration::from_millis(1));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(napper()).await.expect("starts");
    let began = std::time::Instant::now();
    while engine.runs_in_memory() > 0 {
        assert!(began.elapsed() < LONG, "it does not sleep");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.terminate(run.id()).await.expect("ends");
    tokio::time::sleep(Duration::from_millis(120)).await;
    assert_eq!(ENTERED.load(Ordering::Relaxed), 1, "its code ran again");
    let error = run.result().await.expect_err("terminated");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
}

#[tokio::test]
async fn parked_runs_end_too() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("tools".into())).await.expect("starts");
    run.result().await.expect_err("is parked");
    engine.terminate(run.id()).await.expect("ends");
    let error = run.result().await.expect_err("terminated");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn at_any_moment_of_runs_that_come_and_go_nobody_hangs() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger).evict_after(Duration::from_millis(1));
    let engine = builder.open_in_memory().await.expect("opens");
    let mut tasks = Vec::new();
    for number in 0..120_u64 {
        let engine = engine.clone();
        tasks.push(tokio::spawn(async move {
            let run = engine.start(story("wait".into())).await.expect("starts");
            let waiting = tokio::spawn({
                let run = run.clone();
                async move { run.result().await }
            });
            tokio::time::sleep(Duration::from_micros(number * 47 % 4_000)).await;
            if number % 3 == 0 {
                let _ = run.cancel().await;
            }
            match engine.terminate(run.id()).await {
                Ok(()) | Err(EngineError::Ended(_)) => {}
                Err(error) => panic!("{error}"),
            }
            for result in [run.result().await, waiting.await.expect("no panic")] {
                let error = result.expect_err("ended");
                assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
            }
        }));
    }
    for task in tasks {
        let ended = timeout(LONG, task).await.expect("does not hang");
        ended.expect("no panic");
    }
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
}
