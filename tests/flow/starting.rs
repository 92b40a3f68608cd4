//! Starting runs: keys, conflicts, handles, configuration.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunId, RunStatus, step, workflow,
};
use workflow_tests::Ledger;

#[step]
async fn charge(#[resource] ledger: &Ledger, cents: u64) -> Result<u64> {
    tokio::task::yield_now().await;
    ledger.act("charge");
    Ok(cents)
}

#[workflow]
async fn pay(cents: u64) -> Result<u64> {
    charge(cents).await
}

#[workflow]
async fn other(cents: u64) -> Result<u64> {
    if cents == 0 {
        return Err(Error::fatal("nothing to pay"));
    }
    Ok(cents)
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<pay>()
        .register::<other>()
        .resource_arc(ledger.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_starts_with_one_key_are_one_run() {
    for _ in 0..10 {
        let ledger = Ledger::shared();
        let engine = engine(&ledger).open_in_memory().await.expect("opens");
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let run = engine.start(pay(5)).key("order-1").await.expect("starts");
                    (run.id(), run.result().await.expect("ends well"))
                })
            })
            .collect();
        let mut seen = HashSet::new();
        for task in tasks {
            seen.insert(task.await.expect("no panic"));
        }
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(ledger.asked(), 1);
        assert_eq!(engine.runs().await.expect("lists").runs.len(), 1);
    }
}

#[tokio::test]
async fn a_key_names_the_same_run_after_a_restart() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(pay(5)).key("order-1").await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 5);
    first.shutdown().await.expect("stops");
    let again = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let same = again.start(pay(5)).key("order-1").await.expect("is there");
    assert_eq!(same.id(), run.id());
    assert_eq!(same.result().await.expect("ends well"), 5);
    assert_eq!(ledger.asked(), 1);
    let another = again.start(pay(5)).key("order-2").await.expect("starts");
    assert_ne!(another.id(), run.id());
    let of_another = again.start(other(5)).key("order-1").await.expect("starts");
    assert_ne!(of_another.id(), run.id(), "a key belongs to a workflow");
}

#[tokio::test]
async fn a_key_with_another_input_is_a_conflict_that_names_the_first_run() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let first = engine.start(pay(5)).key("order-1").await.expect("starts");
    for _ in 0..2 {
        let refused = engine.start(pay(6)).key("order-1").await;
        let Err(EngineError::Conflict {
            key,
            run,
            workflow,
            started_at,
            first: first_digest,
            now,
        }) = refused
        else {
            panic!("{refused:?}");
        };
        assert_eq!((&*key, run, &*workflow), ("order-1", first.id(), "pay"));
        let header = engine.journal(run).await.expect("reads").header().clone();
        assert_eq!(started_at, header.created_at);
        assert_eq!(first_digest, header.input_digest);
        assert_ne!(first_digest, now);
        first.result().await.expect("ends well"); // and once more when it has ended
    }
    assert_eq!(ledger.asked(), 1);
}

#[tokio::test]
async fn a_start_that_is_dropped_midway_leaves_no_orphan() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    store.hold();
    let mut start = Box::pin(engine.start(pay(5)).key("k").into_future());
    assert!(futures::poll!(&mut start).is_pending());
    tokio::task::yield_now().await;
    drop(start);
    store.release();
    // It was begun, so it is driven; and the key leads to it.
    let run = engine.start(pay(5)).key("k").await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 5);
    assert_eq!(ledger.asked(), 1);
    drop(engine.start(pay(7)).key("never polled"));
    assert_eq!(engine.runs().await.expect("lists").runs.len(), 1);
}

#[tokio::test]
async fn a_handle_comes_from_an_id_and_refuses_what_it_is_not() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let id = engine.start(pay(5)).await.expect("starts").id();
    let run = engine.run::<pay>(id).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 5);
    let again = engine
        .run::<pay>(id.to_string().parse().expect("an id"))
        .await;
    assert_eq!(
        again.expect("is there").result().await.expect("ends well"),
        5
    );

    match engine.run::<other>(id).await {
        Err(EngineError::OtherWorkflow { run, found, asked }) => {
            assert_eq!((run, &*found, asked), (id, "pay", "other"));
        }
        other => panic!("{other:?}"),
    }
    let unknown = RunId::from_bytes([9; 16]);
    assert!(
        matches!(engine.run::<pay>(unknown).await, Err(EngineError::UnknownRun(run)) if run == unknown)
    );
    assert!(matches!(
        engine.status(unknown).await,
        Err(EngineError::UnknownRun(_))
    ));
    assert!(matches!(
        engine.journal(unknown).await,
        Err(EngineError::UnknownRun(_))
    ));
    assert!(matches!(
        engine.resume(unknown).await,
        Err(EngineError::UnknownRun(_))
    ));
    assert!(matches!(
        engine.resume(id).await,
        Err(EngineError::Ended(_))
    ));
}

