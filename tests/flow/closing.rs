//! Runs that do not complete, in every state in which that can find them: bodies in flight, blocking
//! bodies, races, children, shutdowns, parking, crashes.

mod crashes;
mod terminating;

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use futures::{join, try_join};
use tokio::time::timeout;
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunStatus, abort, sleep,
    start_child, step, undo_with, workflow,
};
use workflow_tests::Ledger;

const LONG: Duration = Duration::from_secs(5);

/// Something that only some engines have.
struct Tools;

#[step(undo = close)]
async fn open(#[resource] ledger: &Ledger, what: &str) -> Result<u32> {
    ledger.act(&format!("open {what}"));
    Ok(1)
}

#[step]
async fn close(#[resource] ledger: &Ledger, what: String, opened: Option<u32>) -> Result<()> {
    ledger.act(&format!("close {what} {opened:?}"));
    Ok(())
}

#[step(undo = close_slowly)]
async fn open_slowly(#[resource] ledger: &Ledger, what: &str, millis: u64) -> Result<u32> {
    ledger.act(&format!("open {what}"));
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(2)
}

#[step]
async fn close_slowly(
    #[resource] ledger: &Ledger,
    what: String,
    millis: u64,
    opened: Option<u32>,
) -> Result<()> {
    ledger.act(&format!("close {what} {opened:?}"));
    tokio::time::sleep(Duration::from_millis(millis.min(30))).await;
    Ok(())
}

#[step(blocking, undo = close_slowly)]
fn block(#[resource] ledger: &Ledger, what: String, millis: u64) -> Result<u32> {
    std::thread::sleep(Duration::from_millis(millis));
    ledger.act(&format!("open {what}"));
    Ok(3)
}

#[step(undo = close_with_tools)]
async fn open_with_tools(#[resource] ledger: &Ledger, what: &str) -> Result<u32> {
    ledger.act(&format!("open {what}"));
    Ok(4)
}

#[step]
async fn close_with_tools(
    #[resource] ledger: &Ledger,
    #[resource] _tools: &Tools,
    what: String,
    opened: Option<u32>,
) -> Result<()> {
    ledger.act(&format!("close {what} {opened:?}"));
    Ok(())
}

/// Undoes `open_oddly` with another type than it gave.
#[step]
async fn close_oddly(_what: String, _opened: Option<Vec<String>>) -> Result<()> {
    Ok(())
}

#[step(undo = close_oddly)]
async fn open_oddly(#[resource] ledger: &Ledger, what: &str) -> Result<u32> {
    ledger.act(&format!("open {what}"));
    Ok(5)
}

#[step]
async fn fail() -> Result<u32> {
    Err(Error::fatal("on purpose"))
}

#[workflow]
async fn child(how: String) -> Result<u32> {
    open("in the child").await?;
    match &*how {
        "fail" => fail().await,
        _ => {
            sleep(Duration::from_secs(3600)).await;
            Ok(1)
        }
    }
}

#[workflow]
async fn story(how: String) -> Result<u32> {
    open("the first").await?;
    match &*how {
        "blocking" => block("a block".into(), 100).await,
        "blocking loser" => {
            match select(block("a block".into(), 60), open_slowly("a door", 5)).await {
                Either::Left((value, _)) => value,
                Either::Right(_) => fail().await,
            }
        }
        "swallowed" => match select(open("this"), open("that")).await {
            Either::Left((value, _)) | Either::Right((value, _)) => {
                value?;
                fail().await
            }
        },
        "in flight" => {
            let (value, _) = try_join!(open_slowly("a door", 3_600_000), fail())?;
            Ok(value)
        }
        "abort in flight" => {
            let (value, ()) = join!(open_slowly("a door", 20), async {
                sleep(Duration::from_millis(2)).await;
                abort("not wanted").await
            });
            value
        }
        "slow" => open_slowly("a door", 3_600_000).await,
        "slow undo" => {
            open_slowly("a door", 30).await?;
            fail().await
        }
        "tools" => {
            open_with_tools("a safe").await?;
            fail().await
        }
        "oddly" => {
            open_oddly("a window").await?;
            fail().await
        }
        "child fails" => child("fail".into()).await,
        "child waits" => child("wait".into()).await,
        "child is given up" => {
            let (value, ()) = join!(child("wait".into()), async {
                sleep(Duration::from_millis(30)).await;
                abort("not wanted").await
            });
            value
        }
        _ => {
            sleep(Duration::from_secs(3600)).await;
            Ok(1)
        }
    }
}

