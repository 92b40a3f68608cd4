//! What belongs to a line: tokens, published values, children, the parent, a place in a queue, a schedule.

use workflow_runtime::{CatchUp, Overlap, Queue, RunError, hook, publish, start_child};

use super::*;

/// Takes one payment in each of its runs, under one token.
#[workflow]
async fn paying(paid: Vec<u64>) -> Result<Vec<u64>> {
    let mut payments = hook::<u64>("order-7").await?;
    let mut paid = paid;
    paid.push(payments.next().await?);
    if paid.len() == 3 {
        return Ok(paid);
    }
    continue_as_new(paying(paid)).await
}

/// Has a token and never asks for it again.
#[workflow]
async fn forgetful(at: u32) -> Result<()> {
    if at == 0 {
        let _held = hook::<u64>("kept").await?;
        continue_as_new(forgetful(1)).await
    }
    wait_for::<()>("end").await
}

#[workflow]
async fn telling(at: u32) -> Result<u32> {
    if at < 3 {
        publish("at", &at);
    }
    if at == 0 {
        publish("once", "said in the first run");
    }
    wait_for::<()>("on").await?;
    match at {
        3 => Ok(at),
        _ => continue_as_new(telling(at + 1)).await,
    }
}

#[workflow]
async fn child() -> Result<()> {
    wait_for::<()>("end").await
}

/// Starts a child in its first run, and waits in the second.
#[workflow]
async fn starting(at: u32) -> Result<()> {
    if at == 0 {
        start_child(child());
        continue_as_new(starting(1)).await
    }
    wait_for::<()>("end").await
}

#[workflow]
async fn parent() -> Result<Vec<String>> {
    let heard = listening(Vec::new(), 3).await?;
    act("parent".into()).await?;
    Ok(heard)
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    super::engine(ledger)
        .register::<paying>()
        .register::<forgetful>()
        .register::<telling>()
        .register::<child>()
        .register::<starting>()
        .register::<parent>()
}

/// The one run of a workflow that has not ended.
async fn the_one(engine: &Engine, workflow: &str) -> RunId {
    let active = engine.runs().workflow(workflow).state(StateKind::Active);
    let runs = active.await.expect("lists").runs;
    assert_eq!(runs.len(), 1);
    runs[0].run
}

#[tokio::test]
async fn a_token_goes_with_the_line() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(paying(Vec::new())).await.expect("starts");
    for cents in [5, 6, 7] {
        until("somebody holds it", async || {
            match engine.signal_token("order-7", &cents).await {
                Ok(_) => true,
                Err(EngineError::NoHook { .. }) => {
                    assert_eq!(cents, 5, "it is never let go in between");
                    false
                }
                Err(error) => panic!("{error}"),
            }
        })
        .await;
    }
    assert_eq!(run.result().await.expect("ends well"), [5, 6, 7]);
    let late = engine.signal_token("order-7", &8).await;
    assert!(matches!(late, Err(EngineError::NoHook { .. })), "let go");
}

#[tokio::test]
async fn a_token_is_held_until_the_line_ends_also_if_nobody_asks_for_it_again() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(forgetful(0)).await.expect("starts");
    until_line(&engine, run.id(), 1).await;
    engine.signal_token("kept", &1_u64).await.expect("is held");
    run.signal("end", &()).await.expect("sends");
    run.result().await.expect("ends well");
    let late = engine.signal_token("kept", &2_u64).await;
    assert!(matches!(late, Err(EngineError::NoHook { .. })), "let go");
}

#[tokio::test]
async fn what_was_published_is_there_for_whoever_holds_any_id() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(telling(0)).await.expect("starts");
    let mut watch = run.watch::<u32>("at");
    for at in 0..3 {
        assert_eq!(watch.changed().await.expect("reads"), Some(at));
        run.signal("on", &()).await.expect("sends");
    }
    let line = until_line(&engine, run.id(), 3).await;
    let last = engine.run::<telling>(line.run).await.expect("is there");
    for handle in [&run, &last] {
        assert_eq!(handle.published("at").await.expect("reads"), Some(2));
        let once = handle.published::<String>("once").await.expect("reads");
        assert_eq!(once.as_deref(), Some("said in the first run"));
    }
    run.signal("on", &()).await.expect("sends");
    assert_eq!(watch.changed().await.expect("reads"), None, "it has ended");
    assert_eq!(run.result().await.expect("ends well"), 3);
}

