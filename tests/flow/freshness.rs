//! `#[step(fresh_for = …)]`: an outcome of an earlier process that is too old, and of which nothing was
//! made yet, counts no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use futures::join;
use tokio::time::sleep;
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{EndKind, StateKind};
use workflow_runtime::{Engine, EngineBuilder, Result, RunError, RunId, RunStatus, step, workflow};
use workflow_tests::{Ledger, cut, frames, ids_of, live_until_the_crash};

/// Longer than every `fresh_for` in here but [`LONG`].
const PAST: Duration = Duration::from_millis(40);
/// Longer than a restart takes.
const LONG: Duration = Duration::from_millis(600);

/// Says how often anything was asked, this time included.
#[step(effect = "read", fresh_for = "20ms")]
async fn quote(#[resource] ledger: &Ledger) -> Result<usize> {
    ledger.act("quoted");
    Ok(ledger.asked())
}

#[step(effect = "read", fresh_for = "600ms", on_stale = "rerun")]
async fn quote_for_long(#[resource] ledger: &Ledger) -> Result<usize> {
    ledger.act("quoted");
    Ok(ledger.asked())
}

#[step(fresh_for = "20ms", on_stale = "abort")]
async fn reserve(#[resource] ledger: &Ledger) -> Result<usize> {
    ledger.act("reserved");
    Ok(ledger.asked())
}

#[step]
async fn buy(#[resource] ledger: &Ledger, price: usize) -> Result<usize> {
    let _ = price;
    ledger.act("bought");
    Ok(price)
}

#[step(intent)]
async fn buy_with_intent(#[resource] ledger: &Ledger, price: usize) -> Result<usize> {
    ledger.act("bought");
    Ok(price)
}

#[workflow]
async fn trade() -> Result<usize> {
    let price = quote().await?;
    buy(price).await
}

#[workflow]
async fn trade_with_intent() -> Result<usize> {
    let price = quote().await?;
    buy_with_intent(price).await
}

#[workflow]
async fn trade_later() -> Result<usize> {
    let price = quote().await?;
    workflow_runtime::sleep(Duration::from_millis(80)).await;
    buy(price).await
}

#[workflow]
async fn trade_or_abort() -> Result<usize> {
    let price = reserve().await?;
    buy(price).await
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<trade>()
        .register::<trade_with_intent>()
        .register::<trade_later>()
        .register::<trade_or_abort>()
        .register::<both>()
        .register::<race>()
        .register::<stumble>()
        .register::<quote_and_charge>()
        .resource_arc(ledger.clone())
}

fn discarded(journal: &Journal) -> Vec<u64> {
    let records = journal.records().iter();
    let stale = records.filter_map(|record| match &record.event {
        Event::StaleOutcomeDiscarded(stale) => Some(stale.discarded),
        _ => None,
    });
    stale.collect()
}

