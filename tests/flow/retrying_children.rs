//! A parent that failed because its child failed is tried again together with the child: the same runs, the same
//! step ids, whatever crashes between the two.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::join;
use tokio::time::timeout;
use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunId, RunStatus, WorkflowCall, start_child,
    step, wait_for, workflow,
};
use workflow_tests::Ledger;

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(60);

/// How much of the outside world works: what is named by a number from here on does not.
#[derive(Default)]
struct World(AtomicU32);

impl World {
    fn mend(&self, up_to: u32) {
        self.0.store(up_to, Ordering::SeqCst);
    }
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<String> {
    ledger.act(what);
    Ok(what.to_owned())
}

#[step(max_attempts = 1)]
async fn shaky(
    #[resource] ledger: &Ledger,
    #[resource] world: &World,
    what: &str,
    number: u32,
) -> Result<String> {
    ledger.act(what);
    match number < world.0.load(Ordering::SeqCst) {
        true => Ok(what.to_owned()),
        false => Err(Error::fatal(format!("{what} is broken"))),
    }
}

#[step(undo = restore)]
async fn change(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[step]
async fn restore(#[resource] ledger: &Ledger, what: String, _changed: Option<()>) {
    ledger.act(&format!("restore {what}"));
}

#[workflow]
async fn grandchild() -> Result<String> {
    act("in the grandchild").await?;
    shaky("deep", 0).await
}

#[workflow]
async fn child() -> Result<String> {
    act("in the child").await?;
    let deep = grandchild().await?;
    let own = shaky("own", 1).await?;
    Ok(format!("{deep}, {own}"))
}

#[workflow]
async fn parent() -> Result<String> {
    act("before").await?;
    let given = child().await?;
    act("behind").await?;
    Ok(given)
}

#[workflow]
async fn sibling(number: u32) -> Result<String> {
    shaky(&format!("sibling {number}"), number).await
}

/// Fails when both have.
#[workflow]
async fn family() -> Result<String> {
    let (one, other) = join!(sibling(0), sibling(1));
    Ok(format!("{}, {}", one?, other?))
}

/// Goes on without its first child, and fails by its second.
#[workflow]
async fn forgiving() -> Result<String> {
    let first = sibling(0).await.unwrap_or_else(|_| "instead".into());
    act(&first).await?;
    sibling(1).await
}

/// Does not want to know how its first child ends.
#[workflow]
async fn careless() -> Result<String> {
    drop(start_child(sibling(0).detached()));
    wait_for::<()>("go").await?;
    shaky("own", 1).await
}

#[workflow]
async fn undoing() -> Result<()> {
    change("something").await?;
    shaky("own", 0).await.map(drop)
}

#[workflow]
async fn of_undoing() -> Result<()> {
    act("before").await?;
    undoing().await
}

#[workflow]
async fn of_that() -> Result<()> {
    of_undoing().await
}

/// Fails by a step while its child goes on.
#[workflow]
async fn impatient() -> Result<String> {
    let waiting = start_child(patient().detached());
    shaky("own", 0).await?;
    waiting.await
}

#[workflow]
async fn patient() -> Result<String> {
    wait_for::<String>("answer").await
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

    fn builder(&self) -> EngineBuilder {
        Engine::builder()
            .register::<grandchild>()
            .register::<child>()
            .register::<parent>()
            .register::<sibling>()
            .register::<family>()
            .register::<forgiving>()
            .register::<careless>()
            .register::<undoing>()
            .register::<of_undoing>()
            .register::<of_that>()
            .register::<impatient>()
            .register::<patient>()
            .resource_arc(self.ledger.clone())
            .resource_arc(self.world.clone())
    }

    async fn open(&self) -> Engine {
        let opened = self.builder().open_with(self.store.clone()).await;
        opened.expect("opens")
    }
}

/// All runs, by workflow.
async fn runs(engine: &Engine) -> BTreeSet<(String, RunId)> {
    let page = engine.runs().await.expect("lists");
    let runs = page.runs.iter();
    runs.map(|header| (header.workflow.to_string(), header.run))
        .collect()
}

async fn run_of(engine: &Engine, workflow: &str) -> RunId {
    let page = engine.runs().workflow(workflow).await.expect("lists");
    page.runs[0].run
}

async fn fails<W>(engine: &Engine, call: WorkflowCall<W>) -> RunId
where
    W: workflow_runtime::Workflow,
    W::Ok: std::fmt::Debug,
    W::Error: std::fmt::Debug,
{
    let run = engine.start(call).await.expect("starts");
    let result = timeout(LONG, run.result()).await.expect("ends");
    result.expect_err("fails");
    run.id()
}

#[tokio::test]
async fn a_parent_is_tried_again_with_its_failed_child_and_grandchild_under_the_same_ids() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let run = fails(&engine, parent()).await;
    let (before, asked) = (runs(&engine).await, scene.ledger.attempts());
    scene.world.mend(2);
    engine.retry(run).await.expect("is retried");
    let handle = engine.run::<parent>(run).await.expect("is there");
    let result = timeout(LONG, handle.result()).await.expect("ends");
    assert_eq!(result.expect("ends well"), "deep, own");
    assert_eq!(runs(&engine).await, before, "no other run was made");
    let effects = [
        "before",
        "behind",
        "deep",
        "in the child",
        "in the grandchild",
        "own",
    ];
    assert_eq!(scene.ledger.effects(), effects);
    let again = &scene.ledger.attempts()[asked.len()..];
    assert_eq!(
        again[0],
        *asked.last().expect("it failed"),
        "the same step, attempt 1"
    );
    assert_eq!(again.len(), 3, "what went well was not repeated");
    for (workflow, run) in before {
        let status = engine.journal(run).await.expect("reads");
        let reopened = status.records().iter();
        let reopened = reopened.filter(|r| matches!(r.event, Event::RunReopened(_)));
        assert_eq!(reopened.count(), 1, "{workflow}");
    }
}

#[tokio::test]
async fn a_child_that_fails_again_fails_its_parent_again_and_both_can_be_tried_once_more() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let run = fails(&engine, parent()).await;
    let handle = engine.run::<parent>(run).await.expect("is there");
    for (mended, broken) in [(0, "deep"), (1, "own")] {
        scene.world.mend(mended);
        engine.retry(run).await.expect("is retried");
        let result = timeout(LONG, handle.result()).await.expect("ends");
        let error = result.expect_err("fails again").to_string();
        assert!(error.contains(&format!("{broken} is broken")), "{error}");
    }
    scene.world.mend(2);
    engine.retry(run).await.expect("is retried");
    let result = timeout(LONG, handle.result()).await.expect("ends");
    assert_eq!(result.expect("ends well"), "deep, own");
}

