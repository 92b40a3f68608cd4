//! A disk that fails under a live engine: it says so, nobody waits for ever, and it goes on when reopened.

use std::fmt::Display;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{NoteKey, Store, StoreError};
use workflow_runtime::testing::Witness;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Health, Queue, Result, Retention, RunError, publish,
    sleep, step, wait_for, workflow,
};
use workflow_tests::{Edited, Ledger, Stumble, Stumbles};

/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[step]
async fn never() -> Result<()> {
    pending().await
}

#[workflow]
async fn transfer(amount: u64) -> Result<u64> {
    act("debit").await?;
    publish("stage", "debited");
    sleep(Duration::from_millis(1)).await;
    let approved: u64 = wait_for("approval").await?;
    act("credit").await?;
    Ok(amount + approved)
}

#[workflow]
async fn waits() -> Result<u64> {
    wait_for("never sent").await
}

#[workflow]
async fn hangs() -> Result<()> {
    never().await
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<transfer>()
        .register::<waits>()
        .register::<hangs>()
        .queue(Queue::named("mail"))
        .retention(Retention::days(1))
        .resource_arc(ledger.clone())
}

/// The next write to a store is refused.
fn fail_next(store: &MemoryStore) {
    store.set_faults(FaultPlan::at(store.writes(), Fault::FailWrite));
}

/// What is missing in an error: it names its cause, what it means, and the way out.
fn missing(error: &impl Display) -> Option<String> {
    let said = error.to_string();
    let parts = ["injected fault", "nothing was acknowledged", "reopen"];
    let says_all = parts.iter().all(|part| said.contains(part));
    (!says_all).then(|| format!("says only `{said}`"))
}

fn tells_all(what: &str, error: &impl Display) {
    assert_eq!(missing(error), None, "{what}");
}

async fn in_time<T>(what: &str, future: impl IntoFuture<Output = T>) -> T {
    match timeout(PATIENCE, future.into_future()).await {
        Ok(done) => done,
        Err(_) => panic!("{what} hangs"),
    }
}

