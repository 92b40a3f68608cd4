//! Who has a key and does not come to an outcome leaves it to the next one, who is the same to the outside world.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{Engine, EngineBuilder, Error, Result, RunError, RunHandle, step, workflow};
use workflow_tests::{Edited, Ledger, Stumble, Stumbles, frames, steps};

use super::{AN_HOUR, Receipt, World, engine, pay, paying, settle};

/// Fails as often as it is told, whoever calls it.
#[step(max_attempts = 2, backoff = "1ms..2ms")]
async fn shaky(
    #[resource] ledger: &Ledger,
    #[resource] world: &World,
    failures: u32,
) -> Result<u32> {
    ledger.act("shaky");
    match world.enter().await {
        n if n < failures => Err(Error::new(format!("failure {n}"))),
        n => Ok(n),
    }
}

#[workflow]
pub(super) async fn trying(failures: u32) -> Result<u32> {
    let shaky = shaky(failures);
    shaky.idempotency_key("k").shared(AN_HOUR).await
}

/// The first attempt fails, and the second one comes late.
#[step(max_attempts = 2)]
async fn patient(#[resource] ledger: &Ledger, #[resource] world: &World) -> Result<u32> {
    ledger.act("patient");
    match world.enter().await {
        0 => Err(Error::new("not yet")),
        n => Ok(n),
    }
}

#[workflow]
async fn waiting(millis: u64) -> Result<u32> {
    let between = Duration::from_millis(millis);
    let patient = patient().backoff(between, between);
    patient.idempotency_key("k").shared(AN_HOUR).await
}

#[workflow]
async fn waiting_too() -> Result<u32> {
    patient().idempotency_key("k").shared(AN_HOUR).await
}

#[workflow]
async fn paying_second(cents: u32) -> Result<Receipt> {
    pay(cents).idempotency_key("k").shared(AN_HOUR).await
}

pub(super) fn failing(ledger: &Arc<Ledger>, world: &Arc<World>) -> EngineBuilder {
    engine(ledger, world)
        .register::<trying>()
        .register::<waiting>()
        .register::<waiting_too>()
        .register::<paying_second>()
}

async fn open(ledger: &Arc<Ledger>, world: &Arc<World>) -> Engine {
    let engine = failing(ledger, world).open_in_memory();
    engine.await.expect("opens")
}

fn ids(ledger: &Ledger) -> usize {
    let ids: HashSet<_> = ledger.attempts().into_iter().map(|(id, _)| id).collect();
    ids.len()
}

#[tokio::test]
async fn a_call_that_failed_after_its_attempts_leaves_the_key_to_the_next_one() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = open(&ledger, &world).await;
    for failed in [true, true, false, false] {
        let run = engine.start(trying(4)).await.expect("starts");
        let result = run.result().await;
        assert_eq!(result.is_err(), failed, "{result:?}");
    }
    assert_eq!(
        world.begun(),
        5,
        "two attempts each, and one that gave a value"
    );
    assert_eq!(ledger.effects(), ["shaky"]);
    assert_eq!(ids(&ledger), 1);
}

#[tokio::test]
async fn of_many_that_wait_for_one_that_fails_one_goes_on() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = open(&ledger, &world).await;
    let runs = (0..16).map(|_| async {
        let run = engine.start(trying(6)).await.expect("starts");
        run.result().await
    });
    let results = join_all(runs).await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(failed, 3, "{results:?}");
    assert!(results.iter().flatten().all(|n| *n == 6), "{results:?}");
    assert_eq!((world.begun(), ids(&ledger)), (7, 1));
}

/// A run that has the key, and one that waits for it.
async fn two(engine: &Engine, world: &World) -> (RunHandle<paying>, RunHandle<paying_second>) {
    let first = engine.start(paying("k".into(), 5, AN_HOUR));
    let first = first.await.expect("starts");
    settle().await;
    let second = engine.start(paying_second(5)).await.expect("starts");
    settle().await;
    assert_eq!(world.begun(), 1, "the second one waits");
    (first, second)
}

/// The one that waited has run the body, under the id of the one that was stopped.
async fn took_over(ledger: &Ledger, world: &World, second: &RunHandle<paying_second>) {
    world.let_through(2);
    let paid = second.result().await.expect("ends well");
    assert_eq!((world.begun(), ids(ledger)), (2, 1));
    assert_eq!(ledger.attempts()[0].0, paid.id);
}

