//! The engine around the runs: limits, warnings, logs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::{
    Engine, HideReplayed, Result, RunStatus, nondeterministic, sleep, step, workflow,
};
use workflow_tests::frames;

/// How many bodies run now, and how many at most did.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

#[step]
async fn busy(#[resource] gauge: &Gauge) -> Result<()> {
    let now = gauge.now.fetch_add(1, Ordering::SeqCst) + 1;
    gauge.peak.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(2)).await;
    gauge.now.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[workflow]
async fn two_busy_steps() -> Result<()> {
    busy().await?;
    sleep(Duration::from_millis(1)).await;
    busy().await
}

#[tokio::test]
async fn no_more_runs_are_active_than_allowed() {
    let gauge = Arc::new(Gauge::default());
    let engine = Engine::builder()
        .register::<two_busy_steps>()
        .resource_arc(gauge.clone())
        .max_active_runs(3)
        .open_in_memory()
        .await
        .expect("opens");
    let mut runs = Vec::new();
    for _ in 0..12 {
        runs.push(engine.start(two_busy_steps()).await.expect("starts"));
    }
    for run in runs {
        run.result().await.expect("ends well");
    }
    assert_eq!(gauge.peak.load(Ordering::SeqCst), 3);
}

#[workflow]
async fn long_sleep() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

#[tokio::test]
async fn sleeping_runs_do_not_count_as_active() {
    let engine = Engine::builder()
        .register::<long_sleep>()
        .register::<two_busy_steps>()
        .resource(Gauge::default())
        .max_active_runs(1)
        .open_in_memory()
        .await
        .expect("opens");
    let asleep = engine.start(long_sleep()).await.expect("starts");
    let run = engine.start(two_busy_steps()).await.expect("starts");
    let ended = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    ended.expect("is not held up").expect("ends well");
    assert_eq!(asleep.status().await.expect("reads"), RunStatus::Active);
}

#[workflow]
async fn waits_elsewhere() -> Result<u32> {
    nondeterministic!(tokio::time::sleep(Duration::from_millis(3))).await;
    Ok(1)
}

#[tokio::test]
async fn a_run_that_waits_on_nothing_durable_is_reported_by_name() {
    let engine = Engine::builder()
        .register::<waits_elsewhere>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(waits_elsewhere()).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 1);
    let warnings = engine.warnings();
    assert!(
        warnings
            .iter()
            .all(|w| w.run == Some(run.id()) && &*w.workflow == "waits_elsewhere")
    );
    let text: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 2, "{text:?}");
    assert!(
        text[0].contains("for nothing that is journaled"),
        "{text:?}"
    );
    assert!(
        text[1].contains("woken by something that is not the engine"),
        "{text:?}"
    );
}

#[tokio::test]
async fn a_run_that_uses_what_is_durable_gives_no_warning() {
    let engine = Engine::builder()
        .register::<two_busy_steps>()
        .resource(Gauge::default())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(two_busy_steps()).await.expect("starts");
    run.result().await.expect("ends well");
    assert_eq!(engine.warnings(), []);
}

/// Keeps the messages of events on the thread that made it.
#[derive(Clone)]
struct Messages(Arc<Mutex<Vec<String>>>, std::thread::ThreadId);

impl<S: tracing::Subscriber> Layer<S> for Messages {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        if std::thread::current().id() != self.1 {
            return;
        }
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{}={value:?} ", field.name()));
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().expect("no panic").push(message.0);
    }
}

impl Messages {
    fn take(&self, part: &str) -> Vec<String> {
        let mut all = self.0.lock().expect("no panic");
        let found = all.iter().filter(|m| m.contains(part)).cloned().collect();
        all.clear();
        found
    }
}

#[step]
async fn logged_step(n: u32) -> Result<u32> {
    tracing::info!("step says {n}");
    Ok(n)
}