async fn story(engine: &Engine, witness: &mut Witness) -> Result<u64, EngineError> {
    let run = engine.start(transfer(40)).key("order").await?;
    witness.started_under("order", engine.namespace(), run.id(), None);
    let sent = run.signal("approval", &2u64).key("once").await?;
    witness.signalled(run.id(), "approval", "once", sent);
    match run.result().await {
        Ok(total) => Ok(total),
        Err(RunError::Engine(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_store_that_fails_at_any_write_is_reopened_and_every_effect_happens_once() {
    let store = MemoryStore::new();
    let ledger = Ledger::shared();
    let clean = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let done = story(&clean, &mut Witness::new()).await;
    assert_eq!(done.expect("ends well"), 42);
    let mut failures = 0;
    for write in 0..store.writes() {
        for fault in [Fault::FailWrite, Fault::FailSync] {
            for surviving in [Surviving::Synced, Surviving::All] {
                failures += u32::from(fails_and_goes_on(write, fault, surviving).await);
            }
        }
    }
    assert!(failures > 12, "only {failures} of them failed");
}

/// `false`: the write did not come, because others went together.
async fn fails_and_goes_on(write: u64, fault: Fault, surviving: Surviving) -> bool {
    let what = format!("{fault:?} at {write}, {surviving:?}");
    let ledger = Ledger::shared();
    let store = MemoryStore::with_faults(FaultPlan::at(write, fault));
    store.set_surviving(surviving);
    let mut witness = Witness::new();
    let broken = match engine(&ledger).open_with(store.clone()).await {
        Ok(broken) => broken,
        Err(error) => {
            tells_all(&what, &error);
            let mended = engine(&ledger).open_with(store.reopen(surviving)).await;
            let total = story(&mended.expect("opens"), &mut witness).await;
            assert_eq!(total.expect("goes on"), 42, "{what}");
            return true;
        }
    };
    let error = match in_time(&what, story(&broken, &mut witness)).await {
        Err(error) => error,
        Ok(total) => {
            assert_eq!((total, broken.health()), (42, Health::Running), "{what}");
            return false;
        }
    };
    tells_all(&what, &error);
    assert!(
        matches!(error, EngineError::Store(StoreError::Failed { .. })),
        "{what}: {error:?}"
    );
    witness.disk_failed();
    let failure = in_time(&what, broken.failed()).await;
    assert!(failure.error.contains("injected fault"), "{failure}");
    assert_eq!(broken.health(), Health::StoreFailed(failure), "{what}");
    assert!(broken.metrics().store_failed, "{what}");

    let mended = in_time(&what, broken.reopen()).await.expect("reopens");
    witness.reopened();
    assert_eq!(mended.health(), Health::Running, "{what}");
    assert!(!mended.metrics().store_failed, "{what}");
    let total = in_time(&what, story(&mended, &mut witness)).await;
    assert_eq!(total.expect("goes on"), 42, "{what}");
    assert_eq!(ledger.effects(), ["credit", "debit"], "{what}");
    let found = witness.check(&mended).await.expect("reads");
    assert_eq!(found, [], "{what}: what was promised");
    assert!(matches!(broken.health(), Health::StoreFailed(_)), "{what}");
    true
}

#[tokio::test]
async fn whoever_waits_when_the_store_fails_hears_why() {
    let store = MemoryStore::new();
    let builder = engine(&Ledger::shared()).evict_after(None);
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let waiting = engine.start(waits()).key("waits").await.expect("starts");
    let hanging = engine.start(hangs()).key("hangs").await.expect("starts");
    let mut watch = waiting.watch::<u64>("nothing");
    let once = |work: bool| {
        let once = engine.once("guarded").body("the same");
        async move {
            let waits = async || match work {
                true => pending().await,
                false => Ok::<u64, Error>(1),
            };
            once.run(waits).await
        }
    };
    let failing = async {
        tokio::time::sleep(Duration::from_millis(20)).await; // so that all the others wait
        fail_next(&store);
        let refused = engine.start(waits()).key("late").await;
        tells_all("start", &refused.expect_err("is refused"));
    };
    let (signalled, hung, watched, failed, ()) = tokio::join!(
        in_time("result of a run that waits", waiting.result()),
        in_time("result of a run with a body in flight", hanging.result()),
        in_time("watch", watch.changed()),
        in_time("failed", engine.failed()),
        failing,
    );
    tells_all("result", &signalled.expect_err("is refused"));
    tells_all("result", &hung.expect_err("is refused"));
    tells_all("watch", &watched.expect_err("is refused"));
    assert!(failed.error.contains("injected fault"));
    let refused = in_time("once", once(false)).await;
    tells_all("once", &refused.expect_err("is refused"));
    assert_eq!(engine.runs_in_memory(), 0, "nothing is left at work");
}

#[tokio::test]
async fn work_under_once_that_was_done_when_the_store_failed_is_not_acknowledged() {
    let store = MemoryStore::new();
    let engine = engine(&Ledger::shared()).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let done = engine.once("guarded").run(async || {
        fail_next(&store);
        Ok::<u64, Error>(1)
    });
    let refused = in_time("once", done).await;
    tells_all("once", &refused.expect_err("is not acknowledged"));
    let mended = in_time("reopen", engine.reopen()).await.expect("reopens");
    let again = mended.once("guarded").run(async || Ok::<u64, Error>(2));
    assert_eq!(in_time("once", again).await.expect("is done"), 2);
}

/// Awaits calls, and returns those that were not refused with the cause and the way out.
macro_rules! not_refused {
    ($($call:expr),+ $(,)?) => {{
        let mut wrong = Vec::new();
        $(
            let problem = match timeout(PATIENCE, $call.into_future()).await {
                Ok(Err(error)) => missing(&error),
                Ok(Ok(_)) => Some("is acknowledged".to_owned()),
                Err(_) => Some("hangs".to_owned()),
            };
            wrong.extend(problem.map(|problem| format!("{} {problem}", stringify!($call))));
        )+
        wrong
    }};
}

#[tokio::test]
async fn after_the_failure_every_call_is_refused_with_the_cause_and_the_way_out() {
    let store = MemoryStore::new();
    let engine = engine(&Ledger::shared()).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let run = engine.start(waits()).key("waits").await.expect("starts");
    let id = run.id();
    let schedule = engine
        .schedule("daily", waits())
        .every(Duration::from_secs(3600));
    let schedule = schedule.await.expect("is declared");
    fail_next(&store);
    let wrong = not_refused!(
        engine.start(waits()),
        engine.start(waits()).key("waits"),
        engine.start(waits()).queue("mail"),
        engine.signal(id, "never sent", &1u64),
        engine.signal_token("token", &1u64),
        engine.cancel(id),
        engine.terminate(id),
        engine.resume(id),
        engine.retry(id),
        engine.fork(id),
        engine.run::<waits>(id),
        engine.status(id),
        engine.parked_detail(id),
        engine.journal(id),
        engine.verify(),
        engine.runs(),
        engine.runs_asleep(),
        engine.lineage(id),
        engine.duplicates(id),
        engine.pause(id),
        engine.pause_workflow("waits"),
        engine.resume_workflow("waits"),
        engine.pause_all(),
        engine.resume_all(),
        engine.sweep(),
        engine
            .schedule("hourly", waits())
            .every(Duration::from_secs(60)),
        engine.schedules(),
        schedule.trigger(),
        schedule.pause(),
        schedule.resume(),
        schedule.describe(),
        schedule.delete(),
        engine.queue("mail").pause(),
        engine.queue("mail").resume(),
        engine.queue("mail").describe(),
        engine.queue("mail").set(|queue| queue.concurrency(1)),
        engine.outbox("mails").pending(),
        engine.outbox("mails").set_aside(1),
        async { engine.outbox("mails").relay(|_| async { Ok(()) }) },
        engine.inbox("events").accept("event").start(waits()),
        engine
            .inbox("events")
            .accept("event")
            .signal(id, "never sent", &1u64),
        engine.once("guarded").run(async || Ok::<u64, Error>(1)),
        run.status(),
        run.result(),
        run.signal("never sent", &1u64),
        run.cancel(),
        run.retry(),
        run.fork(),
        run.duplicates(),
        run.published::<u64>("nothing"),
        async { run.watch::<u64>("nothing").changed().await },
        engine.clone().shutdown(),
    );
    assert_eq!(wrong, [""; 0]);
    let mended = in_time("reopen", engine.reopen()).await.expect("reopens");
    let again = mended.start(waits()).key("waits").await.expect("starts");
    assert_eq!(again.id(), id, "what was acknowledged is there");
}

#[tokio::test]
async fn what_was_seen_of_duplicates_is_written_after_an_error_of_a_store_that_works() {
    let (store, stumbles) = (MemoryStore::new(), Stumbles::default());
    let edited = Edited {
        store: store.clone(),
        edit: stumbles.clone(),
    };
    let engine = Engine::builder().register::<waits>();
    let engine = engine.open_with(edited).await.expect("opens");
    let run = engine.start(waits()).key("twice").await.expect("starts");
    stumbles.refuse(Stumble::Commit);
    let again = engine.start(waits()).key("twice").await.expect("starts");
    assert_eq!(again.id(), run.id());
    let written = async {
        loop {
            let note = store.note(NoteKey::of_run(run.id(), &[b"duplicates"]));
            if note.await.expect("reads").is_some() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    in_time("the note", written).await;
    assert!(stumbles.is_over(), "it was refused before");
}

static RELEASED: AtomicBool = AtomicBool::new(false);
static AT_WORK: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[step(blocking)]
fn grind() -> Result<()> {
    let now = AT_WORK.fetch_add(1, Ordering::SeqCst) + 1;
    MOST.fetch_max(now, Ordering::SeqCst);
    while !RELEASED.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    AT_WORK.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[workflow]
async fn grinds() -> Result<()> {
    grind().await
}

#[tokio::test]
async fn reopening_waits_for_blocking_bodies_so_that_none_meets_itself() {
    let store = MemoryStore::new();
    let builder = Engine::builder().register::<grinds>();
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let _run = engine.start(grinds()).key("one").await.expect("starts");
    while AT_WORK.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fail_next(&store);
    engine.start(grinds()).key("two").await.expect_err("fails");
    let mut reopening = std::pin::pin!(engine.reopen());
    let early = timeout(Duration::from_millis(100), &mut reopening).await;
    assert!(early.is_err(), "a body is still at work");
    RELEASED.store(true, Ordering::SeqCst);
    let mended = in_time("reopen", reopening).await.expect("reopens");
    let run = mended.start(grinds()).key("one").await.expect("starts");
    in_time("result", run.result()).await.expect("goes on");
    assert_eq!(MOST.load(Ordering::SeqCst), 1, "one body at a time");
}

#[tokio::test]
async fn only_a_failed_engine_is_reopened_and_only_once() {
    let store = MemoryStore::new();
    let engine = engine(&Ledger::shared()).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let refused = engine.reopen().await.err().expect("is refused");
    assert!(refused.to_string().contains("has not failed"), "{refused}");
    fail_next(&store);
    engine.start(waits()).await.expect_err("fails");
    let (first, second) = tokio::join!(engine.reopen(), engine.reopen());
    let refused = second.err().expect("is refused");
    assert!(refused.to_string().contains("done already"), "{refused}");
    let first = first.expect("reopens");
    first.start(waits()).await.expect("starts");
    engine.shutdown().await.expect_err("its store failed");
    assert_eq!(first.health(), Health::Running);
    first.clone().shutdown().await.expect("stops");
    assert_eq!(first.health(), Health::ShuttingDown);
}

/// Counts what is said at error level.
struct Errors(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Errors {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::ERROR {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn the_log_says_once_that_the_store_failed_however_many_runs_there_are() {
    let errors = Arc::new(AtomicUsize::new(0));
    let subscriber = tracing_subscriber::registry().with(Errors(errors.clone()));
    let _guard = tracing::subscriber::set_default(subscriber);
    let store = MemoryStore::new();
    let engine = engine(&Ledger::shared()).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(engine.start(transfer(1)).await.expect("starts"));
    }
    fail_next(&store);
    for run in &runs {
        run.signal("approval", &1u64).await.expect_err("fails");
        in_time("result", run.result()).await.expect_err("fails");
    }
    in_time("failed", engine.failed()).await;
    tokio::time::sleep(Duration::from_millis(20)).await; // for what tasks beside the runs have to say
    assert_eq!(errors.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn metrics_count_what_was_done() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    assert_eq!(story(&first, &mut Witness::new()).await.expect("ends"), 42);
    let waiting = first.start(waits()).await.expect("starts");
    let metrics = first.metrics();
    assert_eq!(
        metrics.steps_executed, 3,
        "two steps and a timer: {metrics}"
    );
    assert_eq!((metrics.steps_replayed, metrics.retries), (0, 0));
    assert_eq!(metrics.store_writes, store.writes());
    assert_eq!(metrics.runs_in_memory, 1);
    let text = metrics.to_string();
    assert!(
        text.contains("# TYPE workflow_steps_executed_total counter\n"),
        "{text}"
    );
    assert!(
        text.contains("\nworkflow_steps_executed_total 3\n"),
        "{text}"
    );
    assert!(text.starts_with("# HELP workflow_store_failed "), "{text}");
    first
        .signal(waiting.id(), "never sent", &1u64)
        .await
        .expect("sends");
    waiting.result().await.expect("ends");
    assert_eq!(first.metrics().runs_active, 0);
    assert!(store.failure().is_none());
}