#[tokio::test]
async fn a_cancelled_run_leaves_the_key() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let builder = failing(&ledger, &world).cancel_grace(Duration::from_millis(5));
    let engine = builder.open_in_memory().await.expect("opens");
    let (first, second) = two(&engine, &world).await;
    engine.cancel(first.id()).await.expect("is accepted");
    assert!(matches!(
        first.result().await,
        Err(RunError::Cancelled { .. })
    ));
    took_over(&ledger, &world, &second).await;
}

#[tokio::test]
async fn a_terminated_run_leaves_the_key() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let engine = open(&ledger, &world).await;
    let (first, second) = two(&engine, &world).await;
    engine.terminate(first.id()).await.expect("is ended");
    took_over(&ledger, &world, &second).await;
}

#[tokio::test]
async fn a_run_that_is_terminated_while_its_outcome_is_written_has_had_it() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let store = MemoryStore::new();
    let engine = failing(&ledger, &world).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let (first, second) = two(&engine, &world).await;
    store.hold();
    world.let_through(2);
    settle().await;
    let terminating = engine.terminate(first.id()).into_future();
    let terminating = tokio::spawn(terminating);
    settle().await;
    assert_eq!(world.begun(), 1, "nobody takes over what is being written");
    let records = frames(&store, second.id()).await.len();
    assert_eq!(records, 1, "nor is given it before it is durable");
    store.release();
    terminating.await.expect("no panic").expect("is ended");
    let paid = second.result().await.expect("ends well");
    assert_eq!((paid.number, world.begun()), (0, 1));
}

/// The workflow's own code panics in the poll in which its step has come to an outcome.
#[workflow]
async fn panicking(told: u32) -> Result<Receipt> {
    let paid = AtomicU32::new(0);
    let paying = async {
        let pay = pay(5).idempotency_key("k").shared(AN_HOUR);
        let mut pay = std::pin::pin!(pay);
        poll_fn(|cx| {
            let polled = pay.as_mut().poll(cx);
            paid.fetch_add(1, Ordering::SeqCst);
            polled
        })
        .await
    };
    let watching = poll_fn(|_| {
        let polls = paid.load(Ordering::SeqCst);
        assert!(polls < told, "{polls} polls");
        Poll::<()>::Pending
    });
    match select(Box::pin(paying), Box::pin(watching)).await {
        Either::Left((paid, _)) => paid,
        Either::Right(_) => Err(Error::fatal("it never ends")),
    }
}

#[tokio::test]
async fn a_run_that_is_parked_while_its_outcome_is_written_has_had_it() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let store = MemoryStore::new();
    let builder = failing(&ledger, &world).register::<panicking>();
    let engine = builder.open_with(store.clone()).await.expect("opens");
    // The first poll begins the body, the second one ends it and panics.
    let first = engine.start(panicking(2)).await.expect("starts");
    settle().await;
    assert_eq!(world.begun(), 1);
    let second = engine.start(paying_second(5)).await.expect("starts");
    settle().await;
    store.hold();
    world.let_through(2);
    settle().await;
    assert_eq!(world.begun(), 1, "nobody takes over what is being written");
    let records = frames(&store, second.id()).await.len();
    assert_eq!(records, 1, "nor is given it before it is durable");
    store.release();
    assert!(matches!(first.result().await, Err(RunError::Parked(_))));
    let paid = second.result().await.expect("ends well");
    assert_eq!((paid.number, world.begun()), (0, 1));
}

#[tokio::test]
async fn a_paused_run_keeps_no_key_from_others() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let engine = open(&ledger, &world).await;
    let first = engine.start(waiting(30)).await.expect("starts");
    settle().await;
    assert_eq!(world.begun(), 1, "it failed once, and has the key");
    engine.pause_workflow("waiting").await.expect("pauses");
    let never_begun = engine.start(waiting(30)).await.expect("starts");
    let second = engine.start(waiting_too()).await.expect("starts");
    let second = tokio::time::timeout(Duration::from_secs(20), second.result());
    let second = second.await.expect("does not wait for a paused run");
    assert_eq!(second.expect("ends well"), 1);
    engine.resume_workflow("waiting").await.expect("resumes");
    assert_eq!(first.result().await.expect("ends well"), 1);
    assert_eq!(never_begun.result().await.expect("ends well"), 1);
    assert_eq!((world.begun(), ids(&ledger)), (2, 1));
}