static BROKEN: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn fragile() -> Result<u32> {
    open("the first").await?;
    assert!(!BROKEN.load(Ordering::Relaxed), "on purpose");
    open("the second").await
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<story>()
        .register::<child>()
        .register::<fragile>()
        .cancel_grace(Duration::from_millis(40))
        .resource_arc(ledger.clone())
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(15)).await;
}

async fn opened(ledger: &Arc<Ledger>) -> Engine {
    engine(ledger).open_in_memory().await.expect("opens")
}

fn undo_ids(journal: &Journal) -> Vec<String> {
    let records = journal.records().iter();
    let steps = records.filter_map(|record| match &record.event {
        Event::StepCompleted(step) if step.name.starts_with("close") => Some(step),
        _ => None,
    });
    steps.map(|step| step.step.to_string()).collect()
}

#[tokio::test]
async fn blocking_bodies_are_awaited_beyond_their_grace_and_undone_with_what_they_gave() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine
        .start(story("blocking".into()))
        .await
        .expect("starts");
    settle().await;
    run.cancel().await.expect("asks");
    let ended = timeout(LONG, run.result()).await.expect("does not hang");
    ended.expect_err("cancelled");
    let expected = [
        "open the first",
        "open a block",
        "close a block Some(3)",
        "close the first Some(1)",
    ];
    assert_eq!(ledger.in_order(), expected);
}

#[tokio::test]
async fn a_blocking_body_whose_call_lost_a_race_is_awaited_before_its_undoing() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("blocking loser".into())).await;
    let run = run.expect("starts");
    let ended = timeout(LONG, run.result()).await.expect("does not hang");
    ended.expect_err("fails");
    let expected = [
        "open the first",
        "open a door",
        "open a block",
        "close a block None",
        "close a door Some(2)",
        "close the first Some(1)",
    ];
    assert_eq!(ledger.in_order(), expected);
}

#[tokio::test]
async fn a_run_that_fails_with_steps_in_flight_undoes_them_too() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine
        .start(story("in flight".into()))
        .await
        .expect("starts");
    let ended = timeout(LONG, run.result()).await.expect("does not hang");
    ended.expect_err("fails");
    let effects = ledger.in_order();
    assert_eq!(
        effects[2..],
        ["close a door None", "close the first Some(1)"]
    );
}

#[tokio::test]
async fn bodies_in_flight_get_their_grace_when_the_run_aborts_itself() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("abort in flight".into())).await;
    let run = run.expect("starts");
    let ended = timeout(LONG, run.result()).await.expect("does not hang");
    let error = ended.expect_err("aborted");
    assert!(matches!(error, RunError::Aborted { .. }), "{error}");
    let effects = ledger.in_order();
    let expected = ["close a door Some(2)", "close the first Some(1)"];
    assert_eq!(effects[2..], expected);
}

#[tokio::test]
async fn a_shutdown_leaves_the_rest_of_the_undoing_to_the_next_engine() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first
        .start(story("slow undo".into()))
        .await
        .expect("starts");
    while !ledger
        .in_order()
        .iter()
        .any(|effect| effect.starts_with("close"))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.shutdown().await.expect("stops");
    assert_eq!(
        ledger.in_order().last().map(|it| &**it),
        Some("close a door Some(2)")
    );
    let stopped = run.result().await.expect_err("is not at its end");
    assert!(matches!(stopped, RunError::Engine(_)), "{stopped}");
    let store = store.reopen(Surviving::Synced);
    let next = engine(&ledger).open_with(store).await.expect("opens");
    let run = next.run::<story>(run.id()).await.expect("is there");
    let error = run.result().await.expect_err("fails");
    assert!(matches!(error, RunError::Failed(_)), "{error}");
    assert_eq!(ledger.asked(), 4, "each once");
    assert_eq!(ledger.in_order()[3], "close the first Some(1)");
}

