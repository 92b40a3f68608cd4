//! Parents and children through parking, shutdowns, cancels and crashes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::join;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, RunError, RunId, RunStatus, Workflow, nondeterministic,
    sleep, start_child, step, timeout, wait_for, workflow,
};
use workflow_tests::{Ledger, survive};

/// Lets a body go on.
#[derive(Default)]
struct Gate(Notify);

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[step]
async fn gated(#[resource] gate: &Gate, #[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("gated");
    gate.0.notified().await;
    Ok(())
}

#[step(max_attempts = 1)]
async fn valueless() -> u32 {
    panic!("no value")
}

#[workflow]
async fn child(name: String) -> Result<usize> {
    act(&name).await
}

#[workflow]
async fn sleeper() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

#[workflow]
async fn waiting_child() -> Result<String> {
    wait_for("go on").await
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Refused {
    TooHeavy { by: u32 },
}

#[workflow]
async fn picky(weight: u32) -> Result<u32, Refused> {
    match weight.checked_sub(10) {
        None | Some(0) => Ok(weight),
        Some(by) => Err(Refused::TooHeavy { by }),
    }
}

#[workflow]
async fn parent_of_picky(weight: u32) -> Result<u32, Refused> {
    picky(weight).await
}

#[workflow]
async fn starts_and_returns() -> Result<String> {
    Ok(start_child(child("started".into())).id().to_string())
}

#[workflow]
async fn starts_acts_and_awaits() -> Result<usize> {
    let early = start_child(child("early".into()));
    act("meanwhile").await?;
    early.await
}

#[workflow]
async fn gives_up() -> Result<String> {
    let waited = timeout(Duration::from_millis(1), sleeper()).await;
    Ok(waited.expect_err("it sleeps for an hour").to_string())
}

#[workflow]
async fn grandparent() -> Result<usize> {
    let (one, two) = join!(middle("left".into()), middle("right".into()));
    Ok(one? + two?)
}

#[workflow]
async fn middle(name: String) -> Result<usize> {
    let below = child(format!("{name} below")).await?;
    Ok(below + act(&name).await?)
}

fn explode() -> Result<()> {
    panic!("not mended")
}

#[workflow]
async fn clumsy_parent() -> Result<String> {
    let panicking = async {
        act("a step").await?;
        explode()
    };
    join!(waiting_child(), panicking).0
}

#[workflow]
async fn clumsy_child() -> Result<usize> {
    let mended = nondeterministic!(MENDED.load(Ordering::SeqCst));
    assert!(mended, "not mended");
    act("mended").await
}

static MENDED: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn parent_of_clumsy() -> Result<usize> {
    clumsy_child().await
}

#[workflow]
async fn waits_for_its_child() -> Result<String> {
    waiting_child().await
}

#[workflow]
async fn starts_while_closing() -> Result<()> {
    gated().await?;
    start_child(child("at the last moment".into()));
    Ok(())
}

#[workflow]
async fn fails_beside_its_child() -> Result<()> {
    let (_, value) = join!(sleeper(), async {
        act("beside").await?;
        Ok::<_, Error>(valueless().await)
    });
    value.map(|_| ())
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<child>()
        .register::<sleeper>()
        .register::<waiting_child>()
        .register::<picky>()
        .register::<parent_of_picky>()
        .register::<starts_and_returns>()
        .register::<starts_acts_and_awaits>()
        .register::<gives_up>()
        .register::<grandparent>()
        .register::<middle>()
        .register::<clumsy_parent>()
        .register::<clumsy_child>()
        .register::<parent_of_clumsy>()
        .register::<waits_for_its_child>()
        .register::<starts_while_closing>()
        .register::<fails_beside_its_child>()
        .resource_arc(ledger.clone())
        .resource(Gate::default())
}

/// How many milliseconds something may take.
const PATIENCE: u32 = 5_000;

/// The only run of a workflow, once there is one.
async fn only<W: Workflow>(engine: &Engine, name: &str) -> workflow_runtime::RunHandle<W> {
    for _ in 0..PATIENCE {
        let runs = engine.runs().workflow(name).await.expect("lists").runs;
        assert!(runs.len() < 2, "{runs:?}");
        match runs.first() {
            Some(header) => return engine.run(header.run).await.expect("is there"),
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    panic!("there is no run of {name}")
}

async fn until(engine: &Engine, run: RunId, reached: impl Fn(&RunStatus) -> bool) {
    for _ in 0..PATIENCE {
        let status = engine.status(run).await.expect("is there");
        if reached(&status) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{run} did not get there")
}

/// Every crash that there is in a run that makes so many writes.
fn crashes(writes: u64) -> impl Iterator<Item = FaultPlan> {
    (0..writes).flat_map(|write| {
        [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear]
            .map(|fault| FaultPlan::at(write, fault))
    })
}

#[tokio::test]
async fn a_child_started_by_a_run_that_returns_at_once_is_created_whatever_crashes() {
    let ledger = Ledger::shared();
    let (_, store) = survive(|| engine(&ledger), starts_and_returns, []).await;
    for plan in crashes(store.writes()) {
        let shown = format!("{plan:?}");
        let ledger = Ledger::shared();
        let (id, store) = survive(|| engine(&ledger), starts_and_returns, [plan]).await;
        let engine = engine(&ledger)
            .open_with(store.reopen(Surviving::Synced))
            .await
            .expect("opens");
        let child = only::<child>(&engine, "child").await;
        assert_eq!(child.id().to_string(), id.expect("ends well"), "{shown}");
        assert_eq!(child.result().await.expect("ends well"), 7, "{shown}");
        assert_eq!(ledger.effects(), ["started"], "{shown}");
    }
}

#[tokio::test]
async fn a_started_child_can_be_awaited_later_whatever_crashes() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), starts_acts_and_awaits, []).await;
    assert_eq!(result.expect("ends well"), 5);
    for plan in crashes(store.writes()) {
        let ledger = Ledger::shared();
        let (result, _) = survive(|| engine(&ledger), starts_acts_and_awaits, [plan]).await;
        assert_eq!(result.expect("ends well"), 5);
        assert_eq!(ledger.effects(), ["early", "meanwhile"]);
    }
}

#[tokio::test]
async fn a_dropped_child_is_cancelled_whatever_crashes() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), gives_up, []).await;
    assert_eq!(result.expect("ends well"), "not done within 1ms");
    assert!(store.writes() >= 4, "{}", store.writes());
    for plan in crashes(store.writes()) {
        let ledger = Ledger::shared();
        let (result, store) = survive(|| engine(&ledger), gives_up, [plan]).await;
        result.expect("ends well");
        let engine = engine(&ledger)
            .open_with(store.reopen(Surviving::Synced))
            .await
            .expect("opens");
        let sleeper = only::<sleeper>(&engine, "sleeper").await;
        until(&engine, sleeper.id(), |s| *s == RunStatus::Cancelled).await;
    }
}

