//! Batches of events: one write, an answer for each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Acceptance, Delivery, Engine, EngineError, InboxError};
use workflow_tests::{Edited, Ledger};

use super::{assert_duplicate, builder, fulfil, gather, open, stranger, waiting};

#[tokio::test]
async fn a_batch_is_one_write_in_which_duplicates_and_errors_are_left_out() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    let known = inbox
        .accept("known")
        .start(waiting())
        .await
        .expect("accepted");
    let gathering = engine.start(gather()).await.expect("starts");
    let ended = engine.start(fulfil(1)).await.expect("starts");
    ended.result().await.expect("ends");
    let before = store.writes();
    let events: Vec<Acceptance> = vec![
        inbox.accept("a").start(waiting()).into(),
        inbox.accept("known").start(waiting()).into(),
        inbox.accept("b").start(stranger()).into(),
        inbox.accept("c").signal(ended.id(), "payment", &1u64),
        inbox.accept("a").start(waiting()).into(),
        inbox.accept("d").signal(gathering.id(), "payment", &4u64),
        inbox.accept("e").start(waiting()).key("k").into(),
        inbox.accept("f").start(waiting()).key("k").into(),
        inbox.accept("a").body("other").start(waiting()).into(),
    ];
    store.hold(); // so that what the runs write does not count
    let accepting = inbox.accept_all(events);
    let releasing = async {
        while store.writes() == before {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.writes(), before + 1, "all of it is one write");
        store.release();
    };
    let (answers, ()) = tokio::join!(accepting, releasing);
    let ok = |n: usize| *answers[n].as_ref().expect("accepted");
    assert_eq!(ok(0).delivery, Delivery::First);
    assert_duplicate(ok(1), known);
    assert!(matches!(
        &answers[2],
        Err(InboxError::Engine(EngineError::NotRegistered { .. }))
    ));
    assert!(matches!(
        &answers[3],
        Err(InboxError::Engine(EngineError::Ended(_)))
    ));
    assert_duplicate(ok(4), ok(0));
    assert_eq!(
        (ok(5).run, ok(5).delivery),
        (gathering.id(), Delivery::First)
    );
    assert_eq!((ok(6).run, ok(7).run), (ok(7).run, ok(6).run));
    assert_eq!(
        (ok(6).delivery, ok(7).delivery),
        (Delivery::First, Delivery::First)
    );
    assert!(
        matches!(&answers[8], Err(InboxError::OtherBody { run: Some(run), .. }) if *run == ok(0).run)
    );
    gathering.signal("payment", &0u64).await.expect("sends");
    assert_eq!(gathering.result().await.expect("ends"), [4]);
}

#[tokio::test]
async fn two_keys_of_other_input_in_one_batch_conflict_like_any_others() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    let events = [1u64, 2, 1].map(|n| inbox.accept(format!("evt_{n}")).start(fulfil(n)).key("k"));
    let answers = inbox.accept_all(events).await;
    let first = answers[0].as_ref().expect("accepted");
    assert!(
        matches!(&answers[1], Err(InboxError::Engine(EngineError::Conflict { run, .. })) if *run == first.run),
        "{answers:?}"
    );
    assert_duplicate(*answers[2].as_ref().expect("known"), *first);
}

#[tokio::test]
async fn an_empty_batch_is_nothing_and_a_large_one_is_taken_as_a_whole() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open(&store, &ledger).await;
    let inbox = engine.inbox("orders");
    let none: [Acceptance; 0] = [];
    assert!(inbox.accept_all(none).await.is_empty());
    let run = engine.start(gather()).await.expect("starts");
    let large = "x".repeat(1024 * 1024);
    let events: Vec<_> = (0..2_500u64)
        .map(|n| inbox.accept(n).signal(run.id(), "other", &n))
        .chain((0..20).map(|n| {
            inbox
                .accept(format!("large {n}"))
                .signal(run.id(), "other", &large)
        }))
        .collect();
    let answers = inbox.accept_all(events).await;
    assert_eq!(answers.len(), 2_520);
    for answer in answers {
        assert_eq!(answer.expect("accepted").delivery, Delivery::First);
    }
}

/// An engine on a store whose notes are read slowly: others come in between.
async fn open_slowly(store: &MemoryStore, ledger: &Arc<Ledger>) -> Engine {
    let slow = Edited {
        store: store.clone(),
        edit: |_: &mut Vec<Bytes>| {},
    };
    builder(ledger).open_with(slow).await.expect("opens")
}

/// Batches that share events, in opposite orders: whoever waited for the other while the other waited would wait
/// for ever.
#[tokio::test]
async fn batches_that_overlap_wait_for_each_other_and_never_in_a_circle() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engine = open_slowly(&store, &ledger).await;
    for round in 0..20u64 {
        let batches = (0..8u64).map(|batch| {
            let inbox = engine.inbox("orders");
            async move {
                let mut ids: Vec<u64> = (0..12).map(|n| round * 100 + (n + batch) % 16).collect();
                if batch.is_multiple_of(2) {
                    ids.reverse();
                }
                let events = ids.iter().map(|id| inbox.accept(*id).start(fulfil(*id)));
                let answers = inbox.accept_all(events).await;
                ids.into_iter().zip(answers).collect::<Vec<_>>()
            }
        });
        // Below the lease, after which whoever waits takes over.
        let batches = tokio::time::timeout(Duration::from_secs(20), join_all(batches));
        let mut firsts = 0;
        let mut runs = HashMap::new();
        for (id, answer) in batches
            .await
            .expect("none waits for ever")
            .into_iter()
            .flatten()
        {
            let answer = answer.expect("accepted");
            firsts += usize::from(answer.delivery == Delivery::First);
            assert_eq!(*runs.entry(id).or_insert(answer.run), answer.run);
        }
        assert_eq!((firsts, runs.len()), (16, 16));
    }
}

/// Each engine has its own memory of keys: only the guard of the commit is between them.
#[tokio::test]
async fn of_two_engines_on_one_store_one_accepts_an_event() {
    let (store, ledger) = (MemoryStore::new(), Ledger::shared());
    let engines = [
        open_slowly(&store, &ledger).await,
        open_slowly(&store, &ledger).await,
    ];
    for round in 0..50u64 {
        let answers = join_all(engines.iter().map(|engine| {
            let inbox = engine.inbox("orders");
            let events = [2 * round, 2 * round + 1].map(|id| inbox.accept(id).start(waiting()));
            async move { inbox.accept_all(events).await }
        }));
        let answers = answers.await;
        let pairs = answers[0].iter().zip(&answers[1]);
        for (one, two) in pairs {
            let (one, two) = (
                *one.as_ref().expect("accepted"),
                *two.as_ref().expect("accepted"),
            );
            match one.delivery {
                Delivery::First => assert_duplicate(two, one),
                Delivery::Duplicate => assert_duplicate(one, two),
            }
        }
    }
    let runs = engines[0].runs().limit(1000).await.expect("lists").runs;
    assert_eq!(runs.len(), 100);
}