#[tokio::test]
async fn a_run_that_is_cancelled_while_it_is_undone_ends_as_it_was_to_end() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine
        .start(story("slow undo".into()))
        .await
        .expect("starts");
    while !ledger
        .in_order()
        .iter()
        .any(|effect| effect.starts_with("close"))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run.cancel().await.expect("is accepted");
    let error = run.result().await.expect_err("fails");
    assert!(matches!(error, RunError::Failed(_)), "{error}");
    assert_eq!(ledger.asked(), 4, "each once");
}

#[tokio::test]
async fn a_run_that_cannot_be_undone_for_want_of_a_resource_is_parked_and_goes_on_after_it() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first.start(story("tools".into())).await.expect("starts");
    let error = run.result().await.expect_err("is parked");
    let RunError::Parked(parking) = error else {
        panic!("{error}");
    };
    assert_eq!(parking.reason, ParkReason::MissingResource);
    first.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::Synced);
    let next = engine(&ledger).resource(Tools).open_with(store).await;
    let next = next.expect("opens");
    let run = next.run::<story>(run.id()).await.expect("is there");
    let error = run.result().await.expect_err("fails");
    assert!(matches!(error, RunError::Failed(_)), "{error}");
    let effects = ledger.in_order();
    assert_eq!(
        effects[2..],
        ["close a safe Some(4)", "close the first Some(1)"]
    );
}

#[tokio::test]
async fn an_undo_that_cannot_read_what_the_step_gave_parks_the_run() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("oddly".into())).await.expect("starts");
    let error = timeout(LONG, run.result()).await.expect("does not hang");
    let error = error.expect_err("is parked");
    let RunError::Parked(parking) = error else {
        panic!("{error}");
    };
    assert_eq!(parking.reason, ParkReason::Undecodable);
    assert!(
        parking.report.contains("`open_oddly`"),
        "{}",
        parking.report
    );
    assert_eq!(
        ledger.effects().len(),
        2,
        "nothing was undone behind its back"
    );
}

#[tokio::test]
async fn a_step_whose_undo_could_not_be_told_its_input_does_not_begin() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).payload_limit(200).open_in_memory().await;
    let engine = engine.expect("opens");
    let run = engine.start(story("wait".into())).await.expect("starts");
    settle().await;
    run.cancel().await.expect("asks");
    run.result().await.expect_err("cancelled");
    let tight = Engine::builder()
        .register::<wordy>()
        .payload_limit(200)
        .resource_arc(ledger.clone());
    let tight = tight.open_in_memory().await.expect("opens");
    ledger.forget_asking();
    let run = tight.start(wordy()).await.expect("starts");
    let error = run.result().await.expect_err("fails");
    assert!(error.to_string().contains("`undo`"), "{error}");
    assert_eq!(ledger.asked(), 0);
}

#[workflow]
async fn wordy() -> Result<u32> {
    open(&"a word ".repeat(100)).await
}

#[tokio::test]
async fn a_parked_run_that_is_cancelled_ends_when_it_is_resumed() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    BROKEN.store(true, Ordering::Relaxed);
    let run = engine.start(fragile()).await.expect("starts");
    let error = run.result().await.expect_err("is parked");
    assert!(matches!(error, RunError::Parked(_)), "{error}");
    run.cancel().await.expect("is accepted");
    settle().await;
    let status = run.status().await.expect("is there");
    assert!(matches!(status, RunStatus::Parked(_)), "{status:?}");
    BROKEN.store(false, Ordering::Relaxed);
    engine.resume(run.id()).await.expect("resumes");
    let error = run.result().await.expect_err("cancelled");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    // The second was called and may have begun, as far as anybody can know.
    let effects = [
        "open the first",
        "close the second None",
        "close the first Some(1)",
    ];
    assert_eq!(ledger.in_order(), effects);
}

#[tokio::test]
async fn a_child_that_fails_undoes_its_own_and_its_parent_the_rest() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("child fails".into())).await;
    let run = run.expect("starts");
    run.result().await.expect_err("fails");
    let expected = [
        "open the first",
        "open in the child",
        "close in the child Some(1)",
        "close the first Some(1)",
    ];
    assert_eq!(ledger.in_order(), expected);
}

async fn with_child(how: &str) -> (Arc<Ledger>, Engine, workflow_runtime::RunHandle<story>) {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story(how.into())).await.expect("starts");
    settle().await;
    (ledger, engine, run)
}

