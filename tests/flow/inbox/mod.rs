//! Inboxes: each event of an at-least-once source is acted on once.

mod batches;
mod crashes;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use workflow_runtime::idempotency::{KeyInbox, OnceError};
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{Store, StoreError};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Accepted, Delivery, Engine, EngineBuilder, EngineError, Error, Inbox, InboxError, Queue,
    Result, hook, step, wait_for, workflow,
};
use workflow_tests::Ledger;

const DAY: Duration = Duration::from_secs(86_400);

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

#[workflow]
async fn fulfil(order: u64) -> Result<u64> {
    act(format!("order {order}")).await?;
    Ok(order)
}

/// Takes payments until there is one of 0.
#[workflow]
async fn gather() -> Result<Vec<u64>> {
    let mut payments = Vec::new();
    loop {
        match wait_for::<u64>("payment").await? {
            0 => return Ok(payments),
            payment => payments.push(payment),
        }
    }
}

#[workflow]
async fn waiting() -> Result<()> {
    wait_for("never").await
}

#[workflow]
async fn called_back(token: String) -> Result<u64> {
    let mut callback = hook::<u64>(&token).await?;
    callback.next().await
}

#[workflow]
async fn stranger() -> Result<()> {
    Ok(())
}

fn builder(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<fulfil>()
        .register::<gather>()
        .register::<waiting>()
        .register::<called_back>()
        .queue(Queue::named("slow").concurrency(1))
        .resource_arc(ledger.clone())
}

async fn open(store: &MemoryStore, ledger: &Arc<Ledger>) -> Engine {
    let engine = builder(ledger).open_with(store.clone()).await;
    engine.expect("opens")
}

/// Opens a store on a disk. A process that was dropped lets go of it when its last task has ended.
async fn open_on(dir: &Path, ledger: &Arc<Ledger>) -> Engine {
    let began = Instant::now();
    loop {
        match builder(ledger).open(dir.join("db")).await {
            Ok(engine) => return engine,
            Err(EngineError::Store(StoreError::InUse { .. }))
                if began.elapsed() < Duration::from_secs(10) =>
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn assert_duplicate(answer: Accepted, first: Accepted) {
    assert_eq!(first.delivery, Delivery::First);
    assert_eq!(answer.delivery, Delivery::Duplicate);
    assert_eq!(
        (answer.run, answer.accepted_at),
        (first.run, first.accepted_at)
    );
}

#[tokio::test]
async fn an_event_and_its_run_are_one_write_and_a_duplicate_is_none() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("stripe");
    let before = store.writes();
    let first = inbox
        .accept("evt_1")
        .start(waiting())
        .await
        .expect("accepted");
    assert_eq!(store.writes(), before + 1);
    for _ in 0..5 {
        let again = inbox.accept("evt_1").start(waiting()).await.expect("known");
        assert_duplicate(again, first);
    }
    assert_eq!(store.writes(), before + 1);
    let other = engine
        .inbox("github")
        .accept("evt_1")
        .start(waiting())
        .await;
    assert_ne!(other.expect("another inbox").run, first.run);
    assert_eq!(engine.runs().await.expect("lists").runs.len(), 2);
}

#[tokio::test]
async fn the_run_of_an_event_goes_on_at_once() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let accepted = engine
        .inbox("orders")
        .accept("evt_1")
        .start(fulfil(7))
        .await;
    let run = engine.run::<fulfil>(accepted.expect("accepted").run).await;
    assert_eq!(run.expect("is there").result().await.expect("ends"), 7);
    assert_eq!(ledger.effects(), ["order 7"]);
}

#[tokio::test]
async fn a_signal_is_received_once_however_often_its_event_comes() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("payments");
    let run = engine.start(gather()).await.expect("starts");
    let mut answers = Vec::new();
    for event in [1u64, 2, 1, 3, 2, 1] {
        let sent = inbox
            .accept(event)
            .signal(run.id(), "payment", &event)
            .await;
        answers.push((event, sent.expect("accepted")));
    }
    for (event, answer) in &answers {
        let first = answers.iter().find(|(first, _)| first == event);
        assert_eq!(answer.run, run.id());
        assert_eq!(answer.accepted_at, first.expect("itself").1.accepted_at);
    }
    run.signal("payment", &0u64).await.expect("sends");
    assert_eq!(run.result().await.expect("ends"), [1, 2, 3]);
}