#[tokio::test]
async fn the_status_follows_the_run_to_its_end() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(pay(5)).await.expect("starts");
    assert_eq!(run.status().await.expect("reads"), RunStatus::Active);
    run.result().await.expect("ends well");
    assert_eq!(run.status().await.expect("reads"), RunStatus::Completed);
    let run = engine.start(other(0)).await.expect("starts");
    let error = run.result().await.expect_err("fails");
    assert!(matches!(&error, RunError::Failed(e) if e.to_string() == "nothing to pay"));
    assert_eq!(
        engine.status(run.id()).await.expect("reads"),
        RunStatus::Failed
    );
}

#[tokio::test]
async fn keys_have_limits() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    for key in [String::new(), "k".repeat(1025)] {
        let refused = engine.start(pay(1)).key(key).await;
        assert!(matches!(refused, Err(EngineError::Key(_))));
    }
    engine
        .start(pay(1))
        .key("k".repeat(1024))
        .await
        .expect("fits");
    engine
        .start(pay(1))
        .key(42)
        .await
        .expect("a number is a key");
}

mod twin {
    #[workflow_runtime::workflow(name = "pay")]
    pub(super) async fn twin(cents: u64) -> u64 {
        cents
    }
}

#[workflow]
async fn unknown() {}

#[tokio::test]
async fn what_cannot_work_is_refused_when_it_is_opened() {
    let refused = |builder: EngineBuilder| async move {
        match builder.open_in_memory().await {
            Err(EngineError::Configuration(text)) => text,
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it was opened"),
        }
    };
    let base = || engine(&Ledger::shared());
    base()
        .register::<pay>()
        .open_in_memory()
        .await
        .expect("the same one twice is fine");
    let text = refused(base().register::<twin::twin>()).await;
    assert!(text.contains("two workflows are named `pay`"), "{text}");
    assert_eq!(text.matches("tests/flow/starting.rs:").count(), 2, "{text}");
    for (builder, part) in [
        (base().namespace(""), "namespace"),
        (base().max_attempts(0), "max_attempts"),
        (base().max_active_runs(0), "max_active_runs"),
        (
            base().backoff(Duration::from_secs(2), Duration::from_secs(1)),
            "backoff",
        ),
    ] {
        let text = refused(builder).await;
        assert!(text.contains(part), "{text}");
    }
    let engine = base().open_in_memory().await.expect("opens");
    let refused = engine.start(unknown()).await;
    assert!(matches!(
        refused,
        Err(EngineError::NotRegistered {
            workflow: "unknown",
            version: 1
        })
    ));
}

#[tokio::test]
async fn nothing_of_one_namespace_is_seen_from_another() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let a = engine(&ledger)
        .namespace("a")
        .open_with(store.clone())
        .await
        .expect("opens");
    let b = engine(&ledger)
        .namespace("b")
        .open_with(store.clone())
        .await
        .expect("opens");
    let in_a = a.start(pay(1)).key("k").await.expect("starts");
    let in_b = b.start(pay(2)).key("k").await.expect("no conflict");
    assert_ne!(in_a.id(), in_b.id());
    assert_eq!(in_a.result().await.expect("ends well"), 1);
    assert_eq!(in_b.result().await.expect("ends well"), 2);
    let listed = b.runs().await.expect("lists").runs;
    assert_eq!(
        listed.iter().map(|run| run.run).collect::<Vec<_>>(),
        [in_b.id()]
    );
    assert!(matches!(
        b.run::<pay>(in_a.id()).await,
        Err(EngineError::UnknownRun(_))
    ));
    assert!(matches!(
        b.status(in_a.id()).await,
        Err(EngineError::UnknownRun(_))
    ));
    assert!(matches!(
        b.journal(in_a.id()).await,
        Err(EngineError::UnknownRun(_))
    ));
    assert!(matches!(
        b.resume(in_a.id()).await,
        Err(EngineError::UnknownRun(_))
    ));
}