async fn the_child(engine: &Engine) -> workflow_runtime::RunHandle<child> {
    let page = engine.runs().workflow("child").await.expect("lists");
    let run = engine.run::<child>(page.runs[0].run).await;
    run.expect("is there")
}

#[tokio::test]
async fn whatever_ends_a_parent_ends_its_children_and_they_undo_their_own() {
    for how in ["cancel", "terminate", "abort"] {
        let name = match how {
            "abort" => "child is given up",
            _ => "child waits",
        };
        let (ledger, engine, run) = with_child(name).await;
        match how {
            "cancel" => run.cancel().await.expect("asks"),
            "terminate" => engine.terminate(run.id()).await.expect("ends"),
            _ => {}
        }
        timeout(LONG, run.result())
            .await
            .expect("ends")
            .expect_err(how);
        let child = the_child(&engine).await;
        let error = timeout(LONG, child.result()).await.expect(how);
        let error = error.expect_err("cancelled");
        assert!(
            matches!(error, RunError::Cancelled { .. }),
            "{how}: {error}"
        );
        let mut expected = vec![
            "close in the child Some(1)",
            "open in the child",
            "open the first",
        ];
        if how != "terminate" {
            expected.insert(1, "close the first Some(1)");
        }
        assert_eq!(ledger.effects(), expected, "{how}");
    }
}

#[tokio::test]
async fn a_child_that_is_terminated_fails_its_parent_which_is_undone() {
    let (ledger, engine, run) = with_child("child waits").await;
    let child = the_child(&engine).await;
    engine.terminate(child.id()).await.expect("ends");
    timeout(LONG, run.result())
        .await
        .expect("ends")
        .expect_err("fails");
    let expected = [
        "open the first",
        "open in the child",
        "close the first Some(1)",
    ];
    assert_eq!(ledger.in_order(), expected);
}

#[tokio::test]
async fn the_id_of_an_undoing_step_never_changes_and_is_not_that_of_the_step() {
    let ledger = Ledger::shared();
    let engine = opened(&ledger).await;
    let run = engine.start(story("wait".into())).key("golden").await;
    let run = run.expect("starts");
    settle().await;
    run.cancel().await.expect("asks");
    run.result().await.expect_err("cancelled");
    let journal = engine.journal(run.id()).await.expect("reads");
    let opened = workflow_tests::ids_of(&journal, "open")[0].to_string();
    assert_eq!(opened, "step_0zvfvvf10w1ehcr5xjx0cz7wsc");
    assert_eq!(undo_ids(&journal), ["step_3csdbne3j1kn8qyhyzke2dqhef"]);
}

static CHANGED: AtomicBool = AtomicBool::new(false);

#[workflow]
async fn edited() -> Result<u32> {
    open_with_tools("a safe").await?;
    if CHANGED.load(Ordering::Relaxed) {
        undo_with(close("what was not there".into(), None));
    }
    fail().await
}

#[tokio::test]
async fn code_that_comes_to_other_things_to_undo_than_the_journal_parks_the_run() {
    let ledger = Ledger::shared();
    let builder = || {
        Engine::builder()
            .register::<edited>()
            .resource_arc(ledger.clone())
    };
    let store = MemoryStore::new();
    let first = builder().open_with(store.clone()).await.expect("opens");
    let run = first.start(edited()).await.expect("starts");
    run.result().await.expect_err("its tools are missing");
    first.shutdown().await.expect("stops");
    CHANGED.store(true, Ordering::Relaxed);
    let store = store.reopen(Surviving::Synced);
    let next = builder().resource(Tools).open_with(store).await;
    let next = next.expect("opens");
    let run = next.run::<edited>(run.id()).await.expect("is there");
    let RunError::Parked(parking) = run.result().await.expect_err("is parked") else {
        panic!("it is not parked");
    };
    assert_eq!(parking.reason, ParkReason::Diverged);
    assert!(
        parking.report.contains("undoing began"),
        "{}",
        parking.report
    );
    assert_eq!(ledger.asked(), 1, "nothing was undone");
    CHANGED.store(false, Ordering::Relaxed);
    next.resume(run.id()).await.expect("resumes");
    run.result().await.expect_err("fails");
    assert_eq!(ledger.asked(), 2, "now it was");
}