#[tokio::test]
async fn a_started_child_is_cancelled_with_the_line_and_its_end_does_no_harm() {
    for how in ["cancel", "terminate", "end"] {
        let ledger = Ledger::shared();
        let store = MemoryStore::new();
        let first = engine(&ledger).open_with(store.clone()).await;
        let first = first.expect("opens");
        let run = first.start(starting(0)).await.expect("starts").id();
        until_line(&first, run, 1).await;
        let small = the_one(&first, "child").await;
        drop(first);
        let store = store.reopen(Surviving::Synced);
        let second = engine(&ledger).open_with(store).await.expect("opens");
        let handle = second.run::<starting>(run).await.expect("is there");
        match how {
            "cancel" => handle.cancel().await.expect("asks"),
            "terminate" => second.terminate(run).await.expect("ends it"),
            _ => {
                second.signal(small, "end", &()).await.expect("sends");
                let small = second.run::<child>(small).await.expect("is there");
                small.result().await.expect("ends well");
                handle.signal("end", &()).await.expect("sends");
                handle.result().await.expect("ends well");
                continue;
            }
        }
        handle.result().await.expect_err("was stopped");
        let small = second.run::<child>(small).await.expect("is there");
        let error = small.result().await.expect_err("was cancelled");
        assert!(
            matches!(error, RunError::Cancelled { .. }),
            "{how}: {error}"
        );
    }
}

#[tokio::test]
async fn a_parent_waits_for_the_last_run_of_its_childs_line() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(parent()).await.expect("starts");
    for text in ["a", "b", "c"] {
        until("the child waits", async || {
            let listed = engine.runs().workflow("listening").await;
            !listed.expect("lists").runs.is_empty()
        })
        .await;
        let listed = engine.runs().workflow("listening").await;
        let oldest = listed.expect("lists").runs.pop().expect("is there");
        engine
            .signal(oldest.run, "text", text)
            .await
            .expect("sends");
    }
    assert_eq!(run.result().await.expect("ends well"), ["a", "b", "c"]);
    assert_eq!(ledger.effects().len(), 4);
}

#[tokio::test]
async fn a_cancelled_parent_cancels_the_newest_run_of_its_childs_line() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(parent()).await.expect("starts");
    until("the child waits", async || {
        let listed = engine.runs().workflow("listening").await;
        !listed.expect("lists").runs.is_empty()
    })
    .await;
    let first = the_one(&engine, "listening").await;
    engine.signal(first, "text", "a").await.expect("sends");
    let line = until_line(&engine, first, 1).await;
    run.cancel().await.expect("asks");
    run.result().await.expect_err("was cancelled");
    until("the child is cancelled too", async || {
        engine.status(line.newest).await.expect("reads") == RunStatus::Cancelled
    })
    .await;
}

#[tokio::test]
async fn a_line_keeps_its_slot_in_a_queue_until_it_ends() {
    let ledger = Ledger::shared();
    let queue = Queue::named("one").concurrency(1);
    let builder = engine(&ledger).queue(queue);
    let engine = builder.open_in_memory().await.expect("opens");
    let long = engine.start(listening(Vec::new(), 3)).queue("one").await;
    let long = long.expect("is queued");
    let next = engine.start(living(7, 7)).queue("one").await;
    let next = next.expect("is queued");
    for (at, text) in [(1, "a"), (2, "b")] {
        long.signal("text", text).await.expect("sends");
        until_line(&engine, long.id(), at).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let one = engine.queue("one").describe().await.expect("is there");
        assert_eq!((one.running, one.waiting), (1, 1), "{at}");
        assert!(!ledger.effects().contains(&"life 7".to_owned()), "{at}");
    }
    long.signal("text", "c").await.expect("sends");
    assert_eq!(next.result().await.expect("ends well"), 7);
}

#[tokio::test]
async fn a_schedule_sees_that_the_line_of_its_last_tick_goes_on() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let schedule = engine
        .schedule("often", listening(Vec::new(), 9))
        .every(Duration::from_millis(100))
        .overlap(Overlap::Skip)
        .catch_up(CatchUp::None)
        .await;
    let schedule = schedule.expect("is declared");
    until("a tick was started", async || {
        let runs = engine.runs().await.expect("lists").runs;
        !runs.is_empty()
    })
    .await;
    let first = the_one(&engine, "listening").await;
    engine.signal(first, "text", "a").await.expect("sends");
    let line = until_line(&engine, first, 1).await;
    let skipped = || async { schedule.describe().await.expect("is there").skipped };
    let before = skipped().await;
    until("more ticks are skipped", async || {
        skipped().await > before + 2
    })
    .await;
    let described = schedule.describe().await.expect("is there");
    assert_eq!(described.last_run, Some(first));
    assert_eq!(the_one(&engine, "listening").await, line.newest);
}
