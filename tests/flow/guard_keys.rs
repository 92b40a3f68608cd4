//! Keys in the engine's store: the contract, crashes at every write, restarts on disk, the sweep, the end of an engine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use workflow_runtime::idempotency::conformance::Harness;
use workflow_runtime::idempotency::{InFlight, KeyError, KeyStore, OnceError};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::sled::{SledOptions, SledStore};
use workflow_runtime::store::{BoxFuture, NoteKey, Store};
use workflow_runtime::{Digest, Engine, Error};
use workflow_tests::{Edited, Stumble, Stumbles};

async fn open(store: impl Store) -> Engine {
    Engine::builder().open_with(store).await.expect("opens")
}

/// Keys of an engine in memory.
#[derive(Default)]
struct InMemory(Mutex<Option<MemoryStore>>);

impl InMemory {
    async fn keys(&self, store: MemoryStore) -> Arc<dyn KeyStore> {
        *self.0.lock().expect("not poisoned") = Some(store.clone());
        Arc::new(open(store).await.keys())
    }
}

impl Harness for InMemory {
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn KeyStore>> {
        Box::pin(self.keys(MemoryStore::new()))
    }

    fn again(&self, old: Arc<dyn KeyStore>) -> BoxFuture<'_, Option<Arc<dyn KeyStore>>> {
        drop(old);
        let store = self
            .0
            .lock()
            .expect("not poisoned")
            .take()
            .expect("fresh came first");
        Box::pin(async move { Some(self.keys(store.reopen(Surviving::Synced)).await) })
    }
}

mod in_memory {
    workflow_runtime::key_store_conformance!(super::InMemory::default());
}

/// Keys of an engine on a directory.
struct OnDisk(TempDir);

impl OnDisk {
    fn path(&self) -> PathBuf {
        self.0.path().join("db")
    }

