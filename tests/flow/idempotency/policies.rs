//! What becomes of a start whose key is held by a run with other input.

use workflow_runtime::store::RunState;
use workflow_runtime::{EngineError, Key, OnConflict, Queue, RunError, RunStatus};

use super::*;

#[tokio::test]
async fn the_same_input_is_given_the_current_run_under_every_policy() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let key = || Key::business("order", 1);
    let first = engine.start(held(1)).key(key()).await.expect("starts");
    for ended in [false, true] {
        if ended {
            first.signal("go on", &()).await.expect("sends");
            first.result().await.expect("ends well");
        }
        for policy in [
            OnConflict::Reject,
            OnConflict::ReturnExisting,
            OnConflict::Replace,
        ] {
            let start = engine.start(held(1)).key(key()).on_conflict(policy);
            assert_eq!(start.await.expect("is found").id(), first.id());
        }
    }
    assert_eq!(all_runs(&store).await.len(), 1);
    assert_eq!(ledger.effects(), ["charge 1"]);
}

#[tokio::test]
async fn other_input_is_refused_or_given_the_run_that_holds_the_key() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let first = engine.start(pay(1)).key("order").await.expect("starts");
    first.result().await.expect("ends well");
    let existing = engine
        .start(pay(2))
        .key("order")
        .on_conflict(OnConflict::ReturnExisting)
        .await
        .expect("is given the first");
    assert_eq!(existing.id(), first.id());
    assert_eq!(existing.result().await.expect("ends well"), 1);
    let refused = engine.start(pay(2)).key("order").await;
    let Err(error @ EngineError::Conflict { .. }) = refused else {
        panic!("{refused:?}");
    };
    let text = error.to_string();
    for part in ["\"order\"", &first.id().to_string(), "`pay`", "other input"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_run_that_is_replaced_is_cancelled_and_undone_before_the_new_one_begins() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let replace = |order| {
        let start = engine.start(held(order)).key("order");
        start.on_conflict(OnConflict::Replace)
    };
    let old = replace(1).await.expect("starts");
    until("the old one has charged", async || ledger.asked() == 1).await;
    let new = replace(2).await.expect("replaces");
    assert_ne!(new.id(), old.id());
    // Whoever repeats that start has replaced nothing more.
    for _ in 0..3 {
        assert_eq!(replace(2).await.expect("is found").id(), new.id());
    }
    let ended = old.result().await.expect_err("is cancelled");
    let RunError::Cancelled { reason } = ended else {
        panic!("{ended}");
    };
    assert!(reason.contains(&new.id().to_string()), "{reason}");
    new.signal("go on", &()).await.expect("sends");
    assert_eq!(new.result().await.expect("ends well"), 2);
    assert_eq!(ledger.in_order(), ["charge 1", "refund 1", "charge 2"]);
    assert_eq!(replace(2).await.expect("is found").id(), new.id());
    let runs = all_runs(&store).await;
    assert_eq!(runs.len(), 2);
    let journal = engine.journal(new.id()).await.expect("reads");
    assert_eq!(journal.header().key.as_deref(), Some("order"));
}

#[tokio::test]
async fn a_run_that_has_ended_is_replaced_without_being_touched() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let old = engine.start(pay(1)).key("order").await.expect("starts");
    old.result().await.expect("ends well");
    let start = engine.start(pay(2)).key("order");
    let new = start
        .on_conflict(OnConflict::Replace)
        .await
        .expect("starts");
    assert_eq!(new.result().await.expect("ends well"), 2);
    assert_eq!(old.status().await.expect("is there"), RunStatus::Completed);
    assert_eq!(ledger.in_order(), ["charge 1", "charge 2"]);
    let now = engine.start(pay(2)).key("order").await.expect("is found");
    assert_eq!(now.id(), new.id());
}

#[tokio::test]
async fn a_run_that_is_replaced_before_it_began_charges_nothing() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let replace = |order| {
        let start = engine.start(held(order)).key("order");
        start.on_conflict(OnConflict::Replace)
    };
    let first = replace(1).await.expect("starts");
    until("the first has charged", async || ledger.asked() == 1).await;
    // A parked run hears of its cancellation when it is resumed: until then the others wait.
    engine.pause(first.id()).await.expect("pauses");
    let second = replace(2).await.expect("replaces");
    let third = replace(3).await.expect("replaces");
    second.result().await.expect_err("is cancelled at once");
    assert_eq!(third.status().await.expect("waits"), RunStatus::Active);
    tokio::time::sleep(Duration::from_millis(30)).await;
    // It may have been told to undo what it never did: undo steps are made for that.
    let charged = || {
        let effects = ledger.in_order().into_iter();
        effects
            .filter(|one| one.starts_with("charge"))
            .collect::<Vec<_>>()
    };
    assert_eq!(charged(), ["charge 1"], "the first has not ended");
    engine.terminate(first.id()).await.expect("ends it");
    third.signal("go on", &()).await.expect("sends");
    assert_eq!(third.result().await.expect("ends well"), 3);
    assert_eq!(charged(), ["charge 1", "charge 3"]);
}

