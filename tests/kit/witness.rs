//! The witness: it is silent where all is well, through restarts and on any store, and each promise that is not kept is named.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use workflow_runtime::clock::Timestamp;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{EndKind, RunEnd, Store};
use workflow_runtime::testing::{Invariant, TestEngine, Violation, Witness, check_invariants};
use workflow_runtime::{
    Engine, Error, Queue, Result, Retention, RunId, Sent, StepId, get_step_metadata, sleep, step,
    wait_for, workflow,
};

const HOUR: Duration = Duration::from_secs(3600);

#[step(max_attempts = 3, backoff = "1ms..5ms")]
async fn charge(cents: u64) -> Result<u64> {
    match get_step_metadata().attempt {
        1 => Err(Error::new("not yet")),
        _ => Ok(cents),
    }
}

#[workflow(key_ttl = "1h")]
async fn order(cents: u64) -> Result<u64> {
    let paid = charge(cents).await?;
    sleep(Duration::from_millis(20)).await;
    Ok(paid + wait_for::<u64>("tip").await?)
}

#[workflow]
async fn breaking() -> Result<u64> {
    panic!("it cannot go on")
}

fn rules(found: &[Violation]) -> Vec<Invariant> {
    found.iter().map(|violation| violation.invariant).collect()
}

async fn test_engine(store: &MemoryStore) -> TestEngine {
    let builder = TestEngine::builder()
        .register::<order>()
        .register::<breaking>()
        .configure(|engine| engine.retention_of::<order>(Retention::of(2 * HOUR)))
        .store(store.clone());
    builder.open().await.unwrap()
}

/// Opens an engine on a directory that another one had until a moment ago.
async fn on_disk(dir: &Path) -> Engine {
    for _ in 0..600 {
        let builder = Engine::builder()
            .register::<order>()
            .queue(Queue::named("line").concurrency(1));
        match builder.open(dir).await {
            Ok(engine) => return engine,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("the directory stays locked")
}

#[tokio::test]
async fn a_story_on_disk_through_restarts_keeps_every_promise() {
    let dir = tempfile::tempdir().unwrap();
    let mut witness = Witness::new();
    witness.limit("charge", 3, Duration::from_millis(5));
    let mut runs = Vec::new();
    for life in 0..3 {
        let engine = on_disk(dir.path()).await;
        for n in 0..6_u64 {
            let start = engine.start(order(n)).key(n);
            let start = if n % 2 == 0 {
                start.queue("line")
            } else {
                start
            };
            let run = start.await.unwrap();
            witness.started_under(&n.to_string(), "default", run.id(), Some(HOUR));
            if life == 0 {
                runs.push(run.id());
            }
            let other = engine
                .start(order(n + 100))
                .key(n)
                .await
                .map(|run| run.id());
            witness.asked_with_other_input(runs[n as usize], other.as_ref().copied());
        }
        let run = runs[life];
        let sent = engine.signal(run, "tip", &1_u64).key("one").await.unwrap();
        witness.signalled(run, "tip", "one", sent);
        assert_eq!(witness.check(&engine).await.unwrap(), [], "life {life}");
        drop(engine); // as in a crash: nothing is stopped in order
        witness.reopened();
    }
    let engine = on_disk(dir.path()).await;
    for (n, run) in runs.iter().enumerate() {
        let sent = engine.signal(*run, "tip", &1_u64).key("one").await;
        if let Ok(sent) = sent {
            witness.signalled(*run, "tip", "one", sent);
        }
        let paid = engine.run::<order>(*run).await.unwrap().result().await;
        assert_eq!(paid.unwrap(), n as u64 + 1);
    }
    assert_eq!(witness.check(&engine).await.unwrap(), []);
    assert_eq!(witness.check_all_ended(&engine).await.unwrap(), []);
    engine.shutdown().await.unwrap();
    let store = SledStore::open(dir.path(), SledOptions::default()).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    assert_eq!(witness.check_store(&store).await.unwrap(), []);
}

#[tokio::test]
async fn what_was_acknowledged_and_is_not_there_is_named() {
    let store = MemoryStore::new();
    let engine = test_engine(&store).await;
    let mut witness = Witness::new();
    let (gone, there) = (
        RunId::from_bytes([7; 16]),
        engine.start(order(1)).await.unwrap(),
    );
    witness.started("default", gone);
    witness.started("default", there.id());
    witness.signalled(there.id(), "tip", "never sent", Sent::Accepted);
    let found = witness.check(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Acknowledged, Invariant::Signals]);
    assert_eq!((found[0].run, found[1].run), (gone, there.id()));
}

#[tokio::test]
async fn signals_that_overtake_each_other_and_one_that_is_accepted_twice_are_named() {
    let engine = test_engine(&MemoryStore::new()).await;
    let run = engine.start(order(1)).await.unwrap();
    for key in ["a", "b"] {
        run.signal("other", &1_u64).key(key).await.unwrap();
    }
    let mut witness = Witness::new();
    witness.signalled(run.id(), "other", "b", Sent::Accepted);
    witness.signalled(run.id(), "other", "a", Sent::Accepted);
    witness.signalled(run.id(), "other", "a", Sent::Accepted);
    let found = witness.check(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Signals; 2], "{found:?}");
}

