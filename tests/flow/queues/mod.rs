//! Queues: limits that hold through crashes, order, delay, debounce, leases, and changes in use.

mod crashes;
mod debounced;
mod upkeep;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{Commit, NoteChange, NoteKey, RunState, Store};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Queue, Result, RunError, RunHandle, RunStatus, step,
    workflow,
};
use workflow_tests::{Edited, Ledger};

/// Sees which jobs go on at once, and lets them end.
struct Workshop {
    gate: Semaphore,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    at_work: HashMap<String, usize>,
    began: Vec<String>,
    most: usize,
    most_of_one: usize,
}

impl Workshop {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            gate: Semaphore::new(room),
            book: Mutex::default(),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self) -> Vec<String> {
        self.book().began.clone()
    }
}

/// One at work in the workshop, until it is dropped.
struct AtWork<'a>(&'a Workshop, String);

impl<'a> AtWork<'a> {
    fn begin(shop: &'a Workshop, name: &str, customer: &str) -> Self {
        let mut book = shop.book();
        book.began.push(name.to_owned());
        *book.at_work.entry(customer.to_owned()).or_default() += 1;
        book.most = book.most.max(book.at_work.values().sum());
        book.most_of_one = book.most_of_one.max(book.at_work[customer]);
        Self(shop, customer.to_owned())
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0.book().at_work.get_mut(&self.1) {
            *count -= 1;
        }
    }
}

#[step]
async fn work(
    #[resource] shop: &Workshop,
    #[resource] ledger: &Ledger,
    name: &str,
    customer: &str,
) -> Result<()> {
    let _at_work = AtWork::begin(shop, name, customer);
    ledger.act(name);
    shop.gate.acquire().await?.forget();
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}

#[workflow]
async fn job(name: String, customer: String) -> Result<String> {
    work(&name, &customer).await?;
    Ok(name)
}

const OPEN: usize = Semaphore::MAX_PERMITS;

fn engine(shop: &Arc<Workshop>, ledger: &Arc<Ledger>, queue: Queue) -> EngineBuilder {
    Engine::builder()
        .register::<job>()
        .resource_arc(shop.clone())
        .resource_arc(ledger.clone())
        .queue(queue)
}

fn mail() -> Queue {
    Queue::named("mail")
}

fn call(name: impl ToString, customer: &str) -> workflow_runtime::WorkflowCall<job> {
    job(name.to_string(), customer.to_owned())
}

async fn put(engine: &Engine, name: impl ToString) -> RunHandle<job> {
    let start = engine.start(call(name, "ada")).queue("mail");
    start.await.expect("is queued")
}

/// Looks until it is so; a test that waits for ever says where.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..5000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("still not: {what}");
}

async fn counts(engine: &Engine) -> (u64, u64) {
    let mail = engine.queue("mail").describe().await.expect("is there");
    (mail.waiting, mail.running)
}

#[tokio::test]
async fn no_more_runs_go_on_at_once_than_the_queue_allows() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail().concurrency(3));
    let engine = builder.open_in_memory().await.expect("opens");
    let mut runs = Vec::new();
    for number in 0..20 {
        runs.push(put(&engine, number).await);
    }
    for (number, run) in runs.iter().enumerate() {
        assert_eq!(run.result().await.expect("ends well"), number.to_string());
    }
    assert_eq!(shop.book().most, 3);
    until("all slots are free", async || {
        counts(&engine).await == (0, 0)
    })
    .await;
}

#[tokio::test]
async fn no_more_runs_of_one_key_go_on_at_once_than_the_queue_allows() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail().concurrency(4).per_key(1));
    let engine = builder.open_in_memory().await.expect("opens");
    let mut runs = Vec::new();
    // Three of one customer are in front of all others.
    for customer in ["ada", "ada", "ada", "bob", "cem", "bob", "ada", "dan"] {
        let start = engine.start(call(customer, customer)).queue("mail");
        runs.push(start.queue_key(customer).await.expect("is queued"));
    }
    for run in &runs {
        run.result().await.expect("ends well");
    }
    let book = shop.book();
    assert_eq!(book.most_of_one, 1);
    assert!((2..=4).contains(&book.most), "{}", book.most);
    assert!(
        book.began[..4].contains(&"dan".to_owned()),
        "{:?}",
        book.began
    );
}

#[tokio::test]
async fn the_highest_priority_comes_first_and_then_the_first_come() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail().concurrency(1));
    let engine = builder.open_in_memory().await.expect("opens");
    engine.queue("mail").pause().await.expect("is paused");
    let mut runs = Vec::new();
    for (name, priority) in [("d", 0), ("b", 5), ("e", 0), ("f", -7), ("c", 5), ("a", 9)] {
        let start = engine.start(call(name, "ada")).queue("mail");
        runs.push(start.priority(priority).await.expect("is queued"));
    }
    engine.queue("mail").resume().await.expect("is resumed");
    for run in &runs {
        run.result().await.expect("ends well");
    }
    assert_eq!(shop.began(), ["a", "b", "c", "d", "e", "f"]);
}

