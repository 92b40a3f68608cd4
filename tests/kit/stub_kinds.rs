//! Every kind of step is stubbed in its own way, and none of them needs its resources.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Error, Result, step, workflow};

use super::failing_text;
use super::stubs::{Payments, charge, checkout, lookup, receipt};

#[step(at_most_once)]
async fn wire(#[resource] _payments: &Payments, cents: u64) -> Result<u64> {
    unreachable!("{cents} are never wired")
}

#[step(blocking)]
fn crunch(numbers: Vec<u32>, #[resource] _payments: &Payments) -> u32 {
    numbers.iter().sum()
}

#[step(undo = unbook)]
async fn book(#[resource] _payments: &Payments, room: u32) -> Result<String> {
    unreachable!("room {room} is never booked")
}

#[step]
async fn unbook(
    #[resource] _payments: &Payments,
    room: u32,
    booking: Option<String>,
) -> Result<()> {
    unreachable!("room {room} with {booking:?} is never unbooked")
}

#[step]
async fn ping() {
    unreachable!("it is always stubbed")
}

#[workflow]
async fn wired(cents: u64) -> Result<u64> {
    wire(cents).await
}

#[workflow]
async fn crunched() -> u32 {
    crunch(vec![1, 2, 3]).await
}

#[workflow]
async fn booked() -> Result<()> {
    book(7).await?;
    Err(Error::fatal("no flight"))
}

#[workflow]
async fn keyed() -> Result<(u64, u64)> {
    let first = lookup("ada").idempotency_key("ada").await?;
    let second = lookup("ada").idempotency_key("ada").await?;
    Ok((first, second))
}

#[workflow]
async fn sharing() -> Result<u64> {
    let day = Duration::from_secs(86_400);
    lookup("ada").idempotency_key("ada").shared(day).await
}

#[workflow]
async fn pinged() {
    ping().await;
}

#[tokio::test]
async fn an_at_most_once_step_is_announced_and_stubbed() {
    let engine = TestEngine::builder()
        .register::<wired>()
        .stub::<wire>(|cents| Ok(cents + 1))
        .open()
        .await
        .unwrap();
    let run = engine.start(wired(5)).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 6);
    let journal = engine.journal(run.id()).await.unwrap();
    let intents = journal.records().iter();
    let intents = intents.filter(|record| matches!(record.event, Event::StepIntent(_)));
    assert_eq!(intents.count(), 1);
    engine.calls::<wire>().assert_inputs([5]);
}

#[tokio::test]
async fn an_at_most_once_step_that_fails_has_one_attempt() {
    let engine = TestEngine::builder()
        .register::<wired>()
        .fail_times::<wire>(9, Error::new("down"))
        .open()
        .await
        .unwrap();
    let run = engine.start(wired(5)).await.unwrap();
    assert_eq!(run.result().await.unwrap_err().to_string(), "down");
    let calls = engine.calls::<wire>();
    assert_eq!(calls.assert_called_once().attempts().len(), 1);
}

#[tokio::test]
async fn a_refused_at_most_once_step_is_not_announced() {
    let text = failing_text(async {
        let engine = TestEngine::builder()
            .register::<wired>()
            .refuse_unstubbed()
            .open()
            .await
            .unwrap();
        let run = engine.start(wired(5)).await.unwrap();
        run.result().await.unwrap_err();
        let journal = engine.journal(run.id()).await.unwrap();
        assert_eq!(journal.records().len(), 1, "{journal}");
    });
    assert!(text.contains("`.stub::<wire>(|cents| ..)`"), "{text}");
}