#[tokio::test]
async fn a_record_that_is_gone_after_a_crash_is_named() {
    let store = MemoryStore::new();
    let engine = test_engine(&store).await;
    let run = engine.start(order(1)).await.unwrap();
    engine.advance(Duration::from_millis(10)).await;
    let mut witness = Witness::new();
    assert_eq!(witness.check(&engine).await.unwrap(), []);
    // The witness saw a disk on which the run came further than on this one.
    let other = test_engine(&MemoryStore::new()).await;
    let same = other.start(order(1)).await.unwrap();
    assert_eq!(same.id(), run.id(), "the same seed");
    let found = witness.check(&other).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Acknowledged], "{found:?}");
}

#[tokio::test]
async fn answers_that_do_not_go_together_are_named() {
    let engine = test_engine(&MemoryStore::new()).await;
    let (one, other) = (
        engine.start(order(1)).await.unwrap().id(),
        engine.start(order(1)).await.unwrap().id(),
    );
    let mut witness = Witness::new();
    witness.started_under("k", "default", one, Some(HOUR));
    witness.started_under("k", "default", other, Some(HOUR));
    assert_eq!(
        rules(&witness.check(&engine).await.unwrap()),
        [Invariant::OneRunPerKey]
    );

    let mut witness = Witness::new();
    witness.asked_with_other_input(one, Ok(other));
    let end = |kind| RunEnd {
        kind,
        at: Timestamp::from(SystemTime::UNIX_EPOCH),
    };
    witness.ended(one, end(EndKind::Completed));
    witness.ended(one, end(EndKind::Failed));
    let step = StepId::from_bytes([3; 16]);
    witness.acted(one, step, "5 cents");
    witness.acted(one, step, "6 cents");
    witness.disk_failed();
    witness.started("default", other);
    witness.reopened();
    witness.started("default", other);
    let rules = rules(&witness.take_found());
    let expected = [
        Invariant::Conflict,
        Invariant::EndsOnce,
        Invariant::OneCallPerId,
        Invariant::FailStop,
    ];
    assert_eq!(rules, expected);
}

#[tokio::test]
async fn a_key_that_gives_a_new_run_after_its_time_is_fine_and_one_before_it_is_named() {
    let engine = test_engine(&MemoryStore::new()).await;
    let mut witness = Witness::new();
    for promised in [HOUR, 3 * HOUR] {
        for _ in 0..2 {
            let run = engine.start(order(1)).key("k").await.unwrap();
            witness.started_under("k", "default", run.id(), Some(promised));
            run.signal("tip", &1_u64).await.unwrap();
            run.result().await.unwrap();
            assert_eq!(check_invariants(&engine).await.unwrap(), []);
            engine.advance(HOUR + Duration::from_secs(1)).await;
        }
        let found = rules(&witness.check(&engine).await.unwrap());
        match promised == HOUR {
            true => assert_eq!(found, []),
            false => assert!(
                found.iter().all(|rule| *rule == Invariant::KeyLifetime) && !found.is_empty()
            ),
        }
    }
}

#[tokio::test]
async fn a_run_that_goes_before_its_time_is_named() {
    let engine = test_engine(&MemoryStore::new()).await;
    let run = engine.start(order(1)).await.unwrap();
    run.signal("tip", &1_u64).await.unwrap();
    run.result().await.unwrap();
    let (mut strict, mut right) = (Witness::new(), Witness::new());
    for (witness, keep) in [(&mut strict, 30 * HOUR), (&mut right, 2 * HOUR)] {
        witness.keeps_runs_for(keep);
        witness.started("default", run.id());
        assert_eq!(witness.check(&engine).await.unwrap(), []);
    }
    engine.advance(3 * HOUR).await;
    assert_eq!(engine.sweep().await.unwrap(), 1);
    assert_eq!(right.check(&engine).await.unwrap(), []);
    let found = strict.check(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Retention]);
    // Without a word of retention nothing may go.
    let mut nothing_goes = Witness::new();
    nothing_goes.started("default", run.id());
    let found = nothing_goes.check(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Acknowledged]);
}

