//! A failed run is tried again from its failed step: the same run, the same ids, its history kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::join;
use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{EndKind, StateKind};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunHandle, RunId, RunStatus,
    Workflow, get_step_metadata, sleep, step, workflow,
};
use workflow_tests::{Ledger, frames, ids_of};

/// Whether the outside world works.
#[derive(Default)]
struct World {
    works: AtomicBool,
}

impl World {
    fn mend(&self) {
        self.works.store(true, Ordering::SeqCst);
    }
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<String> {
    ledger.act(what);
    Ok(what.to_owned())
}

/// Has its effect and fails until the world works.
#[step(max_attempts = 2, backoff = "1ms")]
async fn shaky(
    #[resource] ledger: &Ledger,
    #[resource] world: &World,
    what: &str,
) -> Result<String> {
    ledger.act(what);
    if !world.works.load(Ordering::SeqCst) {
        return Err(Error::new("the world is broken"));
    }
    Ok(format!("{what} in attempt {}", get_step_metadata().attempt))
}

/// Gives no value at all until the world works.
#[step(max_attempts = 1)]
async fn explodes(#[resource] world: &World) -> u32 {
    assert!(world.works.load(Ordering::SeqCst), "the world is broken");
    1
}

#[workflow]
async fn order() -> Result<String> {
    let first = act("first").await?;
    let second = shaky("second").await?;
    let third = act("third").await?;
    Ok([first, second, third].join(", "))
}

struct Scene {
    ledger: Arc<Ledger>,
    world: Arc<World>,
    store: MemoryStore,
}

impl Scene {
    fn new() -> Self {
        Self {
            ledger: Ledger::shared(),
            world: Arc::default(),
            store: MemoryStore::new(),
        }
    }

    fn builder<W: Workflow>(&self) -> EngineBuilder {
        Engine::builder()
            .register::<W>()
            .resource_arc(self.ledger.clone())
            .resource_arc(self.world.clone())
    }

    async fn open<W: Workflow>(&self) -> Engine {
        let store = self.store.clone();
        self.builder::<W>().open_with(store).await.expect("opens")
    }

    async fn restart(&mut self) {
        self.store = self.store.reopen(Surviving::Synced);
    }
}

/// The records that no longer count, one list per retry.
async fn voided(engine: &Engine, run: RunId) -> Vec<Vec<u64>> {
    let journal = engine.journal(run).await.expect("reads");
    let events = journal.records().iter().map(|record| &record.event);
    events
        .filter_map(|event| match event {
            Event::RunReopened(reopened) => Some(reopened.voided.clone()),
            _ => None,
        })
        .collect()
}

async fn fails<W: Workflow>(run: &RunHandle<W>)
where
    W::Ok: std::fmt::Debug,
    W::Error: std::fmt::Debug,
{
    let failed = run.result().await;
    assert!(
        matches!(failed, Err(RunError::Failed(_) | RunError::Broken(_))),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_failed_run_goes_on_from_its_failed_step_under_the_same_ids() {
    let mut scene = Scene::new();
    let engine = scene.open::<order>().await;
    let run = engine.start(order()).key("o-1").await.expect("starts");
    fails(&run).await;
    let before = frames(&scene.store, run.id()).await;
    let attempts_before = scene.ledger.attempts();
    scene.world.mend();
    run.retry().await.expect("is retried");
    let result = "first, second in attempt 1, third";
    assert_eq!(run.result().await.expect("ends well"), result);
    assert_eq!(scene.ledger.effects(), ["first", "second", "third"]);
    assert_eq!(
        scene.ledger.attempts()[attempts_before.len()].0,
        attempts_before[1].0,
        "the failed step has another id"
    );
    assert_eq!(scene.ledger.asked(), attempts_before.len() + 2);

    let after = frames(&scene.store, run.id()).await;
    assert_eq!(after[..before.len()], before, "history was lost");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(ids_of(&journal, "shaky").len(), 2);
    let timeline = journal.to_string();
    assert!(
        timeline.contains("tried again      no longer count: 3 4"),
        "{timeline}"
    );
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());

    // This handle and others, before and after a restart, know the new end.
    assert_eq!(run.result().await.expect("ends well"), result);
    assert_eq!(run.status().await.expect("reads"), RunStatus::Completed);
    drop(engine);
    scene.restart().await;
    let engine = scene.open::<order>().await;
    let run = engine.start(order()).key("o-1").await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), result);
}