#[tokio::test]
async fn a_token_s_holder_gets_the_event_s_value_once() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("callbacks");
    let early = inbox.accept("evt_1").signal_token("t-1", &5u64).await;
    assert!(
        matches!(&early, Err(InboxError::Engine(EngineError::NoHook { .. }))),
        "{early:?}"
    );
    let run = engine
        .start(called_back("t-1".into()))
        .await
        .expect("starts");
    let sent = loop {
        match inbox.accept("evt_1").signal_token("t-1", &5u64).await {
            Err(InboxError::Engine(EngineError::NoHook { .. })) => tokio::task::yield_now().await,
            sent => break sent.expect("the event is not lost"),
        }
    };
    assert_eq!(run.result().await.expect("ends"), 5);
    let again = inbox.accept("evt_1").signal_token("t-1", &5u64).await;
    assert_duplicate(again.expect("known, although the run has ended"), sent);
}

#[tokio::test]
async fn what_cannot_be_caused_is_refused_and_the_event_stays_new() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    let ended = engine.start(fulfil(1)).key("o-1").await.expect("starts");
    ended.result().await.expect("ends");
    let before = store.writes();

    let refused = inbox.accept("evt").start(stranger()).await;
    assert!(
        matches!(
            &refused,
            Err(InboxError::Engine(EngineError::NotRegistered { .. }))
        ),
        "{refused:?}"
    );
    let refused = inbox.accept("evt").start(fulfil(2)).key("o-1").await;
    assert!(
        matches!(&refused, Err(InboxError::Engine(EngineError::Conflict { run, .. })) if *run == ended.id()),
        "{refused:?}"
    );
    let refused = inbox.accept("evt").signal(ended.id(), "payment", &1).await;
    assert!(
        matches!(&refused, Err(InboxError::Engine(EngineError::Ended(_)))),
        "{refused:?}"
    );
    let refused = inbox.accept("evt").start(fulfil(2)).queue("none").await;
    assert!(
        matches!(&refused, Err(InboxError::Engine(EngineError::Queue { .. }))),
        "{refused:?}"
    );
    let refused = inbox.accept("evt").start(fulfil(2)).priority(3).await;
    assert!(
        matches!(&refused, Err(InboxError::Engine(EngineError::Queue { .. }))),
        "{refused:?}"
    );
    let refused = inbox.accept("").start(fulfil(2)).await;
    assert!(
        matches!(&refused, Err(InboxError::Id { .. })),
        "{refused:?}"
    );
    let refused = engine.inbox("").accept("evt").start(fulfil(2)).await;
    assert!(
        matches!(&refused, Err(InboxError::Engine(EngineError::Name { .. }))),
        "{refused:?}"
    );
    assert_eq!(
        store.writes(),
        before,
        "nothing was written for any of them"
    );

    let accepted = inbox.accept("evt").start(fulfil(2)).await.expect("is new");
    assert_eq!(accepted.delivery, Delivery::First);
}

#[tokio::test]
async fn an_event_whose_key_has_a_run_of_the_same_input_is_accepted_with_that_run() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let run = engine.start(fulfil(1)).key("o-1").await.expect("starts");
    let inbox = engine.inbox("orders");
    let accepted = inbox.accept("a").start(fulfil(1)).key("o-1").await;
    let accepted = accepted.expect("accepted");
    assert_eq!(
        (accepted.run, accepted.delivery),
        (run.id(), Delivery::First)
    );
    let by_event = inbox
        .accept("b")
        .start(fulfil(2))
        .key("o-2")
        .await
        .expect("accepted");
    let started = engine.start(fulfil(2)).key("o-2").await.expect("is there");
    assert_eq!(started.id(), by_event.run);
    started.result().await.expect("ends");
    assert_eq!(engine.runs().await.expect("lists").runs.len(), 2);
}

