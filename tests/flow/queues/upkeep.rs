//! Queues that are changed in use, misused, or cannot be read.

use super::*;

#[tokio::test]
async fn a_queue_is_changed_in_use_and_its_declaration_wins_only_when_it_changes() {
    let (shop, ledger) = (Workshop::new(0), Ledger::shared());
    let store = MemoryStore::new();
    let first = engine(&shop, &ledger, mail().concurrency(1));
    let first = first.open_with(store.clone()).await.expect("opens");
    for number in 0..4 {
        put(&first, number).await;
    }
    until("one goes on", async || counts(&first).await == (3, 1)).await;
    let queue = first.queue("mail");
    queue
        .set(|queue| queue.concurrency(3))
        .await
        .expect("is set");
    until("three go on", async || counts(&first).await == (1, 3)).await;
    queue.pause().await.expect("is paused");
    drop(first);

    let store = store.reopen(Surviving::Synced);
    let second = engine(&shop, &ledger, mail().concurrency(1));
    let second = second.open_with(store.clone()).await.expect("opens");
    let described = second.queue("mail").describe().await.expect("is there");
    assert_eq!((described.concurrency, described.paused), (Some(3), true));
    drop(second);

    let store = store.reopen(Surviving::Synced);
    let third = engine(&shop, &ledger, mail().concurrency(2).per_key(7));
    let third = third.open_with(store.clone()).await.expect("opens");
    let described = third.queue("mail").describe().await.expect("is there");
    assert_eq!(
        (described.concurrency, described.per_key),
        (Some(2), Some(7))
    );
    assert!(described.paused, "a pause is not declared");
    assert_eq!((described.waiting, described.running), (1, 3));
    shop.gate.add_permits(10);
    until("those that had begun end", async || {
        counts(&third).await == (1, 0)
    })
    .await;
    third.queue("mail").resume().await.expect("is resumed");
    until("all have ended", async || counts(&third).await == (0, 0)).await;
}

#[tokio::test]
async fn whoever_waits_for_a_queued_run_is_told_when_the_engine_stops() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail());
    let engine = builder.open_in_memory().await.expect("opens");
    engine.queue("mail").pause().await.expect("is paused");
    let run = put(&engine, "waits").await;
    let waiting = tokio::spawn(async move { run.result().await });
    tokio::time::sleep(Duration::from_millis(5)).await;
    let began = Instant::now();
    engine.shutdown().await.expect("stops");
    let result = waiting.await.expect("no panic");
    assert!(matches!(result, Err(RunError::Engine(_))), "{result:?}");
    assert!(
        began.elapsed() < Duration::from_millis(800),
        "only by looking again"
    );
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_is_reported_and_stops_no_other() {
    for (space, part) in [(0x50, None), (0x52, Some("entry")), (0x54, Some("slot"))] {
        let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
        let store = MemoryStore::new();
        let parts: Vec<&[u8]> = ["default", "broken"]
            .into_iter()
            .chain(part)
            .map(str::as_bytes)
            .collect();
        let builder = engine(&shop, &ledger, mail()).queue(Queue::named("broken"));
        let first = builder.open_with(store.clone()).await.expect("opens");
        first.shutdown().await.expect("stops");
        let store = store.reopen(Surviving::Synced);
        let mut garbage = Commit::default();
        garbage.changes.notes.push(NoteChange {
            key: NoteKey::new(space, &parts),
            value: Some(vec![1, 200].into()),
        });
        store.commit(garbage).await.expect("writes");
        let builder = engine(&shop, &ledger, mail());
        let engine = builder.open_with(store.clone()).await.expect("opens");
        for number in 0..3 {
            let run = put(&engine, number).await;
            run.result().await.expect("the other queue goes on");
        }
        let warnings = engine.warnings();
        assert_eq!(warnings.len(), 1, "once: {warnings:?}");
        let text = warnings[0].to_string();
        assert!(text.contains("queue `broken` is not served"), "{text}");
    }
}

#[tokio::test]
async fn what_a_queue_cannot_do_is_refused_with_the_way_out() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = || engine(&shop, &ledger, mail());
    let engine = builder().open_in_memory().await.expect("opens");
    let start = || engine.start(call("x", "ada"));
    let second = Duration::from_secs(1);
    for (refused, words) in [
        (
            start().queue("post").await.err(),
            "`.queue(Queue::named(\"post\"))`",
        ),
        (start().priority(1).await.err(), "add `.queue("),
        (start().queue_key("k").await.err(), "add `.queue("),
        (start().delay(second).await.err(), "add `.queue("),
        (start().debounce("k", second).await.err(), "add `.queue("),
        (
            start().queue("post").debounce("k", second).await.err(),
            "not declared",
        ),
        (
            start()
                .queue("mail")
                .key("a")
                .debounce("k", second)
                .await
                .err(),
            "leave `.key(..)`",
        ),
        (
            start()
                .queue("mail")
                .delay(second)
                .debounce("k", second)
                .await
                .err(),
            "`.delay(..)` out",
        ),
        (engine.queue("post").pause().await.err(), "not declared"),
        (engine.queue("post").describe().await.err(), "not declared"),
        (
            engine
                .queue("mail")
                .set(|queue| queue.concurrency(0))
                .await
                .err(),
            "pause it",
        ),
        (
            engine
                .queue("mail")
                .set(|_| Queue::named("post"))
                .await
                .err(),
            "renamed",
        ),
    ] {
        let error = refused.expect(words);
        assert!(matches!(error, EngineError::Queue { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error} says {words}");
    }
    let key = start().queue("mail").queue_key("").await;
    assert!(matches!(key, Err(EngineError::Key(_))), "{key:?}");
    for (queue, words) in [
        (mail(), "`mail` is declared twice"),
        (Queue::named(""), "cannot be empty"),
        (Queue::named("b").concurrency(0), "pause it"),
        (Queue::named("b").per_key(0), "pause it"),
        (Queue::named("b").rate(0, second), "pause it"),
        (Queue::named("b").rate(1, Duration::ZERO), "cannot be zero"),
        (Queue::named("b").lease(Duration::ZERO), "cannot be zero"),
    ] {
        let error = builder()
            .queue(queue)
            .open_in_memory()
            .await
            .err()
            .expect(words);
        assert!(error.to_string().contains(words), "{error} says {words}");
    }
    engine
        .queue("new")
        .set(|queue| queue.concurrency(1))
        .await
        .expect("is made");
    let run = start().queue("new").await.expect("is queued");
    run.result().await.expect("ends well");
}