/// Starts, fails, mends the world, retries: through crashes.
async fn retried_through(plans: Vec<FaultPlan>) -> Scene {
    let mut scene = Scene::new();
    let mut plans = plans.into_iter();
    loop {
        scene.store.set_faults(plans.next().unwrap_or_default());
        let living = async {
            let engine = scene.open::<order>().await;
            let run = engine.start(order()).key("o-1").await.expect("starts");
            if run.result().await.is_err() {
                scene.world.mend();
                run.retry().await.expect("is retried");
            }
            run.result().await.expect("ends well")
        };
        tokio::select! {
            biased;
            () = scene.store.crashed() => {}
            result = living => {
                assert!(result.starts_with("first, second in attempt"), "{result}");
                return scene;
            }
        }
        scene.restart().await;
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_run_and_its_retry_changes_neither_result_nor_effects() {
    let writes = retried_through(vec![]).await.store.writes();
    for first in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            for second in 0..writes {
                let plans = vec![
                    FaultPlan::at(first, fault),
                    FaultPlan::at(second, Fault::CrashAfter),
                ];
                let scene = retried_through(plans).await;
                let shown = format!("{fault:?} at {first}, then at {second}");
                assert_eq!(
                    scene.ledger.effects(),
                    ["first", "second", "third"],
                    "{shown}"
                );
                let engine = scene.open::<order>().await;
                let run = engine.runs().await.expect("lists").runs[0].run;
                assert!(voided(&engine, run).await.len() <= 1, "{shown}");
                let checked = engine.verify().await.expect("verifies");
                assert!(checked.damaged.is_empty(), "{shown}");
            }
        }
    }
}

#[tokio::test]
async fn a_retry_that_fails_again_can_be_retried_again() {
    let scene = Scene::new();
    let engine = scene.open::<order>().await;
    let run = engine.start(order()).await.expect("starts");
    for _ in 0..3 {
        fails(&run).await;
        engine.retry(run.id()).await.expect("is retried");
    }
    fails(&run).await;
    scene.world.mend();
    engine.retry(run.id()).await.expect("is retried");
    assert!(run.result().await.is_ok());
    assert_eq!(scene.ledger.effects(), ["first", "second", "third"]);
    let voided = voided(&engine, run.id()).await;
    assert_eq!(voided, [[3, 4], [7, 8], [11, 12], [15, 16]]);
}

/// Ends as it is told.
#[workflow]
async fn ends(how: u8) {
    match how {
        0 => {}
        1 => panic!("parked"),
        _ => sleep(Duration::from_secs(3600)).await,
    }
}