#[tokio::test]
async fn a_run_that_may_have_ended_since_anybody_looked_is_not_missed_and_one_that_waits_is() {
    for waits in [false, true] {
        let engine = test_engine(&MemoryStore::new()).await;
        let mut witness = Witness::new();
        witness.keeps_runs_for(2 * HOUR);
        let run = engine.start(order(1)).key("k").await.unwrap();
        witness.started_under("k", "default", run.id(), Some(HOUR));
        if waits {
            witness.waits(run.id());
        }
        // It has not ended when somebody looks for the last time.
        assert_eq!(witness.check(&engine).await.unwrap(), []);
        run.signal("tip", &1_u64).await.unwrap();
        run.result().await.unwrap();
        engine.advance(4 * HOUR).await;
        assert_eq!(engine.sweep().await.unwrap(), 1);
        let next = engine.start(order(1)).key("k").await.unwrap();
        witness.started_under("k", "default", next.id(), Some(HOUR));
        let found = rules(&witness.check(&engine).await.unwrap());
        match waits {
            false => assert_eq!(found, []),
            true => {
                assert!(found.contains(&Invariant::Retention), "{found:?}");
                assert!(found.contains(&Invariant::OneRunPerKey), "{found:?}");
            }
        }
    }
}

#[tokio::test]
async fn attempts_beyond_their_limits_are_named() {
    let engine = test_engine(&MemoryStore::new()).await;
    let run = engine.start(order(1)).await.unwrap();
    run.signal("tip", &1_u64).await.unwrap();
    run.result().await.unwrap();
    let mut witness = Witness::new();
    witness.limit("charge", 1, Duration::ZERO);
    let found = witness.check(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Attempts; 2], "{found:?}");
}

#[tokio::test]
async fn another_namespace_sees_nothing_and_a_run_that_was_told_of_as_of_another_is_named() {
    let store = MemoryStore::new();
    let engine = test_engine(&store).await;
    let run = engine.start(order(1)).await.unwrap();
    let other = TestEngine::builder()
        .configure(|engine| engine.namespace("other"))
        .store(store.clone());
    let other = other.open().await.unwrap();
    let mut witness = Witness::new();
    witness.started("default", run.id());
    assert_eq!(witness.check(&other).await.unwrap(), []);
    let mut mistaken = Witness::new();
    mistaken.started("other", run.id());
    let found = mistaken.check(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Namespaces], "{found:?}");
}

#[tokio::test]
async fn damage_is_named_and_so_is_damage_that_nobody_names() {
    let store = MemoryStore::new();
    let engine = test_engine(&store).await;
    let (bad, good) = (
        engine.start(order(1)).await.unwrap().id(),
        engine.start(order(2)).await.unwrap().id(),
    );
    engine.advance(Duration::from_millis(10)).await;
    assert!(store.damage(bad, 1));
    assert_eq!(
        rules(&check_invariants(&engine).await.unwrap()),
        [Invariant::Chain]
    );
    let mut witness = Witness::new();
    witness.damaged(bad);
    assert_eq!(witness.check(&engine).await.unwrap(), []);
    witness.damaged(good);
    let found = witness.check(&engine).await.unwrap();
    assert_eq!(
        (rules(&found), found[0].run),
        (vec![Invariant::Corruption], good)
    );
}

#[tokio::test]
async fn a_run_that_never_ends_is_named_and_beside_one_that_cannot_go_on_it_is_that_ones_fault() {
    let engine = test_engine(&MemoryStore::new()).await;
    let waits = engine.start(order(1)).await.unwrap().id();
    let mut witness = Witness::new();
    let found = witness.check_all_ended(&engine).await.unwrap();
    assert_eq!(
        (rules(&found), found[0].run),
        (vec![Invariant::NoOrphan], waits)
    );
    let poison = engine.start(breaking()).await.unwrap().id();
    engine.advance(Duration::from_secs(1)).await;
    witness.poisoned(poison);
    assert_eq!(witness.check(&engine).await.unwrap(), []);
    let found = witness.check_all_ended(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::Poison]);
}

#[tokio::test]
async fn a_run_that_nobody_drives_is_named() {
    let store = MemoryStore::new();
    let engine = TestEngine::builder()
        .register::<order>()
        .configure(|engine| engine.evict_after(None))
        .store(store.clone());
    let engine = engine.open().await.unwrap();
    let run = engine.start(order(1)).await.unwrap();
    engine.advance(HOUR).await;
    assert_eq!(check_invariants(&engine).await.unwrap(), []);
    // Somebody claims it behind the engine's back, and does nothing with it.
    store.claim(run.id(), 0).await.unwrap().unwrap();
    run.signal("tip", &1_u64).await.unwrap();
    engine.advance(HOUR).await;
    let found = check_invariants(&engine).await.unwrap();
    assert_eq!(rules(&found), [Invariant::NoOrphan], "{found:?}");
}
