//! Outboxes: messages that are written with a step's outcome, and relayed at least once under one id.

mod crashes;
mod relaying;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use workflow_runtime::store::StoreError;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Message, MessageId, Result, Retention, RunError,
    checkpoint, get_step_metadata, outbox, sleep, step, wait_for, workflow,
};

/// What was received, in order: which message, and what it said.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<(MessageId, String)>>>);

impl Received {
    fn take(&self, message: &Message) -> Result<()> {
        let text = message.decode()?;
        self.0.lock().expect("no panic").push((message.id, text));
        Ok(())
    }

    fn list(&self) -> Vec<(MessageId, String)> {
        self.0.lock().expect("no panic").clone()
    }

    fn texts(&self) -> Vec<String> {
        self.list().into_iter().map(|(_, text)| text).collect()
    }
}

/// Decides anew whenever a body runs.
#[derive(Default)]
struct Draws(AtomicU64);

impl Draws {
    fn draw(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

#[step(max_attempts = 3, backoff = "1ms..2ms")]
async fn ship(#[resource] draws: &Draws, order: u64, fails: u32) -> Result<u64> {
    let draw = draws.draw();
    outbox("mail").push(&format!("order {order} draw {draw}"))?;
    outbox("sms").push("shipped")?;
    outbox("mail").push(&format!("order {order} again"))?;
    tokio::task::yield_now().await;
    match get_step_metadata().attempt <= fails {
        true => Err(Error::new("the truck is late")),
        false => Ok(draw),
    }
}

#[step(blocking)]
fn blocking(order: u64) -> Result<MessageId> {
    outbox("mail").push(&format!("blocking {order}"))
}

#[workflow]
async fn shipping(order: u64, fails: u32) -> Result<u64> {
    ship(order, fails).await
}

#[workflow]
async fn in_a_thread(order: u64) -> Result<MessageId> {
    blocking(order).await
}

/// Pushes by itself, before, between and after waits.
#[workflow]
async fn telling(name: String) -> Result<u64> {
    outbox("mail").push(&format!("{name} begins"))?;
    let draw = ship(1, 0).await?;
    outbox("mail").push(&format!("{name} shipped {draw}"))?;
    wait_for::<()>("go on").await?;
    outbox("mail").push(&format!("{name} ends"))?;
    Ok(draw)
}

#[workflow]
async fn endless(pass: u64) -> Result<u64> {
    outbox("mail").push(&format!("pass {pass}"))?;
    match pass {
        0..3 => checkpoint(&(pass + 1)).await,
        pass => Ok(pass),
    }
}

#[step]
async fn oversized(bytes: usize) -> Result<()> {
    outbox("mail").push(&"x".repeat(bytes))?;
    Ok(())
}

#[workflow]
async fn sending(bytes: usize) -> Result<()> {
    oversized(bytes).await
}

#[workflow]
async fn napping(name: String) -> Result<()> {
    outbox("mail").push(&format!("{name} sleeps"))?;
    sleep(Duration::from_secs(3600)).await;
    outbox("mail").push(&format!("{name} is awake"))?;
    Ok(())
}

fn builder(draws: &Arc<Draws>) -> EngineBuilder {
    Engine::builder()
        .register::<shipping>()
        .register::<in_a_thread>()
        .register::<telling>()
        .register::<endless>()
        .register::<sending>()
        .register::<napping>()
        .resource_arc(draws.clone())
}

/// Has an outbox relayed into a list.
fn relayed(builder: EngineBuilder, name: &str, received: &Received) -> EngineBuilder {
    let received = received.clone();
    builder.outbox(name, move |message| {
        let received = received.clone();
        async move { received.take(&message) }
    })
}

async fn until_empty(engine: &Engine, name: &str) {
    until_empty_within(engine, name, Duration::from_secs(60)).await;
}

async fn until_empty_within(engine: &Engine, name: &str, limit: Duration) {
    let empty = async {
        while engine.outbox(name).pending().await.expect("counts") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let empty = tokio::time::timeout(limit, empty);
    empty.await.expect("everything is relayed");
}

#[tokio::test]
async fn what_a_step_pushed_is_written_with_its_outcome_and_relayed_in_order() {
    let (store, draws, received) = (MemoryStore::new(), Arc::default(), Received::default());
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open_with(store.clone()).await.expect("opens");
    let run = engine.start(shipping(7, 0)).await.expect("starts");
    run.result().await.expect("ends");
    until_empty(&engine, "mail").await;
    assert_eq!(received.texts(), ["order 7 draw 0", "order 7 again"]);
    assert_eq!(engine.outbox("sms").pending().await.expect("counts"), 1);
    let ids: Vec<_> = received.list().into_iter().map(|(id, _)| id).collect();
    assert_ne!(ids[0], ids[1]);
    assert!(ids[0].to_string().starts_with("msg_"));
}

#[tokio::test]
async fn an_outcome_with_messages_is_one_write() {
    let (store, draws) = (MemoryStore::new(), Arc::default());
    let engine = builder(&draws)
        .open_with(store.clone())
        .await
        .expect("opens");
    let before = store.writes();
    let run = engine.start(shipping(7, 0)).await.expect("starts");
    run.result().await.expect("ends");
    assert_eq!(store.writes(), before + 3, "the start, the step, the end");
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 2);
}

#[tokio::test]
async fn what_failed_attempts_pushed_is_dropped_and_the_id_is_the_same() {
    let (draws, received) = (Arc::default(), Received::default());
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(shipping(7, 2)).key("k").await.expect("starts");
    assert_eq!(run.result().await.expect("ends"), 2);
    until_empty(&engine, "mail").await;
    assert_eq!(received.texts(), ["order 7 draw 2", "order 7 again"]);

    let (draws, other) = (Arc::default(), Received::default());
    let engine = relayed(builder(&draws), "mail", &other);
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(shipping(7, 0)).key("k").await.expect("starts");
    run.result().await.expect("ends");
    until_empty(&engine, "mail").await;
    let ids =
        |received: &Received| -> Vec<_> { received.list().into_iter().map(|(id, _)| id).collect() };
    assert_eq!(
        ids(&received),
        ids(&other),
        "of the first attempt and the third"
    );
}

#[tokio::test]
async fn a_step_that_fails_for_good_has_sent_nothing() {
    let draws = Arc::default();
    let engine = builder(&draws).open_in_memory().await.expect("opens");
    let run = engine.start(shipping(7, 9)).await.expect("starts");
    run.result().await.expect_err("fails");
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 0);
}

#[tokio::test]
async fn a_blocking_step_pushes_too() {
    let (draws, received) = (Arc::default(), Received::default());
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(in_a_thread(3)).await.expect("starts");
    let id = run.result().await.expect("ends");
    until_empty(&engine, "mail").await;
    assert_eq!(received.list(), [(id, "blocking 3".to_owned())]);
}

#[tokio::test]
async fn a_workflow_pushes_once_however_often_it_is_replayed() {
    let (draws, received) = (Arc::default(), Received::default());
    let mut store = MemoryStore::new();
    for _ in 0..4 {
        let engine = relayed(builder(&draws), "mail", &received);
        let engine = engine.open_with(store.clone()).await.expect("opens");
        let run = engine
            .start(telling("ada".into()))
            .key("k")
            .await
            .expect("starts");
        let began = async {
            while received.list().len() < 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), began)
            .await
            .expect("is told");
        drop((engine, run));
        store = store.reopen(Surviving::Synced);
    }
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open_with(store.clone()).await.expect("opens");
    let run = engine
        .start(telling("ada".into()))
        .key("k")
        .await
        .expect("starts");
    run.signal("go on", &()).await.expect("sends");
    run.result().await.expect("ends");
    until_empty(&engine, "mail").await;
    assert_eq!(
        received.texts(),
        [
            "ada begins",
            "order 1 draw 0",
            "order 1 again",
            "ada shipped 0",
            "ada ends"
        ]
    );
    let journal = engine.journal(run.id()).await.expect("reads").to_string();
    let first = received.list()[0].0;
    assert!(
        journal.contains(&format!("✎ mail             {first} pushed")),
        "{journal}"
    );
}

