//! `.idempotency_key(k).shared(ttl)`: of all calls of a step under a key, in all runs of a namespace, one runs its
//! body.

mod crashes;
mod expiring;
mod failing;
mod programs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{
    DuplicateBody, DuplicateKind, Engine, EngineBuilder, PayloadCodec, Result, RunError, StepId,
    get_step_metadata, step, workflow,
};
use workflow_tests::{Ledger, frames, steps};

const AN_HOUR: Duration = Duration::from_secs(3600);

/// What bodies are told from outside.
struct World {
    numbers: AtomicU32,
    /// Bodies take one to go on.
    gate: Semaphore,
    /// Bodies that have begun.
    begun: AtomicU32,
}

impl World {
    /// A world in which bodies wait until they are let through.
    fn closed() -> Arc<Self> {
        Arc::new(Self {
            numbers: AtomicU32::new(0),
            gate: Semaphore::new(0),
            begun: AtomicU32::new(0),
        })
    }

    fn open() -> Arc<Self> {
        let world = Self::closed();
        world.let_through(1_000_000);
        world
    }

    fn let_through(&self, bodies: usize) {
        self.gate.add_permits(bodies);
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    async fn enter(&self) -> u32 {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let permit = self.gate.acquire().await.expect("is never closed");
        permit.forget();
        self.numbers.fetch_add(1, Ordering::SeqCst)
    }
}

/// What a run was given: a number that no two bodies share, and the id that the body saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    number: u32,
    id: StepId,
}

#[step(max_attempts = 1)]
async fn pay(
    #[resource] ledger: &Ledger,
    #[resource] world: &World,
    cents: u32,
) -> Result<Receipt> {
    ledger.act(&format!("pay {cents}"));
    let number = world.enter().await;
    let id = get_step_metadata().step_id;
    Ok(Receipt { number, id })
}

#[workflow]
async fn paying(key: String, cents: u32, ttl: Duration) -> Result<Receipt> {
    pay(cents).idempotency_key(key).shared(ttl).await
}

/// The same step and key from another workflow, in another scope, behind another step.
#[workflow]
async fn paying_elsewhere(key: String, cents: u32) -> Result<Receipt> {
    idle().await?;
    async { pay(cents).idempotency_key(key).shared(AN_HOUR).await }.await
}

#[step]
async fn idle() -> Result<()> {
    Ok(())
}

#[workflow]
async fn paying_twice_at_once(key: String) -> Result<(Receipt, Receipt)> {
    let call = || pay(5).idempotency_key(&*key).shared(AN_HOUR);
    let (a, b) = futures::join!(call(), call());
    Ok((a?, b?))
}

/// The keyed call is dropped with its outcome on its way to the journal.
#[workflow]
async fn losing(key: String) -> Result<bool> {
    let pays = Box::pin(pay(5).idempotency_key(key).shared(AN_HOUR));
    Ok(match select(Box::pin(idle()), pays).await {
        Either::Left(_) => true,
        Either::Right(_) => false,
    })
}

#[step]
async fn large(#[resource] world: &World, bytes: usize) -> Result<(u32, String)> {
    Ok((world.enter().await, "x".repeat(bytes)))
}

#[workflow]
async fn sharing_large(bytes: usize) -> Result<(u32, usize)> {
    let (number, text) = large(bytes)
        .idempotency_key("large")
        .shared(AN_HOUR)
        .await?;
    Ok((number, text.len()))
}