#[tokio::test]
async fn a_run_that_left_memory_between_two_attempts_left_the_key_and_is_given_the_outcome() {
    let (ledger, world) = (Ledger::shared(), World::open());
    let builder = failing(&ledger, &world).evict_after(Duration::from_millis(5));
    let engine = builder.open_in_memory().await.expect("opens");
    let first = engine.start(waiting(2000)).await.expect("starts");
    while engine.runs_in_memory() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = engine.start(waiting(2000)).await.expect("starts");
    assert_eq!(second.result().await.expect("ends well"), 1);
    assert_eq!(first.result().await.expect("ends well"), 1);
    assert_eq!((world.begun(), ids(&ledger)), (2, 1));
    let journal = engine.journal(first.id()).await.expect("reads");
    assert_eq!(
        steps(&journal)[0].attempts,
        1,
        "its own one failed: {journal}"
    );
}

#[tokio::test]
async fn an_engine_that_stops_in_order_leaves_the_key_to_the_next_process() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let store = MemoryStore::new();
    let engine = failing(&ledger, &world).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let (first, second) = two(&engine, &world).await;
    let stopping = engine.shutdown().grace(Duration::from_millis(20));
    stopping.await.expect("stops");
    world.let_through(10);
    let engine = failing(&ledger, &world).open_with(store.reopen(Surviving::Synced));
    let engine = engine.await.expect("opens");
    let first = engine.run::<paying>(first.id()).await.expect("is there");
    let second = engine.run::<paying_second>(second.id()).await;
    let second = second.expect("is there");
    let paid = first.result().await.expect("ends well");
    assert_eq!(second.result().await.expect("ends well"), paid);
    assert_eq!((world.begun(), ids(&ledger)), (2, 1), "one in each process");
}

#[tokio::test]
async fn who_waits_for_a_key_is_told_when_the_store_has_stopped_and_runs_nothing() {
    for fault in [Fault::FailWrite, Fault::FailSync] {
        let (ledger, world) = (Ledger::shared(), World::closed());
        let store = MemoryStore::new();
        let engine = failing(&ledger, &world).open_with(store.clone());
        let engine = engine.await.expect("opens");
        let (first, second) = two(&engine, &world).await;
        store.set_faults(FaultPlan::at(store.writes(), fault));
        world.let_through(2);
        let both = async { (first.result().await, second.result().await) };
        let both = tokio::time::timeout(Duration::from_secs(60), both).await;
        let (first, second) = both.expect("both are told");
        assert!(matches!(first, Err(RunError::Engine(_))), "{first:?}");
        assert!(matches!(second, Err(RunError::Engine(_))), "{second:?}");
        assert_eq!(world.begun(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_shutdown_waits_for_the_body_and_not_for_those_that_wait_for_it() {
    let (ledger, world) = (Ledger::shared(), World::closed());
    let store = MemoryStore::new();
    let engine = failing(&ledger, &world).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let (_, second) = two(&engine, &world).await;
    let stopping = tokio::spawn(engine.shutdown().into_future());
    settle().await;
    world.let_through(1);
    let stopped = tokio::time::timeout(Duration::from_secs(20), stopping).await;
    let stopped = stopped.expect("does not take its whole grace");
    stopped.expect("no panic").expect("stops");
    let engine = failing(&ledger, &world).open_with(store.reopen(Surviving::Synced));
    let engine = engine.await.expect("opens");
    let second = engine.run::<paying_second>(second.id()).await;
    let second = second.expect("is there");
    assert_eq!(second.result().await.expect("ends well").number, 0);
    assert_eq!(world.begun(), 1);
}

#[tokio::test]
async fn a_key_that_cannot_be_had_of_a_store_that_works_parks_the_run_before_its_body() {
    let (ledger, world, stumbles) = (Ledger::shared(), World::open(), Stumbles::default());
    let store = Edited {
        store: MemoryStore::new(),
        edit: stumbles.clone(),
    };
    let engine = engine(&ledger, &world).open_with(store).await;
    let engine = engine.expect("opens");
    stumbles.refuse(Stumble::Note);
    let run = engine.start(paying("k".into(), 5, AN_HOUR)).await;
    let run = run.expect("starts");
    let parking = match run.result().await {
        Err(RunError::Parked(parking)) => parking,
        other => panic!("{other:?}"),
    };
    assert_eq!(parking.reason, ParkReason::Undecodable);
    assert!(parking.report.contains("`pay`"), "{}", parking.report);
    assert!(parking.report.contains("it stumbled"), "{}", parking.report);
    assert!(stumbles.is_over());
    assert_eq!(ledger.asked(), 0);
    engine.resume(run.id()).await.expect("resumes");
    run.result().await.expect("ends well");
    assert_eq!(ledger.asked(), 1);
}
