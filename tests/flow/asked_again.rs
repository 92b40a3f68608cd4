//! The same key, asked again and again after the run has ended.

use futures::future::try_join_all;
use workflow_runtime::{Engine, Result, workflow};

#[workflow]
async fn answer() -> Result<u32> {
    Ok(42)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_is_asked_for_again_gives_the_first_result_every_time() -> Result<()> {
    let engine = Engine::builder()
        .register::<answer>()
        .open_in_memory()
        .await?;
    let first = engine.start(answer()).key("a").await?;
    assert_eq!(first.result().await?, 42);
    for _ in 0..500 {
        // Several at once: each may meet the others' entries while they come and go.
        let asked = (0..4).map(|_| async {
            let run = engine.start(answer()).key("a").await?;
            assert_eq!(run.id(), first.id());
            Ok::<_, workflow_runtime::Error>(run.result().await?)
        });
        assert_eq!(try_join_all(asked).await?, [42; 4]);
    }
    Ok(())
}