#[tokio::test]
async fn children_of_children_come_back_whatever_crashes() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), grandparent, []).await;
    let sum = result.expect("ends well");
    let effects = ledger.effects();
    assert_eq!((sum, effects.len()), (30, 4));
    for plan in crashes(store.writes()) {
        let ledger = Ledger::shared();
        let (result, _) = survive(|| engine(&ledger), grandparent, [plan]).await;
        assert_eq!(result.expect("ends well"), sum);
        assert_eq!(ledger.effects(), effects);
    }
}

#[tokio::test]
async fn a_childs_typed_error_comes_back_typed() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(parent_of_picky(12)).await.expect("starts");
    match run.result().await {
        Err(RunError::Failed(Refused::TooHeavy { by: 2 })) => {}
        other => panic!("{other:?}"),
    }
    let run = engine.start(parent_of_picky(9)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 9);
}

#[tokio::test]
async fn a_child_that_somebody_cancels_comes_back_as_an_error() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(waits_for_its_child()).await.expect("starts");
    let child = only::<waiting_child>(&engine, "waiting_child").await;
    child.cancel().reason("not needed").await.expect("asks");
    match run.result().await {
        Err(RunError::Failed(error)) => {
            let text = error.to_string();
            assert!(
                text.contains("`waiting_child` was cancelled: not needed"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_parent_waits_for_a_parked_child_and_goes_on_when_it_was_resumed() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(parent_of_clumsy()).await.expect("starts");
    let child = only::<clumsy_child>(&engine, "clumsy_child").await;
    until(&engine, child.id(), |s| matches!(s, RunStatus::Parked(_))).await;
    assert_eq!(run.status().await.expect("reads"), RunStatus::Active);
    MENDED.store(true, Ordering::SeqCst);
    engine.resume(child.id()).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well"), 6);
}

#[tokio::test]
async fn a_panic_in_the_parent_parks_it_and_cancels_no_child() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(clumsy_parent()).await.expect("starts");
    until(&engine, run.id(), |s| matches!(s, RunStatus::Parked(_))).await;
    let child = only::<waiting_child>(&engine, "waiting_child").await;
    child
        .signal("go on", "still here")
        .await
        .expect("was not cancelled");
    assert_eq!(child.result().await.expect("ends well"), "still here");
}

#[tokio::test]
async fn a_parent_of_an_unregistered_child_parks_and_goes_on_when_it_is_registered() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let short = Engine::builder()
        .register::<waits_for_its_child>()
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = short
        .start(waits_for_its_child())
        .key("w")
        .await
        .expect("starts");
    match run.result().await {
        Err(RunError::Parked(parking)) => {
            assert_eq!(parking.reason, ParkReason::Unregistered);
            assert!(
                parking.report.contains("waiting_child"),
                "{}",
                parking.report
            );
            assert!(parking.report.contains("family.rs:"), "{}", parking.report);
        }
        other => panic!("{other:?}"),
    }
    short.shutdown().await.expect("stops");
    let engine = engine(&ledger)
        .open_with(store.reopen(Surviving::All))
        .await
        .expect("opens");
    let child = only::<waiting_child>(&engine, "waiting_child").await;
    child.signal("go on", "there").await.expect("sends");
    let run = engine
        .run::<waits_for_its_child>(run.id())
        .await
        .expect("is there");
    assert_eq!(run.result().await.expect("ends well"), "there");
}

#[tokio::test]
async fn a_shutdown_cancels_no_child_and_both_go_on_afterwards() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(waits_for_its_child()).await.expect("starts");
    only::<waiting_child>(&first, "waiting_child").await;
    first.shutdown().await.expect("stops");
    let second = engine(&ledger)
        .open_with(store.reopen(Surviving::All))
        .await
        .expect("opens");
    let child = only::<waiting_child>(&second, "waiting_child").await;
    assert_eq!(child.status().await.expect("reads"), RunStatus::Active);
    child.signal("go on", "later").await.expect("sends");
    let run = second
        .run::<waits_for_its_child>(run.id())
        .await
        .expect("is there");
    assert_eq!(run.result().await.expect("ends well"), "later");
}

