//! Queues: limits that hold through crashes, order, delay, debounce, leases, and changes in use.

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

/// Four keyed runs through crashes: limits hold in every process, nothing is lost or done twice.
async fn live_through(plans: Vec<FaultPlan>) -> MemoryStore {
    let shown = format!("{plans:?}");
    let ledger = Ledger::shared();
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    loop {
        let shop = Workshop::new(OPEN);
        let living = async {
            let queue = mail().concurrency(2).per_key(1);
            let builder = engine(&shop, &ledger, queue);
            let engine = builder.open_with(store.clone()).await.expect("opens");
            let mut runs = Vec::new();
            for (number, customer) in ["ada", "ada", "bob", "cem"].into_iter().enumerate() {
                let start = engine.start(call(number, customer)).key(number);
                let start = start.queue("mail").queue_key(customer);
                let start = match number {
                    3 => start.delay(Duration::from_millis(3)),
                    _ => start.priority(number as i32),
                };
                runs.push(start.await.expect("is queued"));
            }
            for run in &runs {
                let result = tokio::time::timeout(Duration::from_secs(5), run.result());
                let result = result.await.expect("does not hang");
                result.expect("ends well");
            }
            until("all slots are free", async || {
                counts(&engine).await == (0, 0)
            })
            .await;
            let mail = engine.queue("mail").describe().await.expect("is there");
            assert_eq!(mail.delayed, 0);
        };
        let crashed = tokio::select! {
            biased;
            () = store.crashed() => true,
            () = living => false,
        };
        assert!(shop.book().most <= 2, "{shown}");
        assert!(shop.book().most_of_one <= 1, "{shown}");
        if !crashed {
            break;
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    }
    assert_eq!(ledger.effects(), ["0", "1", "2", "3"], "{shown}");
    store
}

#[tokio::test]
async fn a_crash_at_any_write_leaks_no_slot_and_passes_no_limit() {
    let writes = live_through(vec![]).await.writes();
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            live_through(vec![FaultPlan::at(write, fault)]).await;
        }
    }
}

#[tokio::test]
async fn two_crashes_at_any_writes_leak_no_slot_and_pass_no_limit() {
    let writes = live_through(vec![]).await.writes();
    for first in 0..writes {
        for second in 0..writes - first {
            live_through(vec![
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ])
            .await;
        }
    }
}