#[tokio::test]
async fn another_body_under_the_same_id_is_told_apart() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("stripe");
    let first = inbox
        .accept("evt_1")
        .body(&("paid", 5))
        .start(waiting())
        .await;
    let first = first.expect("accepted");
    let same = inbox
        .accept("evt_1")
        .body(&("paid", 5))
        .start(waiting())
        .await;
    assert_duplicate(same.expect("known"), first);
    let refused = async |inbox: Inbox| {
        let other = inbox
            .accept("evt_1")
            .body(&("paid", 6))
            .start(waiting())
            .await;
        let Err(InboxError::OtherBody {
            run,
            first: a,
            now: b,
            ..
        }) = &other
        else {
            panic!("{other:?}");
        };
        assert_eq!(*run, Some(first.run));
        assert_ne!(a, b);
        let text = other.expect_err("refused").to_string();
        assert!(
            text.contains("\"evt_1\"") && text.contains("`stripe`"),
            "{text}"
        );
    };
    refused(inbox).await;
    drop(engine);
    let engine = open(&store.reopen(Surviving::Synced), &ledger).await;
    refused(engine.inbox("stripe")).await;
}

#[tokio::test]
async fn a_queued_run_waits_for_its_turn_and_is_there_once() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    let holder = inbox.accept("first").start(waiting()).queue("slow").await;
    let holder = holder.expect("accepted");
    let queued = inbox
        .accept("second")
        .start(fulfil(2))
        .queue("slow")
        .priority(7)
        .await;
    let queued = queued.expect("accepted");
    let again = inbox.accept("second").start(fulfil(2)).queue("slow").await;
    assert_duplicate(again.expect("known"), queued);
    let run = engine.run::<fulfil>(queued.run).await.expect("is there");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(ledger.asked(), 0, "the queue has one slot");
    engine.terminate(holder.run).await.expect("ends");
    assert_eq!(run.result().await.expect("ends"), 2);
    assert_eq!(ledger.effects(), ["order 2"]);
}

#[tokio::test]
async fn work_without_a_workflow_is_done_once_and_its_outcome_kept() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("stripe");
    let mut done = 0;
    for _ in 0..3 {
        let worked = inbox.accept("evt_1").run(async || {
            done += 1;
            Ok::<_, Error>(format!("done {done}"))
        });
        assert_eq!(worked.await.expect("is done"), "done 1");
    }
    let keys = engine.keys();
    let elsewhere = KeyInbox::new(&keys, "stripe").keep_for(DAY);
    let known = elsewhere
        .accept("evt_1")
        .run(async || Ok::<_, Error>(String::new()));
    assert_eq!(known.await.expect("is known there"), "done 1");

    let mixed = inbox.accept("evt_1").start(waiting()).await;
    assert!(
        matches!(&mixed, Err(InboxError::Handled { .. })),
        "{mixed:?}"
    );
    inbox
        .accept("evt_2")
        .start(waiting())
        .await
        .expect("accepted");
    let mixed = inbox.accept("evt_2").run(async || Ok::<_, Error>(1)).await;
    assert!(
        matches!(&mixed, Err(OnceError::Keys(error)) if error.to_string().contains("one way only")),
        "{mixed:?}"
    );
    let other = inbox
        .accept("evt_1")
        .body("x")
        .run(async || Ok::<_, Error>(1))
        .await;
    assert!(
        matches!(&other, Err(OnceError::Conflict { .. })),
        "{other:?}"
    );
}