#[tokio::test]
async fn children_that_failed_side_by_side_are_all_tried_again() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let run = fails(&engine, family()).await;
    scene.world.mend(2);
    engine.retry(run).await.expect("is retried");
    let handle = engine.run::<family>(run).await.expect("is there");
    let result = timeout(LONG, handle.result()).await.expect("ends");
    assert_eq!(result.expect("ends well"), "sibling 0, sibling 1");
    assert_eq!(scene.ledger.asked(), 4);
}

#[tokio::test]
async fn a_failed_child_that_the_code_went_on_from_is_left_alone() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let run = fails(&engine, forgiving()).await;
    scene.world.mend(2);
    engine.retry(run).await.expect("is retried");
    let handle = engine.run::<forgiving>(run).await.expect("is there");
    let result = timeout(LONG, handle.result()).await.expect("ends");
    assert_eq!(result.expect("ends well"), "sibling 1");
    assert_eq!(
        scene.ledger.asked(),
        4,
        "of the first child nothing ran again"
    );
    let journal = engine.journal(run).await.expect("reads");
    let records = journal.records().iter();
    let ends = records.filter(|record| matches!(record.event, Event::ChildFinished(_)));
    // That of the first child, and those of the second before and after it was tried again.
    assert_eq!(ends.count(), 3, "an end that counts is not told again");
}

#[tokio::test]
async fn a_failed_child_whose_end_nobody_wanted_is_left_alone() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let run = engine.start(careless()).await.expect("starts");
    let mut first = None;
    while first.is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let page = engine.runs().workflow("sibling").await.expect("lists");
        first = page.runs.first().map(|header| header.run);
    }
    let first = engine
        .run::<sibling>(first.expect("is there"))
        .await
        .expect("is there");
    first.result().await.expect_err("fails");
    run.signal("go", &()).await.expect("sends");
    timeout(LONG, run.result())
        .await
        .expect("ends")
        .expect_err("fails");
    scene.world.mend(2);
    run.retry().await.expect("is retried");
    timeout(LONG, run.result())
        .await
        .expect("ends")
        .expect("ends well");
    assert!(matches!(
        first.status().await.expect("looks"),
        RunStatus::Failed
    ));
}

#[tokio::test]
async fn a_child_that_was_undone_refuses_the_retry_of_its_parent_by_name_and_nothing_changes() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let top = fails(&engine, of_that()).await;
    let (middle, undone) = (
        run_of(&engine, "of_undoing").await,
        run_of(&engine, "undoing").await,
    );
    scene.world.mend(2);
    let writes = scene.store.writes();
    for run in [middle, top] {
        let error = engine.retry(run).await.expect_err("refused");
        assert!(
            matches!(&error, EngineError::ChildNotRetried { run: of, child, .. }
                if *of == middle && *child == undone),
            "{error}"
        );
        assert!(error.to_string().contains("was undone"), "{error}");
    }
    assert_eq!(scene.store.writes(), writes);
}

