//! A parent that was tried again, and a child that goes on as a new run: that is no end of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::check_invariants;
use workflow_runtime::{
    Engine, Error, Result, RunError, continue_as_new, step, wait_for, workflow,
};

/// Whether the world works.
#[derive(Default)]
struct Works(AtomicBool);

#[step(max_attempts = 1)]
async fn shaky(#[resource] works: &Works) -> Result<()> {
    match works.0.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(Error::new("the world is broken")),
    }
}

#[workflow]
async fn onward(left: u64) -> Result<u64> {
    match left {
        0 => Ok(wait_for::<u64>("value").await?),
        _ => continue_as_new(onward(left - 1)).await,
    }
}

#[workflow]
async fn parent() -> Result<u64> {
    shaky().await?;
    onward(2).await
}

async fn open(store: &MemoryStore, works: &Arc<Works>) -> Engine {
    let builder = Engine::builder().resource_arc(works.clone());
    let builder = builder.register::<onward>().register::<parent>();
    builder.open_with(store.clone()).await.expect("opens")
}

#[tokio::test]
async fn a_child_that_went_on_as_a_new_run_has_not_ended_for_a_parent_that_was_tried_again() {
    let (works, store) = (Arc::new(Works::default()), MemoryStore::new());
    let engine = open(&store, &works).await;
    let run = engine.start(parent()).await.expect("starts");
    assert!(matches!(run.result().await, Err(RunError::Failed(_))));
    works.0.store(true, Ordering::SeqCst);
    run.retry().await.expect("is tried again");
    let lines = || async {
        engine
            .runs()
            .workflow(onward::NAME)
            .await
            .expect("lists")
            .runs
    };
    while lines().await.len() < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let newest = lines().await.into_iter().find(|run| run.end().is_none());
    let newest = newest.expect("one goes on").run;
    drop(engine);
    // Whoever takes the parent up looks after its children, because it was tried again.
    let engine = open(&store.reopen(Surviving::Synced), &works).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    engine.signal(newest, "value", &7_u64).await.expect("sent");
    let run = engine.run::<parent>(run.id()).await.expect("there");
    let result = tokio::time::timeout(Duration::from_secs(60), run.result()).await;
    assert_eq!(result.expect("it hangs").expect("ends"), 7);
    assert_eq!(check_invariants(&engine).await.expect("checks"), []);
}