/// Runs a workflow until its process dies at a write.
async fn die_at<W: workflow_runtime::Workflow>(
    ledger: &Arc<Ledger>,
    call: workflow_runtime::WorkflowCall<W>,
    write: u64,
    fault: Fault,
) -> (MemoryStore, RunId) {
    let store = MemoryStore::with_faults(FaultPlan::at(write, fault));
    let first = engine(ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(call).await.expect("starts");
    store.crashed().await;
    (store.reopen(Surviving::Synced), run.id())
}

async fn result_of<W: workflow_runtime::Workflow>(
    ledger: &Arc<Ledger>,
    store: MemoryStore,
    run: RunId,
) -> (Result<W::Ok, RunError<W::Error>>, Journal) {
    let engine = engine(ledger).open_with(store).await.expect("opens");
    let result = engine.run::<W>(run).await.expect("is there").result().await;
    (result, engine.journal(run).await.expect("reads"))
}

#[tokio::test]
async fn a_stale_outcome_is_discarded_on_record_and_the_step_runs_again_under_its_id() {
    let ledger = Ledger::shared();
    let (store, run) = die_at(&ledger, trade(), 2, Fault::CrashBefore).await;
    assert_eq!(
        ledger.asked(),
        2,
        "quote and buy ran; only quote is on record"
    );
    sleep(PAST).await;
    let (result, journal) = result_of::<trade>(&ledger, store, run).await;
    assert_eq!(
        result.expect("ends well"),
        3,
        "the price is the third answer"
    );
    assert_eq!(discarded(&journal), [1], "{journal}");
    let quoted = ids_of(&journal, "quote");
    assert_eq!(quoted.len(), 2, "{journal}");
    assert_eq!(quoted[0], quoted[1]);
    let Event::RunRecovered(recovered) = &journal.records()[3].event else {
        panic!("{journal}");
    };
    assert_eq!(recovered.in_flight, [quoted[0]], "it is what runs again");
    assert_eq!(ledger.effects(), ["bought", "quoted"]);
    assert!(
        journal.to_string().contains("outcome 1 was stale"),
        "{journal}"
    );
}

#[tokio::test]
async fn a_second_resume_agrees() {
    let ledger = Ledger::shared();
    let (store, run) = die_at(&ledger, trade(), 2, Fault::CrashBefore).await;
    sleep(PAST).await;
    // The discarding is the second process's first write after its mark; the third finds it at once.
    store.set_faults(FaultPlan::at(1, Fault::CrashAfter));
    live_until_the_crash(engine(&ledger), &store).await;
    assert_eq!(ledger.asked(), 2, "nothing ran in the second");
    let store = store.reopen(Surviving::Synced);
    let (result, journal) = result_of::<trade>(&ledger, store.clone(), run).await;
    assert_eq!(result.expect("ends well"), 3);
    assert_eq!(discarded(&journal), [1], "discarded once\n{journal}");
    // And a fourth, which finds everything but the end.
    let written = frames(&store, run).await;
    ledger.forget_asking();
    let store = cut(journal.header(), &written, written.len() - 1).await;
    let (result, _) = result_of::<trade>(&ledger, store, run).await;
    assert_eq!(result.expect("ends well"), 3, "the second outcome counts");
    assert_eq!(ledger.asked(), 0, "nothing ran again");
}

#[tokio::test]
async fn a_fresh_outcome_is_kept() {
    let ledger = Ledger::shared();
    let (store, run) = die_at(&ledger, stumble(LONG_QUOTE), 2, Fault::CrashBefore).await;
    let (result, journal) = result_of::<stumble>(&ledger, store, run).await;
    assert_eq!(result.expect("ends well"), 1);
    assert_eq!(discarded(&journal), [0_u64; 0], "{journal}");
}

#[tokio::test]
async fn what_was_made_of_an_outcome_keeps_it_however_old() {
    // The outcome of the next step, its announcement, or a timer.
    let ledger = Ledger::shared();
    let (store, run) = die_at(&ledger, trade(), 3, Fault::CrashBefore).await;
    sleep(PAST).await;
    let (result, journal) = result_of::<trade>(&ledger, store, run).await;
    assert_eq!(result.expect("ends well"), 1, "{journal}");
    assert_eq!(discarded(&journal), [0_u64; 0], "{journal}");

    let ledger = Ledger::shared();
    let (store, run) = die_at(&ledger, trade_with_intent(), 2, Fault::CrashAfter).await;
    sleep(PAST).await;
    let (result, journal) = result_of::<trade_with_intent>(&ledger, store, run).await;
    assert_eq!(result.expect("ends well"), 1, "{journal}");
    assert_eq!(discarded(&journal), [0_u64; 0], "{journal}");

    let ledger = Ledger::shared();
    let (store, run) = die_at(&ledger, trade_later(), 2, Fault::CrashAfter).await;
    sleep(PAST).await;
    let (result, journal) = result_of::<trade_later>(&ledger, store, run).await;
    assert_eq!(result.expect("ends well"), 1, "{journal}");
    assert_eq!(discarded(&journal), [0_u64; 0], "{journal}");
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(ledger.asked())
}

#[workflow]
async fn both() -> Result<(usize, usize)> {
    let (price, other) = join!(quote(), act("beside"));
    let (price, other) = (price?, other?);
    buy(price).await?;
    Ok((price, other))
}

#[tokio::test]
async fn outcomes_beside_a_stale_one_are_kept() {
    let ledger = Ledger::shared();
    // start, both outcomes in one write, buy
    let (store, run) = die_at(&ledger, both(), 2, Fault::CrashBefore).await;
    assert_eq!(ledger.asked(), 3);
    sleep(PAST).await;
    let (result, journal) = result_of::<both>(&ledger, store, run).await;
    assert_eq!(result.expect("ends well"), (4, 2), "{journal}");
    assert_eq!(discarded(&journal), [1], "{journal}");
    assert_eq!(ids_of(&journal, "act").len(), 1, "{journal}");
}

#[workflow]
async fn race() -> Result<usize> {
    match select(quote(), act("beside")).await {
        Either::Left((price, _)) => Ok(100 + price?),
        Either::Right((other, _)) => Ok(200 + other?),
    }
}

#[tokio::test]
async fn a_stale_winner_loses_to_an_outcome_that_is_on_record() {
    let ledger = Ledger::shared();
    // start, both outcomes in one write, end
    let (store, run) = die_at(&ledger, race(), 2, Fault::CrashBefore).await;
    sleep(PAST).await;
    let (result, journal) = result_of::<race>(&ledger, store.clone(), run).await;
    assert_eq!(result.expect("ends well"), 202, "{journal}");
    assert_eq!(discarded(&journal), [1], "{journal}");
    let written = frames(&store, run).await;
    for records in 3..written.len() {
        let store = cut(journal.header(), &written, records).await;
        let (result, journal) = result_of::<race>(&ledger, store, run).await;
        assert_eq!(result.expect("ends well"), 202, "{records}\n{journal}");
    }
}

/// Stands for code that panics until the next deploy.
static BROKEN: [AtomicBool; 3] = [const { AtomicBool::new(true) }; 3];
/// A `stumble` that never does.
const LONG_QUOTE: usize = 3;

#[workflow]
async fn stumble(test: usize) -> Result<usize> {
    let price = if test == 1 {
        quote().await?
    } else {
        quote_for_long().await?
    };
    if BROKEN.get(test).is_some_and(|it| it.load(Ordering::SeqCst)) {
        std::panic::resume_unwind(Box::new("stumbled")); // a panic that prints nothing
    }
    buy(price).await
}

#[tokio::test]
async fn a_resume_in_the_same_process_judges_nothing() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(stumble(0)).await.expect("starts");
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    sleep(LONG + PAST).await;
    BROKEN[0].store(false, Ordering::SeqCst);
    engine.resume(run.id()).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well"), 1);
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(discarded(&journal), [0_u64; 0], "{journal}");
}

