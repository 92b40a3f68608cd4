//! Published state: the latest value, for readers that do not disturb the run.

use futures::join;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunError, publish, step, wait_for, workflow,
};

#[step]
async fn work(n: u32) -> Result<u32> {
    Ok(n)
}

#[workflow]
async fn progressing(steps: u32) -> Result<u32> {
    for n in 0..steps {
        publish("progress", &n);
        work(n).await?;
    }
    publish("progress", &steps);
    wait_for::<()>("go on").await?;
    Ok(steps)
}

#[tokio::test]
async fn readers_see_the_latest_value_and_can_wait_for_a_change() {
    let engine = Engine::builder()
        .register::<progressing>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(progressing(5)).await.expect("starts");
    let mut watch = run.watch::<u32>("progress");
    let mut last = None;
    while last != Some(5) {
        let next = watch.changed().await.expect("reads");
        assert!(next > last, "{next:?} after {last:?}");
        last = next;
    }
    assert_eq!(run.published("progress").await.expect("reads"), Some(5));
    assert_eq!(run.published::<u32>("other").await.expect("reads"), None);
    run.signal("go on", &()).await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), 5);
    assert_eq!(watch.changed().await.expect("reads"), None);
}

/// Both steps are done in one write, and what is published after the first has a write of its own.
#[workflow]
async fn between() -> Result<u32> {
    let (one, two) = join!(
        async {
            let n = work(1).await?;
            publish("state", "one is done");
            Ok::<_, workflow_runtime::Error>(n)
        },
        work(2)
    );
    wait_for::<()>("go on").await?;
    publish("state", "went on");
    Ok(one? + two?)
}

#[workflow]
async fn nameless() -> Result<()> {
    publish("", "nothing");
    wait_for("never").await
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<progressing>()
        .register::<between>()
        .register::<nameless>()
}

/// Waits for what `between` publishes, through one crash.
async fn publish_through(plan: FaultPlan) -> u64 {
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine().open_with(store.clone()).await.expect("opens");
            let run = engine.start(between()).key("story").await.expect("starts");
            let mut watch = run.watch::<String>("state");
            let first = watch.changed().await.expect("reads").expect("is published");
            if first != "went on" {
                assert_eq!(first, "one is done");
                let _ = run.signal("go on", &()).key("once").await; // it may have ended
                let next = watch.changed().await.expect("reads").expect("is published");
                assert_eq!(next, "went on");
            }
            assert_eq!(run.result().await.expect("ends well"), 3);
            assert_eq!(watch.changed().await.expect("reads"), None);
            let last = run.published::<String>("state").await.expect("reads");
            assert_eq!(last.as_deref(), Some("went on"));
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => return store.writes(),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_nothing_that_was_published() {
    let writes = publish_through(FaultPlan::none()).await;
    assert!(writes >= 5, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let told = publish_through(FaultPlan::at(write, fault));
            let told = tokio::time::timeout(std::time::Duration::from_secs(5), told).await;
            told.unwrap_or_else(|_| panic!("{write} {fault:?}: nothing was published"));
        }
    }
}

#[tokio::test]
async fn a_resumed_run_never_shows_an_older_value() {
    let store = MemoryStore::new();
    let first = engine().open_with(store.clone()).await.expect("opens");
    let run = first.start(progressing(5)).await.expect("starts");
    while run.published("progress").await.expect("reads") != Some(5) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    drop(first);
    let second = engine()
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = second.run::<progressing>(run.id()).await.expect("is there");
    let mut watch = run.watch::<u32>("progress");
    assert_eq!(watch.changed().await.expect("reads"), Some(5));
    run.signal("go on", &()).await.expect("sends");
    assert_eq!(
        watch.changed().await.expect("reads"),
        None,
        "5 was the last"
    );
    assert_eq!(run.result().await.expect("ends well"), 5);
}

#[tokio::test]
async fn a_value_of_another_type_is_the_readers_error_alone() {
    let engine = engine().open_in_memory().await.expect("opens");
    let run = engine.start(progressing(1)).await.expect("starts");
    let mut watch = run.watch::<u32>("progress");
    while watch.changed().await.expect("reads") != Some(1) {}
    let refused = run
        .published::<String>("progress")
        .await
        .expect_err("a number");
    assert!(refused.to_string().contains("published value"), "{refused}");
    run.signal("go on", &()).await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), 1);
}

#[tokio::test]
async fn a_name_that_cannot_be_used_fails_the_run() {
    let engine = engine().open_in_memory().await.expect("opens");
    let run = engine.start(nameless()).await.expect("starts");
    let error = run.result().await.expect_err("no name");
    assert!(matches!(&error, RunError::Broken(_)), "{error}");
    assert!(error.to_string().contains("published value"), "{error}");
}