#[tokio::test]
async fn several_engines_together_pass_no_limit() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let mut engines = Vec::new();
    for _ in 0..3 {
        let builder = engine(&shop, &ledger, mail().concurrency(2));
        let store = Edited {
            store: store.clone(),
            edit: |_: &mut Vec<Bytes>| {},
        };
        engines.push(builder.open_with(store).await.expect("opens"));
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let putting = (0..30).map(|number| put(&engines[number % 3], number));
    let runs = futures::future::join_all(putting).await;
    until("all have ended", async || {
        let mut ended = 0;
        for run in &runs {
            ended += usize::from(run.status().await.expect("is there") == RunStatus::Completed);
        }
        ended == runs.len()
    })
    .await;
    assert!(shop.book().most <= 2, "{}", shop.book().most);
    assert_eq!(shop.began().len(), 30, "each once");
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

#[tokio::test]
async fn a_queued_run_is_asleep_until_its_turn_also_after_a_restart() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let store = MemoryStore::new();
    let builder = engine(&shop, &ledger, mail());
    let first = builder.open_with(store.clone()).await.expect("opens");
    first.queue("mail").pause().await.expect("is paused");
    let mut runs = Vec::new();
    for number in 0..300 {
        runs.push(put(&first, number).await.id());
    }
    drop(first);
    let store = store.reopen(Surviving::Synced);
    let builder = engine(&shop, &ledger, mail());
    let again = builder.open_with(store.clone()).await.expect("opens");
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(counts(&again).await, (300, 0));
    for run in &runs {
        let header = store.header(*run).await.expect("reads").expect("is there");
        assert_eq!(header.state, RunState::Asleep { wake_at: None });
    }
    assert_eq!(
        again.status(runs[0]).await.expect("is there"),
        RunStatus::Active
    );
    assert_eq!(ledger.asked(), 0);
    again.queue("mail").resume().await.expect("is resumed");
    for run in runs {
        let run = again.run::<job>(run).await.expect("is there");
        run.result().await.expect("ends well");
    }
    assert_eq!(ledger.asked(), 300);
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
async fn a_queue_is_changed_in_use_and_its_declaration_wins_only_when_it_changes() {
    let (shop, ledger) = (Workshop::new(0), Ledger::shared());
    let store = MemoryStore::new();
    let first = engine(&shop, &ledger, mail().concurrency(1));
    let first = first.open_with(store.clone()).await.expect("opens");
    for number in 0..4 {
        put(&first, number).await;
    }
    until("one goes on", async || counts(&first).await == (3, 1)).await;
    let queue = first.queue("mail");
    queue
        .set(|queue| queue.concurrency(3))
        .await
        .expect("is set");
    until("three go on", async || counts(&first).await == (1, 3)).await;
    queue.pause().await.expect("is paused");
    drop(first);

    let store = store.reopen(Surviving::Synced);
    let second = engine(&shop, &ledger, mail().concurrency(1));
    let second = second.open_with(store.clone()).await.expect("opens");
    let described = second.queue("mail").describe().await.expect("is there");
    assert_eq!((described.concurrency, described.paused), (Some(3), true));
    drop(second);

    let store = store.reopen(Surviving::Synced);
    let third = engine(&shop, &ledger, mail().concurrency(2).per_key(7));
    let third = third.open_with(store.clone()).await.expect("opens");
    let described = third.queue("mail").describe().await.expect("is there");
    assert_eq!(
        (described.concurrency, described.per_key),
        (Some(2), Some(7))
    );
    assert!(described.paused, "a pause is not declared");
    assert_eq!((described.waiting, described.running), (1, 3));
    shop.gate.add_permits(10);
    until("those that had begun end", async || {
        counts(&third).await == (1, 0)
    })
    .await;
    third.queue("mail").resume().await.expect("is resumed");
    until("all have ended", async || counts(&third).await == (0, 0)).await;
}

#[tokio::test]
async fn debounced_starts_become_one_run_with_the_latest_input() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail());
    let engine = builder.open_in_memory().await.expect("opens");
    let quiet = Duration::from_millis(40);
    let mut told = Vec::new();
    let mut last = Instant::now();
    for number in 0..5 {
        last = Instant::now();
        let start = engine.start(call(number, "ada")).queue("mail");
        told.push(start.debounce("ada", quiet).await.expect("is taken"));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let other = engine.start(call("other", "bob")).queue("mail");
    let other = other.debounce("bob", quiet).await.expect("is taken");
    let run = told[0].run;
    assert!(
        told.iter()
            .all(|told| told.run == run && told.run != other.run)
    );
    assert!(told.is_sorted_by_key(|told| told.due_at));
    assert_eq!(
        engine
            .queue("mail")
            .describe()
            .await
            .expect("is there")
            .debounced,
        2
    );
    let early = engine.status(run).await;
    assert!(
        matches!(early, Err(EngineError::UnknownRun(_))),
        "{early:?}"
    );
    until("both have begun", async || shop.began().len() == 2).await;
    assert!(last.elapsed() >= quiet, "early");
    let run = engine.run::<job>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), "4");
    let again = engine.start(call(9, "ada")).queue("mail");
    let again = again
        .debounce("ada", Duration::ZERO)
        .await
        .expect("is taken");
    assert_ne!(
        again.run,
        run.id(),
        "a start after the quiet moment is another run"
    );
    until("it has begun", async || {
        shop.began().contains(&"9".to_owned())
    })
    .await;
}

#[tokio::test]
async fn a_debounced_start_survives_a_crash_at_any_write() {
    let live = async |plan: FaultPlan| {
        let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
        let mut store = MemoryStore::with_faults(plan);
        let mut taken = None;
        loop {
            let living = async {
                let builder = engine(&shop, &ledger, mail().concurrency(1));
                let engine = builder.open_with(store.clone()).await.expect("opens");
                if taken.is_none() {
                    let start = engine.start(call("once", "ada")).queue("mail");
                    let start = start.debounce("ada", Duration::from_millis(2)).await;
                    taken = Some(start.expect("is taken").run);
                }
                let run = taken.expect("was taken");
                until("it has ended", async || {
                    matches!(engine.status(run).await, Ok(RunStatus::Completed))
                })
                .await;
                until("its slot is free", async || counts(&engine).await == (0, 0)).await;
            };
            let crashed = tokio::select! {
                biased;
                () = store.crashed() => true,
                () = living => false,
            };
            if !crashed {
                return (store, ledger);
            }
            store = store.reopen(Surviving::Synced);
        }
    };
    let (clean, _) = live(FaultPlan::none()).await;
    for write in 0..clean.writes() {
        let (_, ledger) = live(FaultPlan::at(write, Fault::CrashBefore)).await;
        assert_eq!(ledger.effects(), ["once"], "{write}");
        // After the write of the start itself nobody was told, and it is started again: the same run, or, if
        // the first has begun meanwhile, another one. From then on there is one.
        let (_, ledger) = live(FaultPlan::at(write, Fault::CrashAfter)).await;
        let effects = ledger.effects().len();
        assert!(
            effects == 1 || (effects == 2 && write == 1),
            "{write}: {effects}"
        );
    }
}