#[tokio::test]
async fn a_run_that_was_parked_is_judged_when_another_process_resumes_it() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(stumble(1)).await.expect("starts");
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    drop(first);
    let second = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    sleep(PAST).await;
    BROKEN[1].store(false, Ordering::SeqCst);
    second.resume(run.id()).await.expect("resumes");
    let run = second.run::<stumble>(run.id()).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 2);
    let journal = second.journal(run.id()).await.expect("reads");
    assert_eq!(discarded(&journal), [1], "{journal}");
}

#[tokio::test]
async fn a_process_judges_a_run_once() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(stumble(2)).await.expect("starts");
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    drop(first);
    let second = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    // Judged at once, and fresh; then the code stumbles again.
    second.resume(run.id()).await.expect("resumes");
    let run = second.run::<stumble>(run.id()).await.expect("is there");
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    assert_eq!(ledger.asked(), 1);
    sleep(LONG + PAST).await;
    BROKEN[2].store(false, Ordering::SeqCst);
    second.resume(run.id()).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well"), 1);
    let journal = second.journal(run.id()).await.expect("reads");
    assert_eq!(discarded(&journal), [0_u64; 0], "{journal}");
}

/// What the code charges; a deploy changes it.
static CENTS: AtomicU64 = AtomicU64::new(500);

#[step(intent)]
async fn charge(#[resource] ledger: &Ledger, cents: u64) -> Result<u64> {
    ledger.act("charged");
    if ledger.asked() < 3 {
        std::future::pending::<()>().await;
    }
    Ok(cents)
}

#[workflow]
async fn quote_and_charge() -> Result<(usize, u64)> {
    let (price, cents) = join!(quote(), charge(CENTS.load(Ordering::SeqCst)));
    Ok((price?, cents?))
}

#[tokio::test]
async fn a_judgement_that_was_not_recorded_is_made_again() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(quote_and_charge()).await.expect("starts");
    sleep(PAST).await;
    drop(first);
    assert_eq!(ledger.effects(), ["charged", "quoted"]);
    // The price is stale, and the code has diverged: nothing is written.
    CENTS.store(600, Ordering::SeqCst);
    let store = store.reopen(Surviving::Synced);
    let second = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = second.run::<quote_and_charge>(run.id()).await.expect("is");
    let before = frames(&store, run.id()).await.len();
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    assert_eq!(frames(&store, run.id()).await.len(), before);
    CENTS.store(500, Ordering::SeqCst);
    second.resume(run.id()).await.expect("resumes");
    let (price, _) = run.result().await.expect("ends well");
    assert!(price > 2, "asked again, not {price}");
    let journal = second.journal(run.id()).await.expect("reads");
    assert_eq!(discarded(&journal).len(), 1, "{journal}");
}

#[tokio::test]
async fn an_outcome_that_is_too_old_can_end_the_run_instead() {
    for write in 0..2 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let ledger = Ledger::shared();
            let (store, run) = die_at(&ledger, trade_or_abort(), 2, Fault::CrashBefore).await;
            sleep(PAST).await;
            // Its mark and its end are the only writes.
            store.set_faults(FaultPlan::at(write, fault));
            live_until_the_crash(engine(&ledger), &store).await;
            ledger.forget_asking();
            let third = engine(&ledger)
                .open_with(store.reopen(Surviving::Synced))
                .await
                .expect("opens");
            let run = third.run::<trade_or_abort>(run).await.expect("is there");
            let error = run.result().await.expect_err("is aborted");
            let RunError::Aborted { reason } = &error else {
                panic!("{error:?}");
            };
            for part in [
                "step `reserve` at",
                "freshness.rs",
                "older than the 20ms that it stays fresh for",
            ] {
                assert!(reason.contains(part), "{reason}");
            }
            assert_eq!(run.status().await.expect("reads"), RunStatus::Aborted);
            assert_eq!(ledger.asked(), 0, "nothing ran");
            let aborted = third.runs().state(StateKind::Ended(EndKind::Aborted));
            assert_eq!(aborted.await.expect("lists").runs.len(), 1);
            let journal = third.journal(run.id()).await.expect("reads");
            assert!(journal.to_string().contains("■ aborted: step"), "{journal}");
            let verification = third.verify().await.expect("verifies");
            assert!(verification.damaged.is_empty(), "{verification:?}");
        }
    }
}