fn engine(ledger: &Arc<Ledger>, world: &Arc<World>) -> EngineBuilder {
    Engine::builder()
        .register::<paying>()
        .register::<paying_elsewhere>()
        .register::<paying_twice_at_once>()
        .register::<losing>()
        .register::<sharing_large>()
        .resource_arc(ledger.clone())
        .resource_arc(world.clone())
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn runs_that_share_a_key_run_its_body_once_and_each_has_a_record_of_its_own() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &world).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let before = store.writes();
    let first = engine.start(paying("k".into(), 5, AN_HOUR));
    let first = first.await.expect("starts");
    let paid = first.result().await.expect("ends well");
    assert_eq!(
        store.writes() - before,
        3,
        "start, end, and one write for the step and its key"
    );
    let second = engine.start(paying_elsewhere("k".into(), 5));
    let second = second.await.expect("starts");
    assert_eq!(second.result().await.expect("ends well"), paid);
    assert_eq!(
        store.writes() - before,
        7,
        "and for a repetition its own records"
    );
    assert_eq!((ledger.asked(), world.begun()), (1, 1));
    let journal = engine.journal(second.id()).await.expect("reads");
    assert_eq!(steps(&journal)[1].attempts, 0, "{journal}");
    let seen = first.duplicates().await.expect("reads");
    assert_eq!(seen.count(DuplicateKind::Step), 1);
    assert_eq!(
        seen.recent().next().map(|one| one.body),
        Some(DuplicateBody::Same)
    );
    assert_eq!(engine.duplicates_seen(DuplicateKind::Step), 1);
    let other = engine.start(paying("other".into(), 5, AN_HOUR));
    let other = other.await.expect("starts").result().await;
    assert_ne!(other.expect("ends well").id, paid.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_runs_at_once_on_many_threads_one_runs_the_body() {
    for round in 0..20 {
        let (ledger, world) = (Ledger::shared(), World::open());
        let engine = engine(&ledger, &world).open_in_memory();
        let engine = engine.await.expect("opens");
        let runs = (0..64).map(|n| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let key = format!("round-{round}");
                if n % 2 == 0 {
                    let run = engine.start(paying(key, 5, AN_HOUR)).await;
                    run.expect("starts").result().await.expect("ends well")
                } else {
                    let run = engine.start(paying_elsewhere(key, 5)).await;
                    run.expect("starts").result().await.expect("ends well")
                }
            })
        });
        let receipts = join_all(runs).await.into_iter();
        let receipts: Vec<_> = receipts.map(|one| one.expect("no panic")).collect();
        assert!(receipts.iter().all(|one| *one == receipts[0]));
        assert_eq!((ledger.asked(), world.begun()), (1, 1));
    }
}

#[tokio::test]
async fn calls_of_one_run_share_a_key_at_once() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = engine(&ledger, &world).open_in_memory();
    let engine = engine.await.expect("opens");
    let run = engine.start(paying_twice_at_once("k".into()));
    let (a, b) = run
        .await
        .expect("starts")
        .result()
        .await
        .expect("ends well");
    assert_eq!((a, ledger.asked()), (b, 1));
}

#[tokio::test]
async fn nobody_is_given_an_outcome_before_it_is_durable() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let store = MemoryStore::new();
    let engine = engine(&ledger, &world).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let first = engine.start(paying("k".into(), 5, AN_HOUR));
    let first = first.await.expect("starts");
    let second = engine.start(paying("k".into(), 5, AN_HOUR));
    let second = second.await.expect("starts");
    settle().await;
    store.hold();
    world.let_through(5);
    settle().await;
    assert_eq!(
        frames(&store, second.id()).await.len(),
        1,
        "it waits for the disk"
    );
    store.release();
    let paid = first.result().await.expect("ends well");
    assert_eq!(second.result().await.expect("ends well"), paid);
    assert_eq!(world.begun(), 1);
}

#[tokio::test]
async fn another_input_is_a_conflict_while_the_key_is_in_flight_and_after() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let engine = engine(&ledger, &world).open_in_memory();
    let engine = engine.await.expect("opens");
    let first = engine.start(paying("k".into(), 5, AN_HOUR));
    let first = first.await.expect("starts");
    settle().await;
    for done in [false, true] {
        if done {
            world.let_through(1);
            first.result().await.expect("ends well");
        }
        let other = engine.start(paying("k".into(), 6, AN_HOUR));
        let refused = other.await.expect("starts").result().await;
        let Err(RunError::Failed(error)) = &refused else {
            panic!("{refused:?}");
        };
        let text = error.to_string();
        assert_eq!(text.matches("mod.rs:").count(), 2, "both calls: {text}");
        assert!(text.contains(&first.id().to_string()), "{text}");
        assert!(text.contains("\"k\"") && text.contains("`pay`"), "{text}");
        let digests = text.split([' ', ',', ':']);
        let digests = digests.filter(|word| word.len() == 32);
        assert_eq!(digests.count(), 2, "both inputs: {text}");
    }
    assert_eq!(ledger.effects(), ["pay 5"]);
    let seen = first.duplicates().await.expect("reads");
    let seen: Vec<_> = seen.recent().map(|one| (one.kind, one.body)).collect();
    assert_eq!(seen, [(DuplicateKind::Step, DuplicateBody::Other); 2]);
}

#[tokio::test]
async fn an_outcome_counts_for_the_others_also_if_its_call_was_dropped() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = engine(&ledger, &world).open_in_memory();
    let engine = engine.await.expect("opens");
    let lost = engine.start(losing("k".into())).await.expect("starts");
    assert!(lost.result().await.expect("ends well"));
    let next = engine.start(paying("k".into(), 5, AN_HOUR));
    let next = next.await.expect("starts").result().await;
    assert_eq!(next.expect("ends well").number, 0);
    assert_eq!(world.begun(), 1);
}

