//! `engine.once(key)`: work that runs once per key, among concurrent callers, failures, panics and restarts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use workflow_runtime::idempotency::{InFlight, Once, OnceError};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{Engine, Error, PayloadCodec, step, workflow};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Receipt {
    customer: String,
    cents: u64,
}

fn receipt(cents: u64) -> Receipt {
    Receipt {
        customer: "ada".into(),
        cents,
    }
}

async fn engine() -> Engine {
    let engine = Engine::builder().open_in_memory().await;
    engine.expect("opens")
}

/// Work that counts how often it is done.
#[derive(Clone, Default)]
struct Work(Arc<AtomicU32>);

impl Work {
    async fn charge(&self, cents: u64) -> Result<Receipt, Error> {
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        Ok(receipt(cents))
    }

    fn times(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_repetition_gets_the_recorded_outcome_without_a_write() {
    let store = MemoryStore::new();
    let engine = Engine::builder()
        .open_with(store.clone())
        .await
        .expect("opens");
    let work = Work::default();
    let before = store.writes();
    for _ in 0..5 {
        let charged = engine.once("order-1").body(&500).run(|| work.charge(500));
        assert_eq!(charged.await.expect("is charged"), receipt(500));
        assert_eq!(store.writes(), before + 1, "one write, of the outcome");
    }
    assert_eq!(work.times(), 1);
}

#[tokio::test]
async fn another_body_under_the_same_key_is_a_conflict_that_names_both() {
    let engine = engine().await;
    let work = Work::default();
    let first = HashMap::from([("a", 1), ("b", 2), ("c", 3)]);
    let same = HashMap::from([("c", 3), ("b", 2), ("a", 1)]);
    let other = HashMap::from([("a", 1), ("b", 2), ("c", 4)]);
    let once = |body: HashMap<&'static str, i32>| engine.once("order-1").body(&body);
    once(first)
        .run(|| work.charge(1))
        .await
        .expect("is charged");
    once(same)
        .run(|| work.charge(1))
        .await
        .expect("is the same");
    let refused = once(other).run(|| work.charge(1)).await;
    let Err(OnceError::Conflict { first, now, .. }) = &refused else {
        panic!("{refused:?}");
    };
    assert_ne!(first, now);
    let text = refused.expect_err("refused").to_string();
    assert!(
        text.contains("order-1") && text.contains("use another key"),
        "{text}"
    );
    assert_eq!(work.times(), 1);
}

#[tokio::test]
async fn work_that_failed_frees_its_key() {
    let engine = engine().await;
    let failed = engine
        .once("k")
        .run(|| async { Err::<Receipt, _>(Error::new("no money")) });
    let failed = failed.await.expect_err("fails");
    assert!(matches!(&failed, OnceError::Failed(error) if error.to_string() == "no money"));
    let work = Work::default();
    let other_body = engine.once("k").body("another").run(|| work.charge(7));
    assert_eq!(other_body.await.expect("is tried again"), receipt(7));
}

#[tokio::test]
async fn of_64_callers_at_once_one_does_the_work_and_all_get_its_outcome() {
    for round in 0..20 {
        let engine = engine().await;
        let work = Work::default();
        let callers = (0..64).map(|_| {
            let (engine, work) = (engine.clone(), work.clone());
            tokio::spawn(async move { engine.once(round).run(|| work.charge(9)).await })
        });
        for charged in join_all(callers).await {
            assert_eq!(charged.expect("no panic").expect("is charged"), receipt(9));
        }
        assert_eq!(work.times(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_on_many_threads_take_over_from_those_that_fail() {
    for round in 0..50 {
        let engine = engine().await;
        let tries = Arc::new(AtomicU32::new(0));
        let callers = (0..32).map(|_| {
            let (engine, tries) = (engine.clone(), tries.clone());
            tokio::spawn(async move {
                let work = async || match tries.fetch_add(1, Ordering::SeqCst) {
                    0..3 => Err(Error::new("not yet")),
                    n => Ok(n),
                };
                engine.once(round).run(work).await
            })
        });
        let mut failed = 0;
        for answer in join_all(callers).await {
            match answer.expect("no panic") {
                Ok(n) => assert_eq!(n, 3),
                Err(OnceError::Failed(_)) => failed += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!((failed, tries.load(Ordering::SeqCst)), (3, 4));
    }
}

#[tokio::test]
async fn who_will_not_wait_is_told_since_when_the_key_is_in_flight() {
    let engine = engine().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = tokio::spawn({
        let (engine, begun, go) = (engine.clone(), begun.clone(), go.clone());
        async move {
            let work = async || {
                begun.notify_one();
                go.notified().await;
                Ok::<_, Error>(1)
            };
            engine.once("k").run(work).await
        }
    });
    begun.notified().await;
    let never = || async { Ok::<_, Error>(2) };
    for policy in [
        InFlight::Refuse,
        InFlight::WaitAtMost(Duration::from_millis(20)),
    ] {
        let refused = engine.once("k").in_flight(policy).run(never).await;
        assert!(
            matches!(&refused, Err(OnceError::InFlight { .. })),
            "{refused:?}"
        );
        let text = refused.expect_err("refused").to_string();
        assert!(text.contains("in flight since 20"), "{text}");
    }
    let waiting = engine
        .once("k")
        .in_flight(InFlight::WaitAtMost(Duration::from_secs(600)));
    let waiting = tokio::spawn(waiting.run(never));
    tokio::task::yield_now().await;
    go.notify_one();
    assert_eq!(first.await.expect("no panic").expect("is done"), 1);
    assert_eq!(waiting.await.expect("no panic").expect("is told"), 1);
}

#[tokio::test]
async fn a_panic_and_a_drop_free_the_key_and_a_waiting_caller_takes_over() {
    let engine = engine().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    for panics in [true, false] {
        let first = tokio::spawn({
            let (engine, begun, go) = (engine.clone(), begun.clone(), go.clone());
            async move {
                let work = async || {
                    begun.notify_one();
                    go.notified().await;
                    assert!(!panics, "on purpose");
                    std::future::pending::<Result<u8, Error>>().await
                };
                let hour = Duration::from_secs(3600); // the key is freed, not taken over
                engine.once(u8::from(panics)).lease(hour).run(work).await
            }
        });
        begun.notified().await;
        let second = engine
            .once(u8::from(panics))
            .run(|| async { Ok::<_, Error>(2) });
        let second = tokio::spawn(second);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!second.is_finished());
        match panics {
            true => go.notify_one(),
            false => first.abort(),
        }
        let second = tokio::time::timeout(Duration::from_secs(120), second).await;
        let second = second.expect("in time").expect("no panic");
        assert_eq!(second.expect("took over"), 2);
        assert!(first.await.is_err());
    }
}

#[tokio::test]
async fn work_that_is_longer_than_its_lease_keeps_the_key_while_it_is_polled() {
    let engine = engine().await;
    let once = || engine.once("k").lease(Duration::from_secs(2));
    let slow = once().run(|| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok::<_, Error>(1)
    });
    let slow = tokio::spawn(slow);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let work = Work::default();
    let other = once().run(|| async {
        work.charge(2).await?;
        Ok::<_, Error>(2)
    });
    assert_eq!(other.await.expect("waits"), 1);
    assert_eq!(work.times(), 0);
    assert_eq!(slow.await.expect("no panic").expect("is done"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_blocked_past_its_lease_gets_the_outcome_of_its_successor() {
    let engine = engine().await;
    let begun = Arc::new(Notify::new());
    let late = tokio::spawn({
        let (engine, begun) = (engine.clone(), begun.clone());
        async move {
            let work = async || {
                begun.notify_one();
                std::thread::sleep(Duration::from_secs(4)); // no sign of life meanwhile
                Ok::<_, Error>("late")
            };
            let once = engine.once("k").lease(Duration::from_millis(100));
            once.run(async || work().await.map(str::to_owned)).await
        }
    });
    begun.notified().await;
    let successor = engine
        .once("k")
        .run(async || Ok::<_, Error>("successor".to_owned()));
    assert_eq!(successor.await.expect("takes over"), "successor");
    assert_eq!(late.await.expect("no panic").expect("is told"), "successor");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_blocked_past_its_lease_records_its_outcome_if_its_successor_failed() {
    let engine = engine().await;
    let begun = Arc::new(Notify::new());
    let (fails, failed) = std::sync::mpsc::channel();
    let late = tokio::spawn({
        let (engine, begun) = (engine.clone(), begun.clone());
        let work = move || async move {
            begun.notify_one();
            failed.recv().expect("is told"); // no sign of life meanwhile
            Ok::<_, Error>(1)
        };
        async move {
            let once = engine.once("k").lease(Duration::from_millis(100));
            once.run(work).await
        }
    });
    begun.notified().await;
    let successor = engine.once("k").run(async || Err::<u32, _>("no"));
    let refused = successor.await.expect_err("takes over, and fails");
    assert!(matches!(refused, OnceError::Failed("no")));
    fails.send(()).expect("somebody waits");
    assert_eq!(late.await.expect("no panic").expect("is recorded"), 1);
    let again = engine.once("k").run(async || Ok::<_, Error>(2));
    assert_eq!(again.await.expect("is known"), 1);
}

#[tokio::test]
async fn an_outcome_is_forgotten_when_its_time_from_completion_is_over() {
    let engine = engine().await;
    let ttl = Duration::from_millis(100);
    let work = Work::default();
    let once = || engine.once("k").ttl(ttl);
    once().run(|| work.charge(1)).await.expect("is charged");
    tokio::time::sleep(2 * ttl).await;
    once()
        .body("another")
        .run(|| work.charge(2))
        .await
        .expect("is charged anew");
    assert_eq!(work.times(), 2);
}

#[tokio::test]
async fn namespaces_and_scopes_keep_equal_keys_apart() {
    let store = MemoryStore::new();
    let work = Work::default();
    for namespace in ["one", "two"] {
        let builder = Engine::builder().namespace(namespace);
        let engine = builder.open_with(store.clone()).await.expect("opens");
        for scope in ["", "acme", "umbrella"] {
            for _ in 0..2 {
                let once = engine.once("k").scope(scope);
                once.run(|| work.charge(1)).await.expect("is charged");
            }
        }
    }
    assert_eq!(work.times(), 6);
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_refused_before_the_work() {
    let engine = engine().await;
    let work = Work::default();
    for key in [String::new(), "k".repeat(1025)] {
        let refused = engine.once(key).run(|| work.charge(1)).await;
        assert!(matches!(refused, Err(OnceError::Key(_))), "{refused:?}");
    }
    assert_eq!(work.times(), 0);
}

#[tokio::test]
async fn a_value_that_cannot_be_kept_is_an_error_and_the_work_is_not_done_again() {
    let engine = Engine::builder().payload_limit(100).open_in_memory().await;
    let engine = engine.expect("opens");
    let times = AtomicU32::new(0);
    for _ in 0..3 {
        let large = engine.once("k").run(async || {
            times.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>("x".repeat(1_000))
        });
        let refused = large.await.expect_err("is too large");
        let text = refused.to_string();
        assert!(matches!(refused, OnceError::NoValue(_)), "{text}");
        assert!(text.contains("100 bytes") && !text.contains("xx"), "{text}");
    }
    assert_eq!(times.load(Ordering::SeqCst), 1);
    engine
        .once("typed")
        .run(async || Ok::<_, Error>("text".to_owned()))
        .await
        .expect("is kept");
    let other_type = engine
        .once("typed")
        .run(async || Ok::<_, Error>(5u64))
        .await;
    assert!(
        matches!(other_type, Err(OnceError::Outcome(_))),
        "{other_type:?}"
    );
}

#[tokio::test]
async fn keys_are_usable_without_an_engine_at_hand() {
    let engine = engine().await;
    let keys = engine.keys();
    let work = Work::default();
    for _ in 0..2 {
        Once::new(&keys, "k")
            .run(|| work.charge(1))
            .await
            .expect("is charged");
    }
    engine
        .once("k")
        .run(|| work.charge(1))
        .await
        .expect("is the same key");
    assert_eq!(work.times(), 1);
}

#[tokio::test]
async fn a_value_that_is_too_large_for_the_store_is_not_done_again_either() {
    let engine = Engine::builder()
        .payload_limit(16 * 1024 * 1024)
        .open_in_memory()
        .await;
    let engine = engine.expect("opens");
    let times = AtomicU32::new(0);
    for _ in 0..2 {
        let large = engine.once("k").run(async || {
            times.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>("x".repeat(16 * 1024 * 1024))
        });
        let refused = large.await.map(|text| text.len());
        assert!(matches!(refused, Err(OnceError::NoValue(_))), "{refused:?}");
    }
    assert_eq!(times.load(Ordering::SeqCst), 1);
    let fits = engine
        .once("j")
        .run(async || Ok::<_, Error>("x".repeat(16 * 1024 * 1024 - 100)));
    assert!(fits.await.is_ok());
}

struct Backwards;

impl PayloadCodec for Backwards {
    fn encode(&self, mut plain: Vec<u8>) -> Result<Vec<u8>, String> {
        plain.reverse();
        plain.push(0xcc);
        Ok(plain)
    }

    fn decode(&self, coded: &[u8]) -> Result<Vec<u8>, String> {
        let (mark, rest) = coded.split_last().ok_or("empty")?;
        if *mark != 0xcc {
            return Err("not mine".into());
        }
        Ok(rest.iter().rev().copied().collect())
    }
}

#[tokio::test]
async fn the_payload_codec_covers_what_is_kept_under_a_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let secret = "attack at dawn";
    for _ in 0..2 {
        let builder = Engine::builder().payload_codec(Backwards);
        let engine = builder.open(dir.path().join("db")).await.expect("opens");
        let kept = engine
            .once("k")
            .run(async || Ok::<_, Error>(secret.to_owned()))
            .await;
        assert_eq!(kept.expect("is kept"), secret);
        engine.shutdown().await.expect("stops");
    }
    let mut files = vec![dir.path().to_owned()];
    let mut bytes = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("lists");
            files.extend(entries.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let content = std::fs::read(&path).expect("reads");
        bytes += content.len();
        let found = content
            .windows(secret.len())
            .any(|w| w == secret.as_bytes());
        assert!(!found, "{}", path.display());
    }
    assert!(bytes > 0);
}

#[step]
async fn guarded_step() -> workflow_runtime::Result<u32> {
    let engine = workflow_runtime::resource::<std::sync::Mutex<Option<Engine>>>();
    let engine = engine
        .lock()
        .expect("not poisoned")
        .clone()
        .expect("is set");
    Ok(engine
        .once("inside")
        .run(async || Ok::<_, Error>(5))
        .await?)
}

#[workflow]
async fn uses_a_guard() -> workflow_runtime::Result<u32> {
    guarded_step().await
}

#[tokio::test]
async fn a_step_may_use_a_guard() {
    let slot = Arc::new(std::sync::Mutex::new(None));
    let builder = Engine::builder()
        .register::<uses_a_guard>()
        .resource_arc(slot.clone());
    let engine = builder.open_in_memory().await.expect("opens");
    *slot.lock().expect("not poisoned") = Some(engine.clone());
    let run = engine.start(uses_a_guard()).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 5);
}