    async fn keys(&self) -> Arc<dyn KeyStore> {
        for _ in 0..500 {
            match SledStore::open(self.path(), SledOptions::default()) {
                Ok(store) => return Arc::new(open(store).await.keys()),
                // The last handle closes the directory in the background.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("the directory is never let go of");
    }
}

impl Harness for OnDisk {
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn KeyStore>> {
        Box::pin(self.keys())
    }

    fn again(&self, old: Arc<dyn KeyStore>) -> BoxFuture<'_, Option<Arc<dyn KeyStore>>> {
        drop(old);
        Box::pin(async { Some(self.keys().await) })
    }
}

mod on_disk {
    workflow_runtime::key_store_conformance!(super::OnDisk(
        tempfile::tempdir().expect("a directory")
    ));
}

/// Does three pieces of work, each asked for three times, through one crash per plan; returns how often
/// each was done.
async fn live_through(plans: Vec<FaultPlan>, surviving: Surviving) -> (Vec<u32>, u64) {
    let done: Vec<_> = (0..3).map(|_| AtomicU32::new(0)).collect();
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    loop {
        let living = async {
            let engine = open(store.clone()).await;
            for (n, done) in (0u32..).zip(&done) {
                for _ in 0..3 {
                    let work = async || {
                        done.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, Error>("x".repeat(100_000 * n as usize)) // the last one has chunks
                    };
                    let once = engine.once(n).body(&n).run(work);
                    let outcome = once.await.expect("is done");
                    assert_eq!(outcome.len(), 100_000 * n as usize);
                }
            }
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => break,
        }
        store = store.reopen(surviving);
        store.set_faults(plans.next().unwrap_or_default());
    }
    let done = done.iter().map(|n| n.load(Ordering::SeqCst)).collect();
    (done, store.writes())
}

#[tokio::test]
async fn a_crash_at_any_write_loses_no_recorded_outcome() {
    let (done, writes) = live_through(vec![], Surviving::Synced).await;
    assert_eq!((done, writes), (vec![1, 1, 1], 3), "one write for each");
    for first in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let plans = vec![FaultPlan::at(first, fault)];
            let (done, _) = live_through(plans, Surviving::Synced).await;
            // Only the work whose outcome was being written may have been done twice.
            let again = u32::from(fault != Fault::CrashAfter);
            let mut expected = vec![1, 1, 1];
            expected[first as usize] += again;
            assert_eq!(done, expected, "{fault:?} at {first}");
            for second in 0..writes - first {
                let plans = vec![FaultPlan::at(first, fault), FaultPlan::at(second, fault)];
                let (done, _) = live_through(plans, Surviving::Synced).await;
                assert!(done.iter().sum::<u32>() <= 3 + 2 * again, "{done:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_outcome_that_could_not_be_recorded_is_not_returned() {
    for fault in [Fault::FailWrite, Fault::FailSync] {
        let store = MemoryStore::with_faults(FaultPlan::at(0, fault));
        let engine = open(store.clone()).await;
        let once = engine.once("k").run(async || Ok::<_, Error>(1)).await;
        assert!(matches!(&once, Err(OnceError::NotRecorded(_))), "{once:?}");
        let text = once.expect_err("fails").to_string();
        assert!(text.contains("a repetition may do it again"), "{text}");
        let next = engine.once("k").run(async || Ok::<_, Error>(2)).await;
        assert!(next.is_err(), "the store has stopped: {next:?}");
    }
}

#[tokio::test]
async fn outcomes_are_there_after_restarts_on_disk_and_free_keys_are_free() {
    let dir = tempfile::tempdir().expect("a directory");
    let times = AtomicU32::new(0);
    for life in 0..4u64 {
        let builder = Engine::builder();
        let engine = builder.open(dir.path().join("db")).await.expect("opens");
        for n in 0..=life {
            let once = engine.once(n).body(&n).run(async || {
                times.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Error>(vec![n; 50_000])
            });
            assert_eq!(once.await.expect("is done"), vec![n; 50_000]);
        }
        let failing = engine
            .once("failing")
            .run(async || Err::<(), _>(Error::new("no")));
        assert!(matches!(failing.await, Err(OnceError::Failed(_))));
        engine.shutdown().await.expect("stops");
    }
    assert_eq!(times.load(Ordering::SeqCst), 4);
}

async fn notes_in(store: &dyn Store) -> Vec<usize> {
    let mut counts = Vec::new();
    for space in [0x70, 0x71, 0x72] {
        let notes = store.notes(NoteKey::new(space, &[]), None, usize::MAX);
        counts.push(notes.await.expect("listed").len());
    }
    counts
}

#[tokio::test]
async fn the_sweep_removes_what_expired_in_batches_and_nothing_else() {
    let store = MemoryStore::new();
    let engine = open(store.clone()).await;
    let other = Engine::builder()
        .namespace("other")
        .open_with(store.clone());
    let other = other.await.expect("opens");
    for n in 0..250u32 {
        let ttl = Duration::from_millis(if n % 10 == 0 { 3_600_000 } else { 1 });
        let size = if n % 50 == 1 { 300_000 } else { 1 };
        let work = async || Ok::<_, Error>("x".repeat(size));
        engine.once(n).ttl(ttl).run(work).await.expect("is done");
    }
    let forgotten = other.once(1).ttl(Duration::ZERO);
    forgotten
        .run(async || Ok::<_, Error>(1))
        .await
        .expect("is done");
    assert_eq!(notes_in(&store).await, [251, 251, 10]);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let before = store.writes();
    assert_eq!(engine.keys().sweep().await.expect("sweeps"), 225);
    assert_eq!(store.writes() - before, 3, "in batches");
    assert_eq!(notes_in(&store).await, [26, 26, 0]);
    assert_eq!(engine.keys().sweep().await.expect("sweeps"), 0);
    assert_eq!(other.keys().sweep().await.expect("sweeps"), 1);
    let kept = engine
        .once(10)
        .run(async || Ok::<_, Error>("anew".to_owned()));
    assert_eq!(kept.await.expect("is kept"), "x");
}

#[tokio::test]
async fn one_write_of_the_sweep_removes_few_large_outcomes() {
    const CHUNK: usize = 128 * 1024; // in a row, and in each part behind it
    for (outcomes, writes) in [(9u32, 1), (10, 2)] {
        let store = MemoryStore::new();
        let engine = open(store.clone()).await;
        for n in 0..outcomes {
            let once = engine.once(n).ttl(Duration::ZERO);
            let work = async || Ok::<_, Error>("x".repeat(9 * CHUNK - 100));
            once.run(work).await.expect("is done");
        }
        let rows = outcomes as usize;
        assert_eq!(notes_in(&store).await, [rows, rows, 8 * rows]);
        let before = store.writes();
        let swept = engine.keys().sweep().await;
        assert_eq!(swept.expect("sweeps"), u64::from(outcomes));
        // 64 parts are enough for one; the last of them may bring more.
        assert_eq!(store.writes() - before, writes, "{outcomes} outcomes");
        assert_eq!(notes_in(&store).await, [0, 0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_that_sweeps_goes_on_after_an_error_of_a_store_that_works() {
    let (store, stumbles) = (MemoryStore::new(), Stumbles::default());
    let edited = Edited {
        store: store.clone(),
        edit: stumbles.clone(),
    };
    let engine = open(edited).await;
    let once = engine.once(1).ttl(Duration::ZERO);
    let work = async || Ok::<_, Error>(1);
    once.run(work).await.expect("is done");
    assert_eq!(notes_in(&store).await, [1, 1, 0]);
    stumbles.refuse(Stumble::Commit);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(601)).await;
    }
    assert!(stumbles.is_over(), "it was refused");
    assert_eq!(notes_in(&store).await, [0, 0, 0], "and tried again");
}

#[tokio::test]
async fn a_crash_at_any_write_of_the_sweep_leaves_no_half_of_a_key() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
        for write in 0..3 {
            let store = MemoryStore::new();
            let engine = open(store.clone()).await;
            for n in 0..250u32 {
                let once = engine.once(n).ttl(Duration::ZERO);
                let work = async || Ok::<_, Error>("x".repeat(1 + 150_000 * usize::from(n == 99)));
                once.run(work).await.expect("is done");
            }
            let first = store.writes();
            store.set_faults(FaultPlan::at(first + write, fault));
            let keys = engine.keys();
            tokio::select! {
                biased;
                () = store.crashed() => {}
                swept = keys.sweep() => panic!("it was to crash: {swept:?}"),
            }
            drop((keys, engine));
            let store = store.reopen(Surviving::Synced);
            let engine = open(store.clone()).await;
            engine.keys().sweep().await.expect("sweeps");
            assert_eq!(notes_in(&store).await, [0, 0, 0], "{fault:?} at {write}");
        }
    }
}

#[tokio::test]
async fn a_key_done_anew_leaves_nothing_of_its_expired_outcome() {
    let store = MemoryStore::new();
    let engine = open(store.clone()).await;
    for size in [400_000, 300_000, 5] {
        let once = engine.once("k").ttl(Duration::from_millis(1));
        let work = async || Ok::<_, Error>("x".repeat(size));
        assert_eq!(once.run(work).await.expect("is done").len(), size);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(notes_in(&store).await, [1, 1, 0]);
}

#[tokio::test]
async fn of_two_engines_on_one_store_one_outcome_is_recorded_and_both_return_it() {
    let store = MemoryStore::new();
    let engines = [open(store.clone()).await, open(store.clone()).await];
    let calls = (0u32..).zip(&engines).map(|(n, engine)| async move {
        let work = async || {
            tokio::time::sleep(Duration::from_millis(20)).await; // both work
            Ok::<_, Error>(n)
        };
        engine.once("k").run(work).await.expect("is done")
    });
    let outcomes = futures::future::join_all(calls).await;
    assert_eq!(outcomes[0], outcomes[1]);
    let third = open(store)
        .await
        .once("k")
        .run(async || Ok::<_, Error>(9))
        .await;
    assert_eq!(third.expect("is done"), outcomes[0]);
}

#[tokio::test]
async fn a_shutdown_waits_for_work_in_flight_and_records_its_outcome() {
    let store = MemoryStore::new();
    let engine = open(store.clone()).await;
    let keys = engine.keys();
    let working = engine.once("k").run(async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, Error>(1)
    });
    let working = tokio::spawn(working);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let asking = engine.clone();
    engine.shutdown().await.expect("stops");
    assert_eq!(working.await.expect("no panic").expect("is done"), 1);
    let refused = asking.once("j").in_flight(InFlight::Refuse);
    let refused = refused.run(async || Ok::<_, Error>(1)).await;
    assert!(
        matches!(refused, Err(OnceError::Keys(KeyError::Stopped))),
        "{refused:?}"
    );
    drop((keys, asking));
    let engine = open(store.reopen(Surviving::Synced)).await;
    let again = engine.once("k").run(async || Ok::<_, Error>(2)).await;
    assert_eq!(again.expect("is done"), 1);
}

#[tokio::test]
async fn a_caller_that_goes_while_its_outcome_is_written_does_not_undo_it() {
    let store = MemoryStore::new();
    let engine = open(store.clone()).await;
    store.hold();
    let once = engine.once("k").run(async || Ok::<_, Error>(1));
    let dropped = tokio::time::timeout(Duration::from_millis(50), once).await;
    assert!(dropped.is_err(), "the store answers nothing yet");
    let waiting = tokio::spawn(engine.once("k").run(async || Ok::<_, Error>(2)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(
        !waiting.is_finished(),
        "nobody takes over what is being written"
    );
    store.release();
    assert_eq!(waiting.await.expect("no panic").expect("is done"), 1);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_an_error_that_names_the_key_and_runs_nothing() {
    use workflow_runtime::idempotency::KeyId;
    use workflow_runtime::store::{Changes, Commit, NoteChange};
    let store = MemoryStore::new();
    let id = KeyId::derive("once", "", &"k".into());
    let note = NoteChange {
        key: NoteKey::new(0x70, &[b"default", id.as_bytes()]),
        value: Some(vec![9, 9, 9].into()),
    };
    let changes = Changes {
        notes: vec![note],
        ..Changes::default()
    };
    let guards = Vec::new();
    store
        .commit(Commit { guards, changes })
        .await
        .expect("writes");
    let engine = open(store).await;
    for _ in 0..2 {
        let refused = engine.once("k").run(async || Ok::<_, Error>(1)).await;
        let text = refused.expect_err("cannot be read").to_string();
        assert!(
            text.contains(&id.to_string()) && text.contains("format 9"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn an_outcome_of_sixteen_mebibytes_is_kept_and_a_larger_one_is_said_to_be_too_large() {
    use workflow_runtime::idempotency::{Completion, KeyId, OwnerId, Reservation, Reserve};
    let keys = open(MemoryStore::new()).await.keys();
    let limit = 16_777_216;
    assert_eq!(keys.outcome_limit(), limit);
    let request = |name: &str| Reserve {
        key: KeyId::derive("once", "", &name.into()),
        body: Digest::from_bytes([0; 16]),
        owner: OwnerId::next(),
        lease: Duration::from_secs(60),
    };
    for (name, len) in [("fits", limit), ("does not", limit + 1)] {
        let reserved = keys.reserve(request(name)).await.expect("an answer");
        let Reservation::New(ticket) = reserved else {
            panic!("{reserved:?}");
        };
        let outcome = vec![7; len].into();
        let completed = keys
            .complete(&ticket, outcome, Duration::from_secs(60))
            .await;
        match completed {
            Ok(completion) => assert_eq!((name, completion), ("fits", Completion::Recorded)),
            Err(error) => {
                assert_eq!(name, "does not", "{error}");
                assert!(matches!(error, KeyError::TooLarge { .. }), "{error}");
            }
        }
    }
    let done = keys.reserve(request("fits")).await.expect("an answer");
    assert!(matches!(done, Reservation::Done(done) if done.outcome.len() == limit));
}
