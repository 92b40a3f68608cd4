//! The code has changed between a failure and its retry.

use super::*;

/// As it was.
#[workflow(name = "bought")]
async fn bought() -> Result<String> {
    act("before").await?;
    shaky("buy").await
}

/// With a fallback since.
#[workflow(name = "bought")]
async fn bought_or_rented() -> Result<String> {
    act("before").await?;
    match shaky("buy").await {
        Ok(bought) => Ok(bought),
        Err(_) => act("rent").await,
    }
}

/// With a way around it since.
#[workflow(name = "bought")]
async fn bought_elsewhere() -> Result<String> {
    act("before").await?;
    if patched("elsewhere") {
        return act("buy elsewhere").await;
    }
    shaky("buy").await
}

#[tokio::test]
async fn what_new_code_would_go_on_to_was_never_done_and_keeps_no_failure() {
    let mut scene = Scene::with_broken(&["buy"]);
    let engine = scene.open::<bought>().await;
    let run = engine.start(bought()).await.expect("starts").id();
    fails(&engine.run::<bought>(run).await.expect("is there")).await;
    drop(engine);
    scene.store = scene.store.reopen(Surviving::Synced);
    let engine = scene.open::<bought_or_rented>().await;
    let bought = scene.took()[1];
    for works in [false, true] {
        if works {
            scene.world.mend();
        }
        let fork = engine.fork(run).await.expect("is forked");
        let fork = engine.run::<bought_or_rented>(fork).await;
        // A fork shares the failure, and has the new code go on from it.
        assert_eq!(ends_well(&fork.expect("is there")).await, "rent");
    }
    scene.took();
    engine.retry(run).await.expect("is retried");
    let handle = engine.run::<bought_or_rented>(run).await.expect("is there");
    assert_eq!(ends_well(&handle).await, "buy at last");
    assert_eq!(scene.took(), [bought]);
}

#[tokio::test]
async fn a_patch_in_front_of_a_failed_step_is_not_taken_by_its_retry() {
    let mut scene = Scene::with_broken(&["buy"]);
    let engine = scene.open::<bought>().await;
    let run = engine.start(bought()).await.expect("starts").id();
    fails(&engine.run::<bought>(run).await.expect("is there")).await;
    drop(engine);
    scene.store = scene.store.reopen(Surviving::Synced);
    scene.world.mend();
    let engine = scene.open::<bought_elsewhere>().await;
    engine.retry(run).await.expect("is retried");
    let run = engine.run::<bought_elsewhere>(run).await.expect("is there");
    // What was begun under an id is what goes on: nobody knows whether it was bought.
    assert_eq!(ends_well(&run).await, "buy at last");
}

/// Charges 100.
#[workflow(name = "billed")]
async fn billed() -> Result<String> {
    act("before").await?;
    charge("100").await
}

/// Charges something else at the same place.
#[workflow(name = "billed")]
async fn billed_200() -> Result<String> {
    act("before").await?;
    charge("200").await
}

/// Charges something else, and not before something new was done.
#[workflow(name = "billed")]
async fn billed_200_later() -> Result<String> {
    act("before").await?;
    act("new").await?;
    charge("200").await
}

/// The same, as it was.
#[workflow(name = "billed")]
async fn billed_later() -> Result<String> {
    act("before").await?;
    act("new").await?;
    charge("100").await
}

/// Leaves a run that was tried again and whose step has not run since: the process died.
async fn reopened_and_left<W: Workflow>(call: WorkflowCall<W>) -> (Scene, RunId)
where
    W::Ok: std::fmt::Debug,
    W::Error: std::fmt::Debug + std::fmt::Display,
{
    let mut scene = Scene::with_broken(&["charge"]);
    let engine = scene.open::<W>().await;
    let run = engine.start(call).await.expect("starts");
    fails(&run).await;
    let run = run.id();
    engine.shutdown().await.expect("stops");
    scene.store = scene.store.reopen(Surviving::Synced);
    scene.store.set_faults(FaultPlan::at(0, Fault::CrashAfter));
    let living = async {
        let engine = scene.open::<W>().await;
        let _ = engine.retry(run).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        () = scene.store.crashed() => {}
        () = living => {}
    }
    scene.store = scene.store.reopen(Surviving::Synced);
    scene.took();
    scene.world.mend();
    (scene, run)
}

/// Opens an engine with other code, and waits until the run is parked as diverged. Gives the report and its detail.
async fn diverges<W: Workflow>(scene: &Scene, run: RunId) -> (String, String)
where
    W::Ok: std::fmt::Debug,
    W::Error: std::fmt::Debug,
{
    let engine = scene.open::<W>().await;
    let handle = engine.run::<W>(run).await.expect("is there");
    let parked = timeout(LONG, handle.result()).await.expect("is parked");
    let Err(RunError::Parked(parking)) = parked else {
        panic!("{parked:?}");
    };
    assert_eq!(parking.reason, ParkReason::Diverged, "{parking:?}");
    let detail = engine.parked_detail(run).await.expect("reads");
    engine.shutdown().await.expect("stops");
    (parking.report.to_string(), detail.unwrap_or_default())
}

#[tokio::test]
async fn a_step_that_failed_before_a_retry_is_not_run_with_another_input() {
    let (mut scene, run) = reopened_and_left(billed()).await;
    let (report, detail) = diverges::<billed_200>(&scene, run).await;
    assert_eq!(scene.took(), [], "no body started");
    assert!(
        report.contains("the journal holds: record 3, step `charge`"),
        "{report}"
    );
    assert!(
        report.contains("the same call, but with other input: what"),
        "{report}"
    );
    assert!(
        report.contains("tests/flow/retrying_past/changed.rs:"),
        "{report}"
    );
    assert!(
        detail.contains("journal \"100\" | code \"200\""),
        "{detail}"
    );

    // With the old code it goes on.
    scene.store = scene.store.reopen(Surviving::Synced);
    let engine = scene.open::<billed>().await;
    engine.resume(run).await.expect("is resumed");
    let run = engine.run::<billed>(run).await.expect("is there");
    assert_eq!(ends_well(&run).await, "charged 100");
}

#[tokio::test]
async fn neither_is_one_that_the_code_comes_to_when_it_is_live() {
    let (mut scene, run) = reopened_and_left(billed()).await;
    let (report, detail) = diverges::<billed_200_later>(&scene, run).await;
    assert_eq!(scene.ledger.effects(), ["100", "before", "new"], "not 200");
    assert!(
        report.contains("the journal holds: record 3, step `charge`"),
        "{report}"
    );
    assert!(
        report.contains("the code asked for: step `charge`"),
        "{report}"
    );
    assert!(
        detail.contains("journal \"100\" | code \"200\""),
        "{detail}"
    );

    // A resume comes to the same, and other code that gives it what it was given goes on.
    scene.store = scene.store.reopen(Surviving::Synced);
    let engine = scene.open::<billed_later>().await;
    engine.resume(run).await.expect("is resumed");
    let run = engine.run::<billed_later>(run).await.expect("is there");
    assert_eq!(ends_well(&run).await, "charged 100");
    assert_eq!(scene.ledger.effects(), ["100", "before", "new"]);
}
