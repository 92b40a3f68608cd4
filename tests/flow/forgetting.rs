//! Runs that begin anew forget the passes that are long over: their journals stay short, and whatever reads them
//! copes with the gap.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::journal::{Event, Record};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{EndKind, RunState, StateKind, Store, StoreError};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, ForkPoint, Result, RunError, RunId, checkpoint,
    start_child, step, wait_for, workflow,
};
use workflow_tests::{Ledger, survive};

/// Steps in a pass: four passes are more records than a run keeps for long.
const STEPS: u64 = 40;

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

#[step(undo = release)]
async fn reserve(#[resource] ledger: &Ledger, what: String) -> Result<()> {
    ledger.act(&format!("reserve {what}"));
    Ok(())
}

#[step]
async fn release(#[resource] ledger: &Ledger, what: String, done: Option<()>) -> Result<()> {
    assert!(done.is_some(), "it had an outcome");
    ledger.act(&format!("release {what}"));
    Ok(())
}

/// Fails for good.
#[step]
async fn refused(#[resource] ledger: &Ledger) -> Result<u64> {
    ledger.act("refused");
    Err(workflow_runtime::Error::fatal("it was not to end well"))
}

/// What a workflow does besides counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum How {
    Counts,
    StartsAChild,
    OwesSomething,
}

#[workflow]
async fn child() -> Result<()> {
    wait_for::<()>("go").await
}

#[workflow]
async fn passing(pass: u64, until: u64, how: How) -> Result<u64> {
    if pass == 0 && how == How::OwesSomething {
        reserve("room".into()).await?;
    }
    for n in 0..STEPS {
        act(format!("pass {pass} step {n}")).await?;
    }
    if pass == 0 && how == How::StartsAChild {
        start_child(child());
    }
    if pass == until {
        wait_for::<()>("end").await?;
        return match how {
            How::Counts => Ok(pass),
            How::StartsAChild => refused().await,
            How::OwesSomething => Err(workflow_runtime::Error::fatal("it was not to end well")),
        };
    }
    checkpoint(&(pass + 1, until, how)).await
}

/// The same without a wait at its end.
#[workflow]
async fn running(pass: u64, until: u64) -> Result<u64> {
    for n in 0..STEPS {
        act(format!("pass {pass} step {n}")).await?;
    }
    if pass == until {
        return Ok(pass);
    }
    checkpoint(&(pass + 1, until)).await
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<passing>()
        .register::<running>()
        .register::<child>()
        .resource_arc(ledger.clone())
}

/// Lets a run get to its last pass and wait there.
async fn waiting(engine: &Engine, until: u64, how: How) -> RunId {
    let run = engine.start(passing(0, until, how)).await.expect("starts");
    let run = run.id();
    let last = format!("pass {until} step {}", STEPS - 1);
    let is_last = |record: &Record| match &record.event {
        Event::StepCompleted(step) => step.name.as_ref() == "act",
        _ => false,
    };
    for _ in 0..2_000 {
        let journal = engine.journal(run).await.expect("reads");
        let pass = newest_pass(journal.records());
        let steps = journal.records().iter().rev().take_while(|r| is_last(r));
        if pass == until && steps.count() as u64 == STEPS {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to {last}");
}

fn newest_pass(records: &[Record]) -> u64 {
    let pass = records.iter().rev().find_map(|record| match &record.event {
        Event::Checkpoint(checkpoint) => Some(checkpoint.pass),
        _ => None,
    });
    pass.unwrap_or(0)
}

/// The first record behind what a run forgot, if it did.
fn gap(records: &[Record]) -> Option<u64> {
    let behind = records.get(2)?;
    (behind.seq != 2).then_some(behind.seq)
}

#[tokio::test]
async fn a_run_that_begins_anew_keeps_its_beginning_and_its_last_passes() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = waiting(&engine, 30, How::Counts).await;
    let journal = engine.journal(run).await.expect("reads");
    let records = journal.records();
    assert!(records.len() < 300, "{} records", records.len());
    assert!(matches!(records[0].event, Event::RunStarted(_)));
    let first = gap(records).expect("it forgot something");
    assert!(matches!(&records[2].event, Event::Checkpoint(at) if at.pass < 30));
    let last = records.last().expect("there are some").seq;
    assert!(last > 30 * STEPS, "numbers go on: {last}");
    let timeline = journal.to_string();
    let words = format!("records 2 to {} are forgotten", first - 1);
    assert!(timeline.contains(&words), "{timeline}");
    let verified = engine.verify().await.expect("verifies");
    assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
    engine.signal(run, "end", &()).await.expect("sends");
    let run = engine.run::<passing>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 30);
}

