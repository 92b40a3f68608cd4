//! Pictures with a run laid over them.

use std::time::Duration;

use futures::join;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Diagram, Error, Result, RunError, get_step_metadata, sleep, step, wait_for, workflow,
};

const HOUR: Duration = Duration::from_secs(3600);

#[step(effect = "create", undo = release)]
async fn reserve(item: u64) -> Result<u64> {
    tokio::time::sleep(Duration::from_millis(40)).await;
    Ok(item)
}

#[step]
async fn release(_item: u64, _done: Option<u64>) -> Result<()> {
    Ok(())
}

#[step(
    effect = "payment",
    max_attempts = 3,
    backoff = "1h..1h",
    timeout = "10s"
)]
async fn charge(cents: u64) -> Result<u64> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    match (get_step_metadata().attempt, cents) {
        (_, 0) => Err(Error::fatal("nothing to pay")),
        (1, _) => Err(Error::new("busy")),
        _ => Ok(cents),
    }
}

#[step(effect = "message", at_most_once)]
async fn mail(_text: &str) -> Result<()> {
    Ok(())
}

#[workflow]
async fn accounting(cents: u64) -> Result<u64> {
    sleep(HOUR).await;
    Ok(cents)
}

#[workflow(name = "order with a run")]
async fn order(items: Vec<u64>, cents: u64) -> Result<()> {
    for item in &items {
        reserve(*item).await?;
    }
    if cents < 1_000 {
        charge(cents).await?;
    } else {
        let _: bool = wait_for("approved").await?;
    }
    let (booked, mailed) = join!(accounting(cents), async { mail("bye").await });
    booked.map_err(|error| Error::new(format!("{error:?}")))?;
    sleep(24 * HOUR).await;
    mailed
}

/// The picture of a run after so much time.
async fn after(cents: u64, time: Duration) -> Diagram {
    let engine = TestEngine::builder()
        .register::<order>()
        .register::<accounting>();
    let engine = engine.open().await.expect("opens");
    let run = engine.start(order(vec![1, 2, 3], cents)).key("run");
    let run = run.await.expect("starts");
    engine.advance(time).await;
    engine.diagram(run.id()).await.expect("is drawn")
}

#[tokio::test]
async fn a_run_that_has_ended_is_done_everywhere_it_went() {
    let picture = after(500, 100 * HOUR).await;
    insta::assert_snapshot!("ended", picture.mermaid());
    insta::assert_snapshot!("ended_dot", picture.dot());
    let book = include_str!("../../docs/diagram.md");
    let drawn = picture.mermaid();
    assert!(book.contains(&format!("```mermaid\n{drawn}```")), "{drawn}");
}

#[tokio::test]
async fn a_run_that_is_under_way_shows_where_it_is() {
    // The first attempt has failed, and the second one is due in up to an hour.
    let trying = after(500, Duration::from_secs(2)).await.mermaid();
    assert!(
        trying.contains("running, attempt 1 failed, next at "),
        "{trying}"
    );
    insta::assert_snapshot!("waiting_for_a_child", after(500, 2 * HOUR).await.mermaid());
    insta::assert_snapshot!("asleep", after(500, 10 * HOUR).await.dot());
}

#[tokio::test]
async fn what_may_be_running_without_a_record_is_marked_as_next() {
    let begun = after(500, Duration::from_millis(10)).await.mermaid();
    assert!(begun.contains("class n2,n4,n5 next"), "{begun}");
    let signal = after(5_000, HOUR).await.mermaid();
    insta::assert_snapshot!("waiting_for_a_signal", signal);
}

#[tokio::test]
async fn a_run_that_has_failed_shows_where() {
    let picture = after(0, HOUR).await;
    insta::assert_snapshot!("failed", picture.mermaid());
}

/// As `order`, with a step in the middle: it diverges.
#[workflow(name = "order with a run")]
async fn changed(items: Vec<u64>, cents: u64) -> Result<()> {
    for item in &items {
        reserve(*item).await?;
        mail("reserved").await?;
    }
    charge(cents).await?;
    Ok(())
}

#[tokio::test]
async fn a_run_that_is_parked_says_why_and_finds_its_boxes_by_name_where_the_source_has_moved() {
    let store = MemoryStore::new();
    let engine = TestEngine::builder()
        .register::<order>()
        .register::<accounting>();
    let engine = engine.store(store.clone()).open().await.expect("opens");
    let run = engine
        .start(order(vec![1, 2], 500))
        .key("run")
        .await
        .expect("starts");
    engine.advance(Duration::from_secs(2)).await;
    drop(engine);
    let store = store.reopen(workflow_runtime::store::memory::Surviving::Synced);
    let engine = TestEngine::builder().register::<changed>().store(store);
    let engine = engine.open().await.expect("opens");
    let run = engine.run::<changed>(run.id()).await.expect("is there");
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    let picture = engine.diagram(run.id()).await.expect("is drawn").mermaid();
    assert!(picture.contains("parked: Diverged"), "{picture}");
    assert!(
        picture.contains("reserve<br>create, undo release<br>done 2 times, "),
        "{picture}"
    );
    assert!(picture.contains("running, attempt 1 failed"), "{picture}");
}

#[tokio::test]
async fn a_picture_is_drawn_of_registered_workflows_only() {
    let engine = TestEngine::builder()
        .register::<order>()
        .register::<accounting>();
    let store = MemoryStore::new();
    let engine = engine.store(store.clone()).open().await.expect("opens");
    let run = engine
        .start(accounting(1))
        .key("run")
        .await
        .expect("starts")
        .id();
    engine.clone().shutdown().await.expect("stops");
    let store = store.reopen(workflow_runtime::store::memory::Surviving::All);
    let engine = TestEngine::builder().register::<order>().store(store);
    let engine = engine.open().await.expect("opens");
    let refused = engine.diagram(run).await.expect_err("it has no picture");
    assert!(
        refused
            .to_string()
            .contains("no workflow `accounting` version 1 is registered"),
        "{refused}"
    );
}

#[step]
async fn twice(_n: u64) -> Result<u64> {
    Ok(1)
}

/// Calls itself in a loop inside a loop.
#[workflow]
async fn nested(n: u64) -> Result<u64> {
    for i in 0..n {
        for j in 0..2 {
            twice(i + j).await?;
        }
    }
    Ok(n)
}

#[tokio::test]
async fn loops_say_how_many_rounds_are_on_record() {
    let engine = TestEngine::builder()
        .register::<nested>()
        .open()
        .await
        .unwrap();
    let run = engine.start(nested(3)).await.unwrap();
    run.result().await.unwrap();
    let picture = engine.diagram(run.id()).await.unwrap().mermaid();
    assert!(
        picture.contains("for j in 0..2<br>6 rounds on record"),
        "{picture}"
    );
    assert!(picture.contains("twice<br>done 6 times"), "{picture}");
    let none = engine.start(nested(0)).await.unwrap();
    none.result().await.unwrap();
    let picture = engine.diagram(none.id()).await.unwrap().mermaid();
    assert!(picture.contains("no round on record"), "{picture}");
    assert!(picture.contains("class n3 unreached"), "{picture}");
}