#[workflow]
async fn logging() -> Result<String> {
    tracing::info!("workflow says: begun");
    logged_step(1).await?;
    tracing::info!("workflow says: one");
    logged_step(2).await?;
    tracing::info!("workflow says: two");
    Ok("payload-in-the-result".into())
}

/// Goes on by a letter, not by an outcome.
#[workflow]
async fn logging_letters() -> Result<u32> {
    tracing::info!("workflow says: begun");
    workflow_runtime::wait_for::<()>("go").await?;
    tracing::info!("workflow says: heard");
    logged_step(1).await?;
    tracing::info!("workflow says: one");
    Ok(1)
}

#[tokio::test]
async fn logs_of_workflow_code_do_not_repeat_in_replay() {
    // For the whole process, because callsites that other threads meet first would be switched
    // off by a subscriber of one thread alone; what other tests say is passed over.
    let messages = Messages(Arc::default(), std::thread::current().id());
    let subscriber =
        tracing_subscriber::registry().with(messages.clone().with_filter(HideReplayed));
    tracing::subscriber::set_global_default(subscriber).expect("is the only one");
    let store = MemoryStore::new();
    let builder = || Engine::builder().register::<logging>();
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine.start(logging()).await.expect("starts");
    run.result().await.expect("ends well");
    let first: Vec<_> = messages.take(" says");
    assert_eq!(first.len(), 5, "{first:?}");
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    drop(engine);

    let expected = [
        (1, vec!["begun", "1", "one", "2", "two"]),
        (2, vec!["one", "2", "two"]),
        (3, vec!["two"]),
    ];
    for (records, new) in expected {
        messages.take("");
        let before = workflow_tests::cut(journal.header(), &recorded, records).await;
        let engine = builder().open_with(before).await.expect("opens");
        let run = engine.run::<logging>(run.id()).await.expect("is there");
        run.result().await.expect("ends well");
        let all = messages.0.lock().expect("no panic").join("\n");
        assert!(!all.contains("payload-in-the-result"), "{all}");
        let said = messages.take(" says");
        assert_eq!(said.len(), new.len(), "after {records} records: {said:?}");
        for (said, new) in said.iter().zip(new) {
            assert!(said.trim().ends_with(new), "{said} / {new}");
        }
        if records > 1 {
            assert!(
                all.contains("step replayed"),
                "the engine's own events stay: {all}"
            );
        }
    }

    // What follows a letter is new if the letter is last on record, and only then.
    let store = MemoryStore::new();
    let builder = || Engine::builder().register::<logging_letters>();
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine.start(logging_letters()).await.expect("starts");
    run.signal("go", &()).await.expect("is sent");
    run.result().await.expect("ends well");
    let journal = engine.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    drop(engine);
    for (records, new) in [(2, vec!["heard", "1", "one"]), (3, vec!["one"])] {
        messages.take("");
        let before = workflow_tests::cut(journal.header(), &recorded, records).await;
        let engine = builder().open_with(before).await.expect("opens");
        let run = engine.run::<logging_letters>(run.id()).await;
        let run = run.expect("is there");
        run.result().await.expect("ends well");
        let said = messages.take(" says");
        assert_eq!(said.len(), new.len(), "after {records} records: {said:?}");
        for (said, new) in said.iter().zip(new) {
            assert!(said.trim().ends_with(new), "{said} / {new}");
        }
    }
}

#[tokio::test]
async fn a_handle_keeps_neither_the_engine_nor_its_store_alive() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        Engine::builder()
            .register::<nothing>()
            .open(dir.path().join("store"))
    };
    let engine = open().await.expect("opens");
    let run = engine.start(nothing()).key("k").await.expect("starts");
    run.result().await.expect("ends");
    drop(engine);
    let mut reopened = open().await;
    for _ in 0..200 {
        if reopened.is_ok() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        reopened = open().await;
    }
    reopened.expect("the store is free although a handle lives");
    run.result().await.expect("what it knew it still knows");
}

#[workflow]
async fn nothing() -> Result<()> {
    Ok(())
}
