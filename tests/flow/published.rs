//! Published state: the latest value, for readers that do not disturb the run.

use workflow_runtime::{Engine, Result, publish, step, wait_for, workflow};

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