#[tokio::test]
async fn each_pass_of_an_endless_workflow_has_messages_of_its_own() {
    let (draws, received) = (Arc::default(), Received::default());
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(endless(0)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends"), 3);
    until_empty(&engine, "mail").await;
    assert_eq!(received.texts(), ["pass 0", "pass 1", "pass 2", "pass 3"]);
    let ids: std::collections::HashSet<_> = received.list().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn a_fork_does_not_send_again_what_its_origin_sent() {
    let (draws, received) = (Arc::default(), Received::default());
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(telling("ada".into())).await.expect("starts");
    run.signal("go on", &()).await.expect("sends");
    run.result().await.expect("ends");
    let fork = run.fork().await.expect("is forked");
    fork.result().await.expect("ends");
    until_empty(&engine, "mail").await;
    assert_eq!(received.list().len(), 5, "{:?}", received.texts());
    // From the beginning: all of it is the fork's own, under ids of its own.
    let fork = run.fork().at(1).await.expect("is forked");
    fork.signal("go on", &()).await.expect("sends");
    fork.result().await.expect("ends");
    until_empty(&engine, "mail").await;
    let ids: std::collections::HashSet<_> = received.list().into_iter().map(|(id, _)| id).collect();
    assert_eq!((received.list().len(), ids.len()), (10, 10));
}

#[tokio::test]
async fn a_message_that_is_too_large_or_has_no_outbox_fails_its_step_for_good() {
    let draws = Arc::default();
    let engine = builder(&draws).open_in_memory().await.expect("opens");
    let run = engine.start(sending(240 * 1024 - 8)).await.expect("starts");
    run.result().await.expect("fits");
    let run = engine.start(sending(240 * 1024)).await.expect("starts");
    let Err(RunError::Failed(error)) = run.result().await else {
        panic!("it is too large");
    };
    let text = format!("{error:#}");
    assert!(error.is_fatal(), "{text}");
    assert!(
        text.contains("push where the rest is kept") && text.contains("outbox/mod.rs"),
        "{text}"
    );
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 1);
}

#[tokio::test]
async fn outside_of_a_run_there_is_nothing_to_push_with() {
    let pushed = std::panic::catch_unwind(|| outbox("mail").push("hello"));
    let panic = pushed.expect_err("refused");
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.contains("outside a workflow and its steps"), "{text}");
    oversized(3)
        .direct()
        .await
        .expect("a bare body pushes into nothing");
    oversized(300 * 1024)
        .direct()
        .await
        .expect_err("too large all the same");
}