#[tokio::test]
async fn tenants_share_no_keys() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let store = MemoryStore::new();
    let mut receipts = Vec::new();
    for tenant in ["a", "b", "a"] {
        let engine = engine(&ledger, &world).namespace(tenant);
        let engine = engine.open_with(store.clone()).await.expect("opens");
        let run = engine.start(paying("k".into(), 5, AN_HOUR));
        let run = run.await.expect("starts").result().await;
        receipts.push(run.expect("ends well"));
    }
    assert_eq!(receipts[0], receipts[2]);
    assert_ne!(receipts[0].id, receipts[1].id);
    assert_eq!(world.begun(), 2);
}

#[tokio::test]
async fn a_large_outcome_is_shared_and_one_that_is_too_large_is_a_recorded_error() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = engine(&ledger, &world).payload_limit(16 << 20);
    let engine = engine.open_in_memory().await.expect("opens");
    for _ in 0..2 {
        let run = engine.start(sharing_large(500_000)).await.expect("starts");
        assert_eq!(run.result().await.expect("ends well"), (0, 500_000));
    }
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = self::engine(&ledger, &world).payload_limit(16 << 20);
    let engine = engine.open_in_memory().await.expect("opens");
    for attempt in 0..2 {
        let run = engine
            .start(sharing_large((16 << 20) - 20))
            .await
            .expect("starts");
        let refused = run.result().await;
        let Err(RunError::Failed(error)) = &refused else {
            panic!("{:?}", refused.map(drop));
        };
        let text = error.to_string();
        assert!(text.contains("cannot be shared"), "{text}");
        assert_eq!(
            world.begun(),
            attempt + 1,
            "it frees the key, and is not retried"
        );
    }
}

/// Turns every bit over, so that nothing plain reaches the store.
struct Inverting;

impl PayloadCodec for Inverting {
    fn encode(&self, plain: Vec<u8>) -> std::result::Result<Vec<u8>, String> {
        Ok(plain.into_iter().map(|byte| !byte).collect())
    }

    fn decode(&self, coded: &[u8]) -> std::result::Result<Vec<u8>, String> {
        Ok(coded.iter().map(|byte| !byte).collect())
    }
}

#[tokio::test]
async fn a_payload_codec_is_between_the_outcome_and_the_store() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let store = MemoryStore::new();
    for _ in 0..2 {
        let engine = engine(&ledger, &world).payload_codec(Inverting);
        let engine = engine.open_with(store.clone()).await.expect("opens");
        let run = engine.start(sharing_large(10)).await.expect("starts");
        assert_eq!(run.result().await.expect("ends well"), (0, 10));
    }
    assert_eq!(world.begun(), 1);
}

#[tokio::test]
async fn what_is_kept_and_cannot_be_read_parks_the_run_and_runs_nothing() {
    use workflow_runtime::idempotency::KeyId;
    use workflow_runtime::store::{Changes, Commit, NoteChange, NoteKey, ParkReason, Store as _};
    let (ledger, world) = (Ledger::shared(), World::open());
    let store = MemoryStore::new();
    let id = KeyId::derive("step", "pay", &"k".into());
    let broken = NoteKey::new(0x70, &[b"default", id.as_bytes()]);
    let change = |value: Option<Vec<u8>>| Commit {
        guards: Vec::new(),
        changes: Changes {
            notes: vec![NoteChange {
                key: broken.clone(),
                value: value.map(Into::into),
            }],
            ..Changes::default()
        },
    };
    let damage = store.commit(change(Some(vec![9, 9])));
    damage.await.expect("writes");
    let engine = engine(&ledger, &world).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let run = engine.start(paying("k".into(), 5, AN_HOUR));
    let run = run.await.expect("starts");
    let parked = run.result().await;
    let Err(RunError::Parked(parking)) = parked else {
        panic!("{parked:?}");
    };
    assert_eq!(parking.reason, ParkReason::Undecodable);
    let report = parking.report;
    assert!(
        report.contains("format 9") && report.contains("engine.resume"),
        "{report}"
    );
    assert_eq!(world.begun(), 0);
    store.commit(change(None)).await.expect("mends");
    engine.resume(run.id()).await.expect("resumes");
    run.result().await.expect("ends well");
    assert_eq!(world.begun(), 1);
}