#[tokio::test]
async fn a_delayed_run_begins_no_earlier_and_others_do_not_wait_for_it() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let builder = engine(&shop, &ledger, mail().concurrency(1));
    let first = builder.open_with(store.clone()).await.expect("opens");
    let began = Instant::now();
    let delay = Duration::from_millis(60);
    let late = first.start(call("late", "ada")).queue("mail").delay(delay);
    let late = late.priority(9).await.expect("is queued");
    let soon = put(&first, "soon").await;
    soon.result().await.expect("ends well");
    assert_eq!(
        first
            .queue("mail")
            .describe()
            .await
            .expect("is there")
            .delayed,
        1
    );
    drop(first);
    let builder = engine(&shop, &ledger, mail().concurrency(1));
    let store = store.reopen(Surviving::Synced);
    let again = builder.open_with(store).await.expect("opens");
    let late = again.run::<job>(late.id()).await.expect("is there");
    late.result().await.expect("ends well");
    assert!(began.elapsed() >= delay, "early");
    assert_eq!(shop.began(), ["soon", "late"]);
}

#[tokio::test]
async fn no_more_runs_begin_in_a_time_than_the_rate_allows_also_not_after_a_restart() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let queue = || mail().rate(3, Duration::from_millis(120));
    let builder = engine(&shop, &ledger, queue());
    let first = builder.open_with(store.clone()).await.expect("opens");
    let began = Instant::now();
    let mut runs = Vec::new();
    for number in 0..6 {
        runs.push(put(&first, number).await.id());
    }
    until("a whole bucket", async || shop.began().len() >= 3).await;
    drop(first);
    let builder = engine(&shop, &ledger, queue());
    let store = store.reopen(Surviving::Synced);
    let again = builder.open_with(store).await.expect("opens");
    for run in runs {
        let run = again.run::<job>(run).await.expect("is there");
        run.result().await.expect("ends well");
    }
    // Three at once, and one more each 40 ms: a restart that filled the bucket would be faster.
    assert!(
        began.elapsed() >= Duration::from_millis(115),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(ledger.effects().len(), 6);
}

#[tokio::test]
async fn a_stuck_run_loses_its_slot_when_its_lease_is_over_and_goes_on() {
    let (shop, ledger) = (Workshop::new(0), Ledger::shared());
    let queue = mail().concurrency(1).lease(Duration::from_millis(50));
    let engine = engine(&shop, &ledger, queue);
    let engine = engine.open_in_memory().await.expect("opens");
    let stuck = put(&engine, "stuck").await;
    let next = put(&engine, "next").await;
    until("the first has begun", async || shop.began() == ["stuck"]).await;
    until("the next has begun", async || shop.began().len() == 2).await;
    let warnings = engine.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].run, Some(stuck.id()));
    assert!(
        warnings[0].message.contains("lease of 50ms"),
        "{}",
        warnings[0]
    );
    shop.gate.add_permits(2);
    stuck.result().await.expect("ends well");
    next.result().await.expect("ends well");
    assert_eq!(shop.began().len(), 2, "neither began twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_names_one_run_also_in_a_queue() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail().concurrency(2));
    let engine = builder.open_in_memory().await.expect("opens");
    let starts = (0..50).map(|number| {
        let start = engine.start(call("same", "ada")).key("order-1");
        // Every second one outside the queue.
        let start = if number % 2 == 0 {
            start.queue("mail")
        } else {
            start
        };
        tokio::spawn(start.into_future())
    });
    let mut ids = std::collections::HashSet::new();
    for start in futures::future::join_all(starts).await {
        let run = start.expect("no panic").expect("is started");
        ids.insert(run.id());
        assert_eq!(run.result().await.expect("ends well"), "same");
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(ledger.asked(), 1);
    let other = engine
        .start(call("other", "ada"))
        .key("order-1")
        .queue("mail")
        .await;
    assert!(
        matches!(other, Err(EngineError::Conflict { .. })),
        "{other:?}"
    );
}

#[tokio::test]
async fn a_letter_to_a_queued_run_does_not_start_it_unless_it_cancels_it() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let queued = {
        let builder = engine(&shop, &ledger, mail().concurrency(1));
        let engine = builder.open_with(store.clone()).await.expect("opens");
        engine.queue("mail").pause().await.expect("is paused");
        let queued = put(&engine, "queued").await;
        queued.signal("hello", &()).await.expect("sends");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(shop.began(), [""; 0], "a signal started it");
        engine.shutdown().await.expect("stops");
        queued.id()
    };
    let builder = engine(&shop, &ledger, mail().concurrency(1));
    let store = store.reopen(Surviving::All);
    let engine = builder.open_with(store).await.expect("opens");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(shop.began(), [""; 0], "a restart started it");
    let queued = engine.run::<job>(queued).await.expect("is there");
    queued.cancel().await.expect("asks");
    let error = queued.result().await.expect_err("is cancelled");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    assert_eq!(shop.began(), [""; 0], "it began");
    let next = put(&engine, "next").await;
    engine.queue("mail").resume().await.expect("goes on");
    assert_eq!(next.result().await.expect("ends well"), "next");
    assert_eq!(shop.began(), ["next"]);
}