#[tokio::test]
async fn a_blocking_step_is_stubbed_without_a_thread() {
    let engine = TestEngine::builder()
        .register::<crunched>()
        .stub::<crunch>(|numbers| numbers.len() as u32)
        .open()
        .await
        .unwrap();
    let run = engine.start(crunched()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    engine.calls::<crunch>().assert_inputs([vec![1, 2, 3]]);
}

#[tokio::test]
async fn a_blocking_step_is_delayed_and_run_for_real() {
    let engine = TestEngine::builder()
        .register::<crunched>()
        .resource(Payments)
        .delay::<crunch>(Duration::from_secs(3))
        .open()
        .await
        .unwrap();
    let run = engine.start(crunched()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 6);
    assert!(engine.elapsed() >= Duration::from_secs(3));
    assert!(!engine.calls::<crunch>().assert_called_once().is_stubbed());
}

#[tokio::test]
async fn a_step_and_its_undo_are_stubbed() {
    let engine = TestEngine::builder()
        .register::<booked>()
        .refuse_unstubbed()
        .stub::<book>(|room| Ok(format!("stubbed booking of {room}")))
        .stub::<unbook>(|_| Ok(()))
        .open()
        .await
        .unwrap();
    let run = engine.start(booked()).await.unwrap();
    assert_eq!(run.result().await.unwrap_err().to_string(), "no flight");
    let undone = (7, Some("stubbed booking of 7".to_owned()));
    engine.calls::<unbook>().assert_inputs([undone]);
}

#[tokio::test]
async fn a_second_call_of_a_key_asks_no_stub() {
    let engine = TestEngine::builder()
        .register::<keyed>()
        .stub::<lookup>(|_| Ok(7))
        .open()
        .await
        .unwrap();
    let run = engine.start(keyed()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (7, 7));
    engine.calls::<lookup>().assert_called_once();
}

#[tokio::test]
async fn a_shared_step_is_stubbed_once_for_all_runs() {
    let answers = Arc::new(AtomicU32::new(0));
    let counted = answers.clone();
    let engine = TestEngine::builder()
        .register::<sharing>()
        .stub::<lookup>(move |_| Ok(u64::from(counted.fetch_add(1, Ordering::Relaxed))))
        .open()
        .await
        .unwrap();
    for _ in 0..2 {
        let run = engine.start(sharing()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 0);
    }
    engine.calls::<lookup>().assert_called_once();
    assert_eq!(answers.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_step_without_arguments_and_result_is_stubbed() {
    let engine = TestEngine::builder()
        .register::<pinged>()
        .stub::<ping>(|()| ())
        .open()
        .await
        .unwrap();
    engine
        .start(pinged())
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    engine.calls::<ping>().assert_inputs([()]);
}

/// One checkout through a crash: what it returned, the step ids that the stub was asked with, and the store.
async fn survive(plan: FaultPlan) -> (Vec<String>, MemoryStore) {
    let mut store = MemoryStore::with_faults(plan);
    let mut asked = Vec::new();
    loop {
        let crashed = {
            let living = async {
                let engine = TestEngine::builder()
                    .register::<checkout>()
                    .store(store.clone())
                    .refuse_unstubbed()
                    .stub::<lookup>(|_| Ok(300))
                    .stub::<charge>(|(customer, cents)| Ok(receipt(&customer, cents)))
                    .fail_times::<lookup>(1, Error::new("busy"))
                    .open()
                    .await
                    .unwrap();
                let run = engine.start(checkout("ada".into())).key("story").await;
                let run = run.unwrap();
                tokio::select! {
                    biased;
                    () = store.crashed() => (None, engine.calls::<charge>()),
                    result = run.result() => (Some(result.unwrap()), engine.calls::<charge>()),
                }
            };
            tokio::select! {
                biased;
                (result, calls) = living => {
                    asked.extend(calls.iter().map(|call| call.step_id().to_string()));
                    assert!(result.is_none_or(|it| it == receipt("ada", 300)));
                    store.is_crashed()
                }
                () = store.crashed() => true,
            }
        };
        if !crashed {
            return (asked, store);
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_stubbed_step_is_asked_with_one_id_whatever_write_the_process_dies_at() {
    let (once, store) = survive(FaultPlan::none()).await;
    assert_eq!(once.len(), 1);
    let mut twice = 0;
    for write in 0..store.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let (mut asked, _) = survive(FaultPlan::at(write, fault)).await;
            twice += usize::from(asked.len() == 2);
            asked.dedup();
            assert_eq!(asked, once, "{fault:?} at write {write}");
        }
    }
    assert!(
        twice > 0,
        "some crash was between the answer and its record"
    );
}