#[tokio::test]
async fn whoever_waits_for_a_queued_run_is_told_when_the_engine_stops() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = engine(&shop, &ledger, mail());
    let engine = builder.open_in_memory().await.expect("opens");
    engine.queue("mail").pause().await.expect("is paused");
    let run = put(&engine, "waits").await;
    let waiting = tokio::spawn(async move { run.result().await });
    tokio::time::sleep(Duration::from_millis(5)).await;
    let began = Instant::now();
    engine.shutdown().await.expect("stops");
    let result = waiting.await.expect("no panic");
    assert!(matches!(result, Err(RunError::Engine(_))), "{result:?}");
    assert!(
        began.elapsed() < Duration::from_millis(800),
        "only by looking again"
    );
}

#[tokio::test]
async fn a_queue_that_cannot_be_read_is_reported_and_stops_no_other() {
    for (space, part) in [(0x50, None), (0x52, Some("entry")), (0x54, Some("slot"))] {
        let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
        let store = MemoryStore::new();
        let parts: Vec<&[u8]> = ["default", "broken"]
            .into_iter()
            .chain(part)
            .map(str::as_bytes)
            .collect();
        let builder = engine(&shop, &ledger, mail()).queue(Queue::named("broken"));
        let first = builder.open_with(store.clone()).await.expect("opens");
        first.shutdown().await.expect("stops");
        let store = store.reopen(Surviving::Synced);
        let mut garbage = Commit::default();
        garbage.changes.notes.push(NoteChange {
            key: NoteKey::new(space, &parts),
            value: Some(vec![1, 200].into()),
        });
        store.commit(garbage).await.expect("writes");
        let builder = engine(&shop, &ledger, mail());
        let engine = builder.open_with(store.clone()).await.expect("opens");
        for number in 0..3 {
            let run = put(&engine, number).await;
            run.result().await.expect("the other queue goes on");
        }
        let warnings = engine.warnings();
        assert_eq!(warnings.len(), 1, "once: {warnings:?}");
        let text = warnings[0].to_string();
        assert!(text.contains("queue `broken` is not served"), "{text}");
    }
}

#[tokio::test]
async fn what_a_queue_cannot_do_is_refused_with_the_way_out() {
    let (shop, ledger) = (Workshop::new(OPEN), Ledger::shared());
    let builder = || engine(&shop, &ledger, mail());
    let engine = builder().open_in_memory().await.expect("opens");
    let start = || engine.start(call("x", "ada"));
    let second = Duration::from_secs(1);
    for (refused, words) in [
        (
            start().queue("post").await.err(),
            "`.queue(Queue::named(\"post\"))`",
        ),
        (start().priority(1).await.err(), "add `.queue("),
        (start().queue_key("k").await.err(), "add `.queue("),
        (start().delay(second).await.err(), "add `.queue("),
        (start().debounce("k", second).await.err(), "add `.queue("),
        (
            start().queue("post").debounce("k", second).await.err(),
            "not declared",
        ),
        (
            start()
                .queue("mail")
                .key("a")
                .debounce("k", second)
                .await
                .err(),
            "leave `.key(..)`",
        ),
        (
            start()
                .queue("mail")
                .delay(second)
                .debounce("k", second)
                .await
                .err(),
            "`.delay(..)` out",
        ),
        (engine.queue("post").pause().await.err(), "not declared"),
        (engine.queue("post").describe().await.err(), "not declared"),
        (
            engine
                .queue("mail")
                .set(|queue| queue.concurrency(0))
                .await
                .err(),
            "pause it",
        ),
        (
            engine
                .queue("mail")
                .set(|_| Queue::named("post"))
                .await
                .err(),
            "renamed",
        ),
    ] {
        let error = refused.expect(words);
        assert!(matches!(error, EngineError::Queue { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error} says {words}");
    }
    let key = start().queue("mail").queue_key("").await;
    assert!(matches!(key, Err(EngineError::Key(_))), "{key:?}");
    for (queue, words) in [
        (mail(), "`mail` is declared twice"),
        (Queue::named(""), "cannot be empty"),
        (Queue::named("b").concurrency(0), "pause it"),
        (Queue::named("b").per_key(0), "pause it"),
        (Queue::named("b").rate(0, second), "pause it"),
        (Queue::named("b").rate(1, Duration::ZERO), "cannot be zero"),
        (Queue::named("b").lease(Duration::ZERO), "cannot be zero"),
    ] {
        let error = builder()
            .queue(queue)
            .open_in_memory()
            .await
            .err()
            .expect(words);
        assert!(error.to_string().contains(words), "{error} says {words}");
    }
    engine
        .queue("new")
        .set(|queue| queue.concurrency(1))
        .await
        .expect("is made");
    let run = start().queue("new").await.expect("is queued");
    run.result().await.expect("ends well");
}