#[tokio::test]
async fn a_run_that_replaces_another_joins_its_queue_when_that_has_ended() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger).queue(Queue::named("mail").concurrency(1));
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let replace = |order| {
        let start = engine.start(held(order)).key("order").queue("mail");
        start.on_conflict(OnConflict::Replace)
    };
    let old = replace(1).await.expect("is queued");
    until("the old one has charged", async || ledger.asked() == 1).await;
    let new = replace(2).priority(3).await.expect("replaces");
    old.result().await.expect_err("is cancelled");
    new.signal("go on", &()).await.expect("sends");
    assert_eq!(new.result().await.expect("ends well"), 2);
    assert_eq!(ledger.in_order(), ["charge 1", "refund 1", "charge 2"]);
    until("the slot is free", async || {
        let mail = engine.queue("mail").describe().await.expect("is there");
        (mail.waiting, mail.running) == (0, 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_replace_a_run_at_once_one_does() {
    for round in 0..20 {
        let ledger = Ledger::shared();
        let store = MemoryStore::new();
        let builder = engine(&ledger);
        let engine = builder.open_with(store.clone()).await.expect("opens");
        let old = engine.start(held(1)).key("order").await.expect("starts");
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let start = engine.start(pay(2)).key("order");
                    drop(start); // of another workflow: not in the way
                    let start = engine.start(held(2)).key("order");
                    let start = start.on_conflict(OnConflict::Replace);
                    start.await.expect("replaces or finds").id()
                })
            })
            .collect();
        let mut ids = std::collections::HashSet::new();
        for task in tasks {
            ids.insert(task.await.expect("no panic"));
        }
        assert_eq!(ids.len(), 1, "round {round}");
        assert!(!ids.contains(&old.id()));
        old.result().await.expect_err("is cancelled");
        assert_eq!(all_runs(&store).await.len(), 2, "round {round}");
    }
}

#[tokio::test]
async fn a_replacement_waits_for_the_old_run_over_a_restart() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let old = first.start(held(1)).key("order").await.expect("starts");
    until("it has charged", async || ledger.asked() == 1).await;
    first.pause(old.id()).await.expect("pauses");
    let start = first.start(held(2)).key("order");
    let new = start.on_conflict(OnConflict::Replace).await;
    let new = new.expect("replaces").id();
    first.shutdown().await.expect("stops");
    let store = store.reopen(workflow_runtime::store::memory::Surviving::Synced);
    let second = engine(&ledger).open_with(store.clone()).await;
    let second = second.expect("opens");
    let state = |runs: Vec<RunHeader>| runs.into_iter().find(|run| run.run == new);
    let waits = state(all_runs(&store).await).expect("is there").state;
    assert!(matches!(waits, RunState::Asleep { .. }), "{waits:?}");
    second.resume(old.id()).await.expect("resumes");
    let new = second.run::<held>(new).await.expect("is there");
    new.signal("go on", &()).await.expect("sends");
    assert_eq!(new.result().await.expect("ends well"), 2);
    assert_eq!(ledger.in_order(), ["charge 1", "refund 1", "charge 2"]);
}

#[tokio::test]
async fn what_is_about_a_key_needs_one() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    for start in [
        engine.start(pay(1)).on_conflict(OnConflict::Replace),
        engine.start(pay(1)).key_ttl(Duration::MAX),
        engine
            .start(pay(1))
            .on_failure(workflow_runtime::OnFailure::Release),
    ] {
        let refused = start.await;
        let Err(EngineError::Key(problem)) = &refused else {
            panic!("{refused:?}");
        };
        assert!(problem.contains("add `.key(..)`"), "{problem}");
    }
    for key in [Key::from("=a:b"), Key::business("order", ""), Key::from("")] {
        let refused = engine.start(pay(1)).key(key).await;
        assert!(matches!(refused, Err(EngineError::Key(_))), "{refused:?}");
    }
}
