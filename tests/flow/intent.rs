//! `#[step(intent)]`: an edit to the call that was in flight at a crash is seen.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{Either, select};
use serde::{Deserialize, Serialize};
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, RunError, RunId, get_step_metadata, step, workflow,
};
use workflow_tests::{Ledger, ids_of, survive};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    item: String,
    cents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[step(intent)]
async fn charge(#[resource] ledger: &Ledger, order: &Order) -> Result<u64> {
    ledger.act("charged");
    Ok(order.cents)
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<u64> {
    ledger.act(what);
    Ok(0)
}

#[step(intent)]
async fn never() -> Result<u64> {
    pending().await
}

/// Which code is deployed: a test's input says which of these it looks at.
static DEPLOYED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// Version 0 charges 500, 1 charges 600, 2 charges nothing, 3 returns at once, 4 adds a note.
#[workflow]
async fn pay(test: usize) -> Result<u64> {
    act("begun").await?;
    let version = DEPLOYED[test].load(Ordering::SeqCst);
    let order = Order {
        item: "book".into(),
        cents: if version == 1 { 600 } else { 500 },
        note: (version == 4).then(|| "a gift".to_owned()),
    };
    match version {
        2 => act("nothing").await,
        3 => Ok(7),
        _ => charge(&order).await,
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<pay>()
        .register::<race>()
        .register::<persist>()
        .register::<tag>()
        .resource_arc(ledger.clone())
}

fn intents(journal: &Journal) -> usize {
    let records = journal.records().iter();
    records
        .filter(|record| matches!(record.event, Event::StepIntent(_)))
        .count()
}

/// A process that dies when `charge` is announced and its body has run.
async fn die_while_charging(ledger: &Arc<Ledger>, test: usize) -> (MemoryStore, RunId) {
    // start, act, intent, charge
    let store = MemoryStore::with_faults(FaultPlan::at(3, Fault::CrashBefore));
    let first = engine(ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(pay(test)).await.expect("starts");
    store.crashed().await;
    assert_eq!(ledger.effects(), ["begun", "charged"]);
    ledger.forget_asking();
    (store.reopen(Surviving::Synced), run.id())
}

#[tokio::test]
async fn after_a_crash_it_runs_again_and_is_announced_only_once() {
    let ledger = Ledger::shared();
    let (store, run) = die_while_charging(&ledger, 0).await;
    let again = engine(&ledger).open_with(store).await.expect("opens");
    let run = again.run::<pay>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 500);
    assert_eq!(ledger.asked(), 1);
    assert_eq!(ledger.effects(), ["begun", "charged"]);
    let journal = again.journal(run.id()).await.expect("reads");
    assert_eq!(intents(&journal), 1, "{journal}");
}

#[tokio::test]
async fn another_input_at_the_frontier_parks_the_run_until_it_is_restored() {
    let (ledger, test) = (Ledger::shared(), 1);
    let (store, id) = die_while_charging(&ledger, test).await;
    DEPLOYED[test].store(1, Ordering::SeqCst);
    let again = engine(&ledger).open_with(store).await.expect("opens");
    let run = again.run::<pay>(id).await.expect("is there");
    let RunError::Parked(parking) = run.result().await.expect_err("is parked") else {
        panic!("not parked");
    };
    assert_eq!(parking.reason, ParkReason::Diverged);
    for part in [
        "step `charge`",
        "about to run, called at",
        "intent.rs",
        "the same call, but with other input: order.cents",
    ] {
        assert!(parking.report.contains(part), "{}", parking.report);
    }
    let detail = again.parked_detail(id).await.expect("reads");
    assert!(
        detail.expect("is there").contains("journal 500 | code 600"),
        "the fields are shown"
    );
    assert_eq!(ledger.asked(), 0, "nothing was run");
    DEPLOYED[test].store(0, Ordering::SeqCst);
    again.resume(id).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well"), 500);
    assert_eq!(ledger.effects(), ["begun", "charged"]);
}

#[tokio::test]
async fn a_call_that_is_gone_from_the_frontier_parks_the_run() {
    for (test, version, says) in [
        (2, 2, "the code asked for: step `act`"),
        (3, 3, "returned without asking for it"),
    ] {
        let ledger = Ledger::shared();
        let (store, id) = die_while_charging(&ledger, test).await;
        DEPLOYED[test].store(version, Ordering::SeqCst);
        let again = engine(&ledger).open_with(store).await.expect("opens");
        let run = again.run::<pay>(id).await.expect("is there");
        let RunError::Parked(parking) = run.result().await.expect_err("is parked") else {
            panic!("not parked");
        };
        assert_eq!(parking.reason, ParkReason::Diverged);
        assert!(parking.report.contains(says), "{}", parking.report);
        assert_eq!(ledger.asked(), 0, "nothing was run");
    }
}

#[tokio::test]
async fn an_added_field_at_the_frontier_is_a_warning() {
    let (ledger, test) = (Ledger::shared(), 4);
    let (store, id) = die_while_charging(&ledger, test).await;
    DEPLOYED[test].store(4, Ordering::SeqCst);
    let again = engine(&ledger).open_with(store).await.expect("opens");
    let run = again.run::<pay>(id).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 500);
    let warnings = again.warnings();
    assert!(
        warnings.iter().any(|w| w.message.contains("has fields")),
        "{warnings:?}"
    );
}

#[workflow]
async fn race() -> Result<u64> {
    match select(Box::pin(never()), Box::pin(act("won"))).await {
        Either::Left((value, _)) | Either::Right((value, _)) => value?,
    };
    act("last").await
}

#[tokio::test]
async fn an_announced_loser_of_a_race_does_not_disturb_a_replay() {
    // start, intent with the winner's outcome or before it, last, end: at any of them.
    for write in 0..5 {
        let ledger = Ledger::shared();
        let plan = FaultPlan::at(write, Fault::CrashAfter);
        let (result, _) = survive(|| engine(&ledger), race, [plan]).await;
        assert_eq!(result.expect("ends well"), 0, "{write}");
        assert_eq!(ledger.effects(), ["last", "won"]);
    }
}

#[step(intent, backoff = "1ms..1ms")]
async fn flaky(#[resource] ledger: &Ledger) -> Result<u64> {
    ledger.act("flaky");
    match get_step_metadata().attempt {
        3 => Ok(3),
        _ => Err(Error::new("not yet")),
    }
}

#[workflow]
async fn persist() -> Result<u64> {
    flaky().await
}

#[tokio::test]
async fn several_attempts_are_announced_once_through_any_crash() {
    // start, intent, two failed attempts, outcome, end
    for write in 0..6 {
        let ledger = Ledger::shared();
        let plan = FaultPlan::at(write, Fault::CrashAfter);
        let (result, store) = survive(|| engine(&ledger), persist, [plan]).await;
        assert_eq!(result.expect("ends well"), 3, "{write}");
        let reader = engine(&ledger)
            .open_with(store.reopen(Surviving::Synced))
            .await
            .expect("opens");
        let run = reader.runs().await.expect("lists").runs[0].run;
        let journal = reader.journal(run).await.expect("reads");
        assert_eq!(intents(&journal), 1, "{write}\n{journal}");
        assert_eq!(ids_of(&journal, "flaky").len(), 1);
    }
}

#[step(intent)]
async fn label(tags: &HashSet<String>) -> Result<u64> {
    Ok(tags.len() as u64)
}

#[workflow]
async fn tag(tags: Vec<String>) -> Result<u64> {
    let tags: HashSet<String> = tags.into_iter().collect();
    label(&tags).await
}

#[tokio::test]
async fn an_input_in_another_order_at_the_frontier_is_no_other_input() {
    let tags = || (0..50).map(|n| n.to_string()).collect::<Vec<_>>();
    let ledger = Ledger::shared();
    let plan = FaultPlan::at(1, Fault::CrashAfter);
    let (result, _) = survive(|| engine(&ledger), || tag(tags()), [plan]).await;
    assert_eq!(result.expect("ends well"), 50);
}

/// The announcement that a fork shares is of its origin's step: its own has another id, and is announced by itself.
#[tokio::test]
async fn a_fork_at_an_announced_step_runs_it_as_its_own() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(pay(7)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 500);
    let journal = engine.journal(run.id()).await.expect("reads");
    let charged = ids_of(&journal, "charge")[0];
    let fork = engine.fork(run.id()).at(charged).await.expect("is forked");
    let fork = engine.run::<pay>(fork).await.expect("is there");
    assert_eq!(fork.result().await.expect("ends well"), 500);
    let journal = engine.journal(fork.id()).await.expect("reads");
    assert_eq!(intents(&journal), 2, "{journal}");
    assert_ne!(ids_of(&journal, "charge")[0], charged);
    assert_eq!(ledger.effects(), ["begun", "charged", "charged"]);
}