#[tokio::test]
async fn messages_outlive_their_run_and_wait_for_a_relay() {
    let (draws, received) = (Arc::default(), Received::default());
    let store = MemoryStore::new();
    let engine = builder(&draws)
        .retention(Retention::of(Duration::ZERO))
        .open_with(store.clone())
        .await
        .expect("opens");
    for order in 0..5 {
        let run = engine.start(shipping(order, 0)).await.expect("starts");
        run.result().await.expect("ends");
    }
    assert_eq!(engine.sweep().await.expect("deletes"), 5);
    engine.shutdown().await.expect("stops");
    let engine = builder(&draws)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 10);
    let list = received.clone();
    let relayed = engine.outbox("mail").relay(move |message| {
        let list = list.clone();
        async move { list.take(&message) }
    });
    relayed.expect("is relayed");
    let twice = engine.outbox("mail").relay(|_| async { Ok(()) });
    assert!(
        twice
            .expect_err("has a handler")
            .to_string()
            .contains("relayed already")
    );
    until_empty(&engine, "mail").await;
    assert_eq!(received.list().len(), 10);
}

#[tokio::test]
async fn a_run_that_sleeps_sends_what_it_has_to_say_when_it_is_time() {
    let (draws, received) = (Arc::<Draws>::default(), Received::default());
    let engine = TestEngine::builder()
        .configure(|_| relayed(builder(&draws), "mail", &received))
        .open()
        .await
        .expect("opens");
    let run = engine.start(napping("ada".into())).await.expect("starts");
    engine.advance(Duration::from_secs(60)).await;
    assert_eq!(received.texts(), ["ada sleeps"]);
    assert_eq!(engine.runs_in_memory(), 0, "it sleeps");
    run.result().await.expect("ends");
    engine.advance(Duration::from_secs(1)).await;
    assert_eq!(received.texts(), ["ada sleeps", "ada is awake"]);
}

#[tokio::test]
async fn on_a_disk_messages_are_relayed_by_whichever_process_comes_next() {
    let dir = tempfile::tempdir().expect("a directory");
    let (draws, received) = (Arc::default(), Received::default());
    let engine = builder(&draws)
        .open(dir.path().join("db"))
        .await
        .expect("opens");
    for order in 0..20 {
        let run = engine.start(shipping(order, 0)).await.expect("starts");
        run.result().await.expect("ends");
    }
    engine.shutdown().await.expect("stops");
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open(dir.path().join("db")).await.expect("opens");
    until_empty(&engine, "mail").await;
    engine.shutdown().await.expect("stops");
    let texts = received.texts();
    assert_eq!(texts.len(), 40);
    for order in 0..20 {
        let of: Vec<_> = texts
            .iter()
            .filter(|text| text.starts_with(&format!("order {order} ")))
            .collect();
        assert!(
            of.len() == 2 && of[0].contains("draw") && of[1].contains("again"),
            "{of:?}"
        );
    }
    let engine = relayed(builder(&draws), "mail", &received);
    let engine = engine.open(dir.path().join("db")).await.expect("opens");
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 0);
    engine.shutdown().await.expect("stops");
    assert_eq!(received.list().len(), 40, "what was taken is gone for good");
}

#[tokio::test]
async fn on_a_disk_a_message_whose_handler_died_with_its_process_comes_again_under_its_id() {
    let dir = tempfile::tempdir().expect("a directory");
    let (draws, taken) = (Arc::default(), Received::default());
    let (list, told) = (taken.clone(), Arc::new(Notify::new()));
    let begun = told.clone();
    let engine = builder(&draws).outbox("mail", move |message| {
        let noted = list.take(&message);
        begun.notify_one();
        async move {
            noted?;
            std::future::pending().await
        }
    });
    let engine = engine.open(dir.path().join("db")).await.expect("opens");
    let run = engine.start(shipping(7, 0)).await.expect("starts");
    run.result().await.expect("ends");
    tokio::time::timeout(Duration::from_secs(30), told.notified())
        .await
        .expect("is handed over");
    drop(engine);
    let received = Received::default();
    let began = std::time::Instant::now();
    let engine = loop {
        let engine = relayed(builder(&draws), "mail", &received);
        match engine.open(dir.path().join("db")).await {
            Ok(engine) => break engine,
            Err(EngineError::Store(StoreError::InUse { .. }))
                if began.elapsed() < Duration::from_secs(10) =>
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    };
    until_empty(&engine, "mail").await;
    assert_eq!(taken.list(), received.list()[..1]);
    assert_eq!(received.texts(), ["order 7 draw 0", "order 7 again"]);
    engine.shutdown().await.expect("stops");
}