#[tokio::test]
async fn only_a_failed_run_is_retried() {
    let scene = Scene::new();
    let engine = scene.open::<ends>().await;
    for (how, says) in [(0, "has completed"), (1, "is parked"), (2, "has not ended")] {
        let run = engine.start(ends(how)).await.expect("starts");
        if how < 2 {
            let _ = run.result().await;
        }
        let before = frames(&scene.store, run.id()).await;
        match engine.retry(run.id()).await {
            Err(error @ EngineError::NotFailed { .. }) => {
                assert!(error.to_string().contains(says), "{error}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(frames(&scene.store, run.id()).await, before);
    }
    let unknown = RunId::from_bytes([1; 16]);
    let refused = engine.retry(unknown).await;
    assert!(matches!(refused, Err(EngineError::UnknownRun(run)) if run == unknown));
}

#[workflow]
async fn with_fallback() -> Result<String> {
    let first = match shaky("first choice").await {
        Ok(first) => first,
        Err(_) => act("fallback").await?,
    };
    shaky("second").await?;
    Ok(first)
}

#[tokio::test]
async fn a_failure_that_the_code_went_on_from_stays() {
    let scene = Scene::new();
    let engine = scene.open::<with_fallback>().await;
    let run = engine.start(with_fallback()).await.expect("starts");
    fails(&run).await;
    scene.world.mend();
    engine.retry(run.id()).await.expect("is retried");
    assert_eq!(run.result().await.expect("ends well"), "fallback");
    let effects = ["fallback", "first choice", "second"];
    assert_eq!(scene.ledger.effects(), effects);
    assert_eq!(voided(&engine, run.id()).await, [[5, 6]]);
}

#[workflow]
async fn side_by_side() -> Result<usize> {
    let (a, b, c, d) = join!(
        async { shaky("a").await },
        async { shaky("b").await },
        async { explodes().await },
        async {
            act("d").await?;
            act("d again").await?;
            act("d once more").await
        }
    );
    Ok(a?.len() + b?.len() + d?.len() + c as usize)
}

#[tokio::test]
async fn all_that_failed_side_by_side_runs_again_and_what_went_well_does_not() {
    let scene = Scene::new();
    let engine = scene.open::<side_by_side>().await;
    let run = engine.start(side_by_side()).await.expect("starts");
    fails(&run).await;
    scene.world.mend();
    scene.ledger.forget_asking();
    // A step that gave no value fails the run at once; whatever had not ended by then runs as well.
    engine.retry(run.id()).await.expect("is retried");
    assert!(run.result().await.is_ok());
    let effects = ["a", "b", "d", "d again", "d once more"];
    assert_eq!(scene.ledger.effects(), effects);
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(ids_of(&journal, "act").len(), 3, "{journal}");
}

#[workflow]
async fn one_of_two() -> Result<usize> {
    let (a, d) = join!(async { shaky("a").max_attempts(1).await }, async {
        for n in 0..5 {
            act(&format!("d{n}")).await?;
        }
        act("end").await
    });
    Ok(a?.len() + d?.len())
}

#[tokio::test]
async fn a_failure_beside_steps_that_were_called_after_it_is_found() {
    let scene = Scene::new();
    let engine = scene.open::<one_of_two>().await;
    let run = engine.start(one_of_two()).await.expect("starts");
    fails(&run).await;
    scene.world.mend();
    scene.ledger.forget_asking();
    engine.retry(run.id()).await.expect("is retried");
    assert!(run.result().await.is_ok());
    assert_eq!(scene.ledger.asked(), 1, "only the failed one runs again");
}

#[workflow(name = "judged")]
async fn judged() -> Result<String> {
    let first = act("first").await?;
    Err(Error::fatal(format!("{first} is not enough")))
}

#[workflow(name = "judged")]
async fn judged_better() -> Result<String> {
    act("first").await?;
    act("second").await
}

#[workflow(name = "judged")]
async fn judged_otherwise() -> Result<String> {
    act("another").await
}

#[tokio::test]
async fn a_run_that_failed_by_its_own_judgement_goes_another_way_with_other_code() {
    let mut scene = Scene::new();
    let engine = scene.open::<judged>().await;
    let run = engine.start(judged()).await.expect("starts").id();
    let handle = engine.run::<judged>(run).await.expect("is there");
    fails(&handle).await;
    let refused = engine.retry(run).await.expect_err("it is the same code");
    assert!(
        matches!(refused, EngineError::FailsAgain { .. }),
        "{refused}"
    );
    let text = refused.to_string();
    assert!(text.contains("no step of it failed"), "{text}");
    assert_eq!(scene.ledger.asked(), 1);
    drop(engine);

    scene.restart().await;
    let engine = scene.open::<judged_otherwise>().await;
    match engine.retry(run).await {
        Err(EngineError::Unfit { report, .. }) => {
            assert!(report.contains("the code no longer fits"), "{report}");
        }
        other => panic!("{other:?}"),
    }
    let failed = StateKind::Ended(EndKind::Failed);
    let failed = engine.runs().state(failed).await.expect("lists");
    assert_eq!(failed.runs.len(), 1, "it was left as it is");
    drop(engine);

    scene.restart().await;
    let engine = scene.open::<judged_better>().await;
    engine.retry(run).await.expect("is retried");
    let run = engine.run::<judged_better>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), "second");
    assert_eq!(scene.ledger.asked(), 2);
}

#[tokio::test]
async fn of_many_retries_at_once_one_is_made() {
    let scene = Scene::new();
    let engine = scene.open::<order>().await;
    let run = engine.start(order()).key("o-1").await.expect("starts");
    fails(&run).await;
    scene.world.mend();
    let retries = (0..8).map(|_| {
        let (engine, run) = (engine.clone(), run.id());
        let retry = tokio::spawn(async move { engine.retry(run).await });
        async { retry.await.expect("does not panic") }
    });
    let starts = (0..8).map(|_| async { engine.start(order()).key("o-1").await.map(drop) });
    let (retried, started) = join!(
        futures::future::join_all(retries),
        futures::future::join_all(starts)
    );
    assert!(started.iter().all(std::result::Result::is_ok));
    assert_eq!(retried.iter().filter(|retry| retry.is_ok()).count(), 1);
    assert!(run.result().await.is_ok());
    assert_eq!(voided(&engine, run.id()).await.len(), 1);
    assert_eq!(scene.ledger.asked(), 5);
}

#[workflow(name = "tolerant order", changes = "tolerant")]
async fn tolerant_order() -> Result<String> {
    let first = match shaky("first choice").await {
        Ok(first) => first,
        Err(_) => act("fallback").await?,
    };
    shaky("second").await?;
    Ok(first)
}

#[tokio::test]
async fn a_tolerant_run_is_retried_by_the_same_rule() {
    let scene = Scene::new();
    let engine = scene.open::<tolerant_order>().await;
    let run = engine.start(tolerant_order()).await.expect("starts");
    fails(&run).await;
    scene.world.mend();
    engine.retry(run.id()).await.expect("is retried");
    assert_eq!(run.result().await.expect("ends well"), "fallback");
    assert_eq!(voided(&engine, run.id()).await, [[5, 6]]);
    assert!(engine.warnings().is_empty(), "{:?}", engine.warnings());
}

#[tokio::test]
async fn a_run_that_is_still_leaving_memory_is_driven_again() {
    let scene = Scene::new();
    let engine = scene.open::<order>().await;
    let run = engine.start(order()).await.expect("starts");
    // One write at a time, until its end is in the store and its task has not been told.
    while run.status().await.expect("reads") != RunStatus::Failed {
        scene.store.release();
        scene.store.hold();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    scene.world.mend();
    let releasing = async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        scene.store.release();
    };
    // In this order the retry goes on before the task of the failed run does.
    let ((), retried) = join!(releasing, engine.retry(run.id()));
    retried.expect("is retried");
    let result = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    assert!(result.expect("somebody drives it").is_ok());
}

#[tokio::test]
async fn a_fork_of_a_failed_run_is_retried_under_an_id_of_its_own() {
    let scene = Scene::new();
    let engine = scene.open::<order>().await;
    let origin = engine.start(order()).await.expect("starts");
    fails(&origin).await;
    let fork = origin.fork().await.expect("is forked");
    fails(&fork).await;
    assert_eq!(scene.ledger.asked(), 3, "the fork was given the failure");
    scene.world.mend();
    fork.retry().await.expect("is retried");
    assert!(fork.result().await.is_ok());
    fails(&origin).await;
    let (theirs, own) = (origin.id(), fork.id());
    let theirs = engine.journal(theirs).await.expect("reads");
    let own = engine.journal(own).await.expect("reads");
    assert_eq!(ids_of(&own, "act")[0], ids_of(&theirs, "act")[0]);
    let tried = ids_of(&own, "shaky");
    assert_eq!(tried[0], ids_of(&theirs, "shaky")[0]);
    assert_ne!(
        tried[1], tried[0],
        "the outside world would take it for the first"
    );
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
}