#[tokio::test]
async fn an_event_is_remembered_for_its_window_and_is_new_after_it() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = TestEngine::builder()
        .register::<fulfil>()
        .resource_arc(ledger.clone())
        .store(store.clone())
        .open()
        .await
        .expect("opens");
    let month = engine.inbox("orders");
    let week = engine.inbox("orders").keep_for(7 * DAY);
    let first = month.accept("a").start(fulfil(1)).await.expect("accepted");
    let brief = week.accept("b").start(fulfil(2)).await.expect("accepted");
    engine.advance(7 * DAY - Duration::from_secs(1)).await;
    let again = week.accept("b").start(fulfil(2)).await.expect("known");
    assert_duplicate(again, brief);
    engine.advance(Duration::from_secs(1)).await;
    let anew = week.accept("b").start(fulfil(2)).await.expect("accepted");
    assert_eq!(anew.delivery, Delivery::First);
    assert_ne!(anew.run, brief.run);
    engine.advance(22 * DAY).await;
    let again = month.accept("a").start(fulfil(1)).await.expect("known");
    assert_duplicate(again, first);
    engine.advance(2 * DAY).await;
    let anew = month.accept("a").start(fulfil(1)).await.expect("accepted");
    assert_eq!(anew.delivery, Delivery::First);
    let run = engine.run::<fulfil>(anew.run).await.expect("is there");
    run.result().await.expect("ends");
    assert_eq!(
        ledger.effects(),
        ["order 1", "order 1", "order 2", "order 2"]
    );

    // What is not asked for again goes too.
    engine.advance(31 * DAY).await;
    for space in [0x70, 0x71] {
        let prefix = workflow_runtime::store::NoteKey::new(space, &[]);
        let left = store.notes(prefix, None, 10).await.expect("lists");
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_deliveries_on_many_threads_one_is_the_first() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    for round in 0..50u64 {
        let deliveries = (0..64).map(|_| {
            let inbox = engine.inbox("orders");
            tokio::spawn(async move { inbox.accept(round).start(fulfil(round)).await })
        });
        let mut answers = Vec::new();
        for answer in join_all(deliveries).await {
            answers.push(answer.expect("no panic").expect("accepted"));
        }
        let first: Vec<_> = answers
            .iter()
            .filter(|one| one.delivery == Delivery::First)
            .collect();
        assert_eq!(first.len(), 1);
        for answer in &answers {
            assert_eq!(
                (answer.run, answer.accepted_at),
                (first[0].run, first[0].accepted_at)
            );
        }
        let run = engine.run::<fulfil>(first[0].run).await.expect("is there");
        run.result().await.expect("ends");
    }
    assert_eq!(ledger.effects().len(), 50);
}

#[tokio::test]
async fn a_consumer_that_stops_waiting_leaves_nothing_half_done() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    store.hold();
    let impatient = inbox.accept("evt").start(fulfil(1)).into_future();
    let gone = tokio::time::timeout(Duration::from_millis(20), impatient).await;
    assert!(gone.is_err(), "the disk is slow");
    store.release();
    let again = inbox.accept("evt").start(fulfil(1)).await.expect("known");
    assert_eq!(again.delivery, Delivery::Duplicate);
    let run = engine.run::<fulfil>(again.run).await.expect("is there");
    assert_eq!(run.result().await.expect("is driven"), 1);
}

#[tokio::test]
async fn an_engine_that_stops_takes_no_event_and_says_so() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    inbox.accept("a").start(waiting()).await.expect("accepted");
    engine.clone().shutdown().await.expect("stops");
    let refused = inbox.accept("b").start(waiting()).await;
    assert!(refused.is_err(), "{refused:?}");
    let engine = open(&store.reopen(Surviving::Synced), &ledger).await;
    let known = engine.inbox("orders").accept("a").start(waiting()).await;
    assert_eq!(known.expect("known").delivery, Delivery::Duplicate);
    let new = engine.inbox("orders").accept("b").start(waiting()).await;
    assert_eq!(new.expect("new").delivery, Delivery::First);
}

#[tokio::test]
async fn on_a_disk_an_event_stays_accepted_through_drops_and_shutdowns() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::shared();
    let mut firsts: Vec<Accepted> = Vec::new();
    for life in 0..4u64 {
        let engine = open_on(dir.path(), &ledger).await;
        let inbox = engine.inbox("orders");
        for (event, first) in firsts.iter().enumerate() {
            let event = event as u64;
            let again = inbox
                .accept(event)
                .start(fulfil(event))
                .await
                .expect("known");
            assert_duplicate(again, *first);
        }
        let new = inbox
            .accept(life)
            .start(fulfil(life))
            .await
            .expect("accepted");
        firsts.push(new);
        if life.is_multiple_of(2) {
            let run = engine.run::<fulfil>(new.run).await.expect("is there");
            run.result().await.expect("ends");
            engine.shutdown().await.expect("stops");
        } // otherwise dropped, wherever it is
    }
    let engine = open_on(dir.path(), &ledger).await;
    for first in &firsts {
        let run = engine.run::<fulfil>(first.run).await.expect("is there");
        run.result().await.expect("ends");
    }
    assert_eq!(
        ledger.effects(),
        ["order 0", "order 1", "order 2", "order 3"]
    );
    engine.shutdown().await.expect("stops");
}