#[tokio::test]
async fn an_engine_that_keeps_passes_forgets_nothing() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).keep_passes().open_in_memory().await;
    let engine = engine.expect("opens");
    let run = waiting(&engine, 8, How::Counts).await;
    let journal = engine.journal(run).await.expect("reads");
    assert_eq!(gap(journal.records()), None);
    let count = journal.records().len() as u64;
    assert_eq!(count, 1 + 9 * STEPS + 8, "all of them");
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_run_that_forgets_changes_neither_result_nor_effects() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || running(0, 6), []).await;
    assert_eq!(result.expect("ends well"), 6);
    let effects = ledger.effects();
    assert_eq!(effects.len() as u64, 7 * STEPS);
    let faults = [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear];
    for write in 0..store.writes() {
        let fault = faults[write as usize % 3];
        let ledger = Ledger::shared();
        let plan = FaultPlan::at(write, fault);
        let (result, store) = survive(|| engine(&ledger), || running(0, 6), [plan]).await;
        assert_eq!(result.expect("ends well"), 6, "{write} {fault:?}");
        assert_eq!(ledger.effects(), effects, "{write} {fault:?}");
        if write % 16 == 0 {
            let after = engine(&ledger).open_with(store.reopen(Surviving::Synced));
            let after = after.await.expect("opens");
            let verified = after.verify().await.expect("verifies");
            assert!(verified.damaged.is_empty(), "{write} {fault:?}");
            let query = after.runs().state(StateKind::Ended(EndKind::Completed));
            let ended = query.await.expect("lists").runs[0].run;
            let journal = after.journal(ended).await.expect("reads");
            assert!(gap(journal.records()).is_some(), "{write}: it forgot");
        }
    }
}

#[tokio::test]
async fn a_run_that_forgot_can_be_forked_behind_the_gap_and_not_in_it() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = waiting(&engine, 9, How::Counts).await;
    let journal = engine.journal(run).await.expect("reads");
    let first = gap(journal.records()).expect("it forgot something");
    for seq in [3, 100, first] {
        let refused = engine.fork(run).at(ForkPoint::Record(seq)).await;
        match refused {
            Err(EngineError::NoForkPoint { problem, .. }) => {
                assert!(problem.contains("forgot record"), "{problem}");
            }
            other => panic!("{seq}: {other:?}"),
        }
    }
    for at in [None, Some(first + 5), Some(2)] {
        ledger.forget_asking();
        let fork = match at {
            None => engine.fork(run).await,
            Some(seq) => engine.fork(run).at(ForkPoint::Record(seq)).await,
        };
        let fork = fork.expect("forks");
        engine.signal(fork, "end", &()).await.expect("sends");
        let handle = engine.run::<passing>(fork).await.expect("is there");
        assert_eq!(handle.result().await.expect("ends well"), 9, "{at:?}");
        if at.is_none() {
            assert_eq!(ledger.asked(), 0, "all was shared");
        }
    }
    let verified = engine.verify().await.expect("verifies");
    assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
}

#[tokio::test]
async fn terminating_a_run_that_forgot_cancels_children_of_forgotten_passes() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = waiting(&engine, 9, How::StartsAChild).await;
    let journal = engine.journal(run).await.expect("reads");
    assert!(gap(journal.records()).is_some(), "it forgot something");
    let started = |record: &Record| matches!(record.event, Event::ChildStarted(_));
    assert!(!journal.records().iter().any(started), "also the child");
    engine.terminate(run).await.expect("ends");
    let children = engine.runs().workflow("child").await.expect("lists").runs;
    let child = engine
        .run::<child>(children[0].run)
        .await
        .expect("is there");
    let error = child.result().await.expect_err("cancelled");
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
}

#[tokio::test]
async fn a_failed_run_that_forgot_can_be_tried_again() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = waiting(&engine, 9, How::StartsAChild).await;
    engine.signal(run, "end", &()).await.expect("sends");
    let handle = engine.run::<passing>(run).await.expect("is there");
    handle.result().await.expect_err("it fails");
    let asked = ledger.attempts();
    engine.retry(run).await.expect("is taken up again");
    handle.result().await.expect_err("it fails again");
    let again = &ledger.attempts()[asked.len()..];
    assert_eq!(again, [asked[asked.len() - 1]], "no other step ran again");
}

/// What is owed is undone by what earlier passes wrote: none of them is forgotten.
#[tokio::test]
async fn a_run_that_owes_something_forgets_nothing_and_undoes_it() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = waiting(&engine, 9, How::OwesSomething).await;
    let journal = engine.journal(run).await.expect("reads");
    assert_eq!(gap(journal.records()), None);
    engine.signal(run, "end", &()).await.expect("sends");
    let handle = engine.run::<passing>(run).await.expect("is there");
    handle.result().await.expect_err("it fails");
    assert!(ledger.effects().contains(&"release room".to_owned()));
}

/// A store that says it forgot what no checkpoint covers is not believed.
#[tokio::test]
async fn a_gap_without_a_checkpoint_behind_it_is_reported() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let run = waiting(&first.expect("opens"), 1, How::Counts).await;
    let store = store.reopen(Surviving::All);
    let claim = store.claim(run, 0).await.expect("claimed").expect("there");
    assert_eq!(claim.header.state, RunState::Active);
    store.forget(run, claim.epoch, 20).await.expect("an answer");
    let short = store.frames(run, 0, usize::MAX).await;
    assert!(matches!(short, Err(StoreError::Forgotten { .. })));
    let store = store.reopen(Surviving::All);
    let second = engine(&ledger).open_with(store).await.expect("opens");
    let error = second.journal(run).await.expect_err("is damaged");
    assert!(
        error.to_string().contains("record 21 is no checkpoint"),
        "{error}"
    );
    let verified = second.verify().await.expect("verifies");
    assert_eq!(verified.damaged.len(), 1);
}
