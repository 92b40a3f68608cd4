//! A parked run, taken up again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use workflow_runtime::{Engine, Error, Result, RunStatus, workflow};

/// Stands for code that is broken until the next deploy.
static BROKEN: AtomicBool = AtomicBool::new(true);

#[workflow]
async fn stumble(round: u32) -> Result<u32> {
    if BROKEN.load(Ordering::SeqCst) {
        std::panic::resume_unwind(Box::new("stumbled")); // a panic that prints nothing
    }
    Ok(round)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_resume_right_after_the_parking_is_not_lost() -> Result<()> {
    let engine = Engine::builder()
        .register::<stumble>()
        .open_in_memory()
        .await?;
    for round in 0..2000 {
        BROKEN.store(true, Ordering::SeqCst);
        let run = engine.start(stumble(round)).await?;
        while !matches!(run.status().await?, RunStatus::Parked(_)) {
            tokio::task::yield_now().await;
        }
        // The store says parked; the task that parked it may not have left yet.
        BROKEN.store(false, Ordering::SeqCst);
        engine.resume(run.id()).await?;
        let ended = async {
            while run.status().await? != RunStatus::Completed {
                sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, Error>(())
        };
        timeout(Duration::from_secs(20), ended).await??;
        assert_eq!(run.result().await?, round);
    }
    Ok(())
}