#[tokio::test]
async fn a_child_started_while_the_engine_closes_is_not_lost() {
    let ledger = Ledger::shared();
    let gate = Arc::new(Gate::default());
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .resource_arc(gate.clone())
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(starts_while_closing()).await.expect("starts");
    while ledger.effects().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let opening = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        gate.0.notify_one();
    };
    let (stopped, ()) = join!(
        std::future::IntoFuture::into_future(first.shutdown()),
        opening
    );
    stopped.expect("stops");
    let second = engine(&ledger)
        .open_with(store.reopen(Surviving::All))
        .await
        .expect("opens");
    assert_eq!(
        second.status(run.id()).await.expect("reads"),
        RunStatus::Completed
    );
    let child = only::<child>(&second, "child").await;
    assert_eq!(child.result().await.expect("ends well"), 18);
}

#[tokio::test]
async fn a_run_that_fails_for_want_of_a_value_drops_its_children_as_any_that_ends() {
    let engine = engine(&Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine
        .start(fails_beside_its_child())
        .await
        .expect("starts");
    let error = run.result().await.expect_err("no value");
    assert!(matches!(error, RunError::Broken(_)), "{error}");
    let sleeper = only::<sleeper>(&engine, "sleeper").await;
    until(&engine, sleeper.id(), |s| *s == RunStatus::Cancelled).await;
}

/// Cancels a parent, through a crash, and says how many of the family there are in the end.
async fn cancel_through(plan: FaultPlan) -> (usize, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine
                .start(waits_for_its_child())
                .key("story")
                .await
                .expect("starts");
            let _ = run.cancel().await; // it may have ended
            until(&engine, run.id(), |s| *s == RunStatus::Cancelled).await;
            let family = engine.runs().await.expect("lists").runs;
            for member in &family {
                until(&engine, member.run, |s| *s == RunStatus::Cancelled).await;
            }
            family.len()
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            family = living => return (family, store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_cancel_while_the_child_is_being_created_leaves_nothing_behind_whatever_crashes() {
    let (_, writes) = cancel_through(FaultPlan::none()).await;
    assert!(writes >= 4, "{writes}");
    for plan in crashes(writes) {
        let (family, _) = cancel_through(plan).await;
        assert!((1..=2).contains(&family), "{family}");
    }
}