#[tokio::test]
async fn a_child_that_was_tried_again_by_itself_gives_its_parent_what_it_has_now() {
    for restart in [false, true] {
        let mut scene = Scene::new();
        let mut engine = scene.open().await;
        let run = fails(&engine, family()).await;
        scene.world.mend(2);
        for header in engine.runs().workflow("sibling").await.expect("lists").runs {
            engine.retry(header.run).await.expect("is retried");
            let one = engine.run::<sibling>(header.run).await.expect("is there");
            timeout(LONG, one.result())
                .await
                .expect("ends")
                .expect("ends well");
        }
        if restart {
            drop(engine);
            scene.store = scene.store.reopen(Surviving::Synced);
            engine = scene.open().await;
        }
        engine.retry(run).await.expect("is retried");
        let handle = engine.run::<family>(run).await.expect("is there");
        let result = timeout(LONG, handle.result()).await.expect("ends");
        assert_eq!(result.expect("ends well"), "sibling 0, sibling 1");
        assert_eq!(
            scene.ledger.asked(),
            4,
            "they ran twice each, and not for the parent"
        );
    }
}

#[tokio::test]
async fn what_a_child_said_while_its_parent_had_failed_is_heard_when_it_is_tried_again() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let run = fails(&engine, impatient()).await;
    let waiting = run_of(&engine, "patient").await;
    engine
        .signal(waiting, "answer", "yes")
        .await
        .expect("sends");
    let waiting = engine.run::<patient>(waiting).await.expect("is there");
    timeout(LONG, waiting.result())
        .await
        .expect("ends")
        .expect("ends well");
    scene.world.mend(2);
    engine.retry(run).await.expect("is retried");
    let handle = engine.run::<impatient>(run).await.expect("is there");
    let result = timeout(LONG, handle.result()).await.expect("hears of it");
    assert_eq!(result.expect("ends well"), "yes");
}

/// A fork of a parent that failed by its child: what it shares is the origin's, and what it tries again is its own.
#[tokio::test]
async fn a_fork_of_a_parent_is_tried_again_with_a_child_of_its_own() {
    let scene = Scene::new();
    let engine = scene.open().await;
    let origin = fails(&engine, family()).await;
    let before = runs(&engine).await;
    let fork = engine.fork(origin).await.expect("is forked");
    let handle = engine.run::<family>(fork).await.expect("is there");
    let result = timeout(LONG, handle.result()).await.expect("ends");
    result.expect_err("it was given the failure");
    let asked = scene.ledger.attempts();
    scene.world.mend(2);
    engine.retry(fork).await.expect("is retried");
    let result = timeout(LONG, handle.result()).await.expect("hears of it");
    assert_eq!(result.expect("ends well"), "sibling 0, sibling 1");
    let after = runs(&engine).await;
    assert_eq!(after.len(), before.len() + 3, "itself, and two of its own");
    let again = &scene.ledger.attempts()[asked.len()..];
    assert_eq!(again.len(), 2);
    assert!(
        again
            .iter()
            .all(|new| asked.iter().all(|old| old.0 != new.0)),
        "the outside world would take it for the origin's"
    );
    for (_, run) in before {
        let status = engine.status(run).await.expect("reads");
        assert!(matches!(status, RunStatus::Failed), "{run}: {status:?}");
    }
}

/// Fails `parent`, mends the world and tries it again, through one crash in what follows; gives how many writes that
/// took.
async fn retried_through(plan: FaultPlan) -> u64 {
    let mut scene = Scene::new();
    let engine = scene.open().await;
    let run = fails(&engine, parent()).await;
    engine.shutdown().await.expect("stops");
    scene.world.mend(2);
    scene.store = scene.store.reopen(Surviving::Synced);
    scene.store.set_faults(plan);
    loop {
        let living = async {
            let engine = scene.open().await;
            match engine.retry(run).await {
                // The crash came after the retry was durable.
                Ok(()) | Err(EngineError::NotFailed { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            let handle = engine.run::<parent>(run).await.expect("is there");
            let result = handle.result().await.expect("ends well");
            assert_eq!(result, "deep, own");
            assert_eq!(runs(&engine).await.len(), 3);
            let verified = engine.verify().await.expect("verifies");
            assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
        };
        tokio::select! {
            biased;
            () = scene.store.crashed() => {}
            done = timeout(LONG, living) => {
                done.expect("does not hang");
                let effects = ["before", "behind", "deep", "in the child", "in the grandchild", "own"];
                assert_eq!(scene.ledger.effects(), effects);
                return scene.store.writes();
            }
        }
        scene.store = scene.store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_retry_leaves_neither_parent_nor_child_behind() {
    let writes = retried_through(FaultPlan::none()).await;
    assert!(writes >= 6, "{writes}: three runs are taken up, and end");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            retried_through(FaultPlan::at(write, fault)).await;
        }
    }
}
