//! `.idempotency_key(k)`: of all calls of a step under a key, in any scope of a run, one runs its body.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::{Either, join_all, select};
use futures::join;
use workflow_runtime::journal::Outcome;
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    DuplicateKind, Engine, EngineBuilder, Error, Result, RunError, Workflow, WorkflowCall,
    checkpoint, get_step_metadata, scope, step, workflow,
};
use workflow_tests::{Ledger, cut, frames, ids_of, steps, survive, value};

/// Numbers that no two bodies share.
#[derive(Default)]
struct Numbers(AtomicU32);

impl Numbers {
    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// Never gives the same value twice.
#[step(backoff = "1ms..2ms")]
async fn fetch(
    #[resource] ledger: &Ledger,
    #[resource] numbers: &Numbers,
    user: u32,
) -> Result<u32> {
    ledger.act(&format!("fetch {user}"));
    tokio::task::yield_now().await;
    Ok(1000 * user + numbers.next())
}

/// Fails for good as often as it is told, whoever calls it.
#[step(max_attempts = 1)]
async fn shaky(
    #[resource] ledger: &Ledger,
    #[resource] numbers: &Numbers,
    failures: u32,
) -> Result<u32> {
    ledger.act("shaky");
    tokio::task::yield_now().await;
    match numbers.next() {
        n if n < failures => Err(Error::new(format!("failure {n}"))),
        n => Ok(n),
    }
}

#[step]
async fn hangs(#[resource] ledger: &Ledger, hanging: &str) -> Result<u32> {
    ledger.act("hangs");
    match ledger.asked() {
        1 => pending().await,
        n => Ok(n as u32 + hanging.len() as u32),
    }
}

#[step(undo = refund)]
async fn charge(#[resource] ledger: &Ledger, cents: u32) -> Result<u32> {
    ledger.act(&format!("charge {cents}"));
    Ok(cents + 1)
}

/// Fails in the first call under its key, and not in the second.
#[step(undo = refund, max_attempts = 1)]
async fn charge_late(
    #[resource] ledger: &Ledger,
    #[resource] numbers: &Numbers,
    cents: u32,
) -> Result<u32> {
    ledger.act(&format!("charge {cents}"));
    match numbers.next() {
        0 => Err(Error::new("not yet")),
        _ => Ok(cents + 1),
    }
}

#[step]
async fn refund(#[resource] ledger: &Ledger, cents: u32, receipt: Option<u32>) -> Result<()> {
    ledger.act(&format!("refund {cents} {receipt:?}"));
    Ok(())
}

#[step(at_most_once)]
async fn ship(#[resource] ledger: &Ledger) -> Result<()> {
    ledger.act("ship");
    Ok(())
}

/// Has no place for an error.
#[step]
async fn plain(#[resource] ledger: &Ledger, n: u32) -> u32 {
    ledger.act("plain");
    n
}

#[workflow]
async fn anywhere() -> Result<Vec<u32>> {
    let mut seen = vec![fetch(7).idempotency_key("user-7").await?];
    seen.push(fetch(7).idempotency_key("user-7").await?);
    let (a, b) = join!(async { fetch(7).idempotency_key("user-7").await }, async {
        fetch(8).idempotency_key("user-8").await
    });
    seen.extend([a?, b?]);
    let named = scope("named", || async {
        fetch(7).idempotency_key("user-7").key("own").await
    });
    seen.push(named.await?);
    seen.push(fetch(7).await?); // without a key it is a call like any other
    Ok(seen)
}

#[workflow]
async fn at_once(calls: u32) -> Result<Vec<u32>> {
    let calls = (0..calls).map(|_| fetch(7).idempotency_key("user-7"));
    join_all(calls).await.into_iter().collect()
}

#[workflow]
async fn differing() -> Result<String> {
    fetch(7).idempotency_key("user").await?;
    match fetch(8).idempotency_key("user").await {
        Ok(n) => Ok(n.to_string()),
        Err(error) => Ok(error.to_string()),
    }
}

#[workflow]
async fn differing_plainly() -> Result<u32> {
    Ok(plain(1).idempotency_key("n").await + plain(2).idempotency_key("n").await)
}

#[workflow]
async fn retrying(failures: u32, at_once: bool) -> Result<Vec<String>> {
    let call = || shaky(failures).idempotency_key("one");
    let show = |outcome: Result<u32>| match outcome {
        Ok(n) => n.to_string(),
        Err(error) => error.to_string(),
    };
    let mut seen = Vec::new();
    if at_once {
        let (a, b, c) = join!(call(), call(), call());
        seen.extend([a, b, c].map(show));
    } else {
        for _ in 0..4 {
            seen.push(show(call().await));
        }
    }
    Ok(seen)
}

#[workflow]
async fn racing() -> Result<u32> {
    let hanging = Box::pin(hangs("a").idempotency_key("h"));
    let quick = Box::pin(fetch(1));
    match select(hanging, quick).await {
        Either::Left((n, _)) => n,
        Either::Right((_, hanging)) => {
            drop(hanging);
            hangs("a").idempotency_key("h").await
        }
    }
}

/// The first call is dropped with its outcome on record and not delivered.
#[workflow]
async fn losing() -> Result<u32> {
    let both = select(
        Box::pin(fetch(1)),
        Box::pin(fetch(7).idempotency_key("user-7")),
    );
    match both.await {
        Either::Left((_, loser)) => drop(loser),
        Either::Right(_) => return Err(Error::fatal("the first one hands in first")),
    }
    fetch(7).idempotency_key("user-7").await
}

#[workflow]
async fn undoing(late: bool) -> Result<u32> {
    if late {
        let _ = charge_late(5).idempotency_key("deposit").await; // after a crash it may not fail any more
        charge_late(5).idempotency_key("deposit").await?;
        charge_late(5).idempotency_key("deposit").await?;
    } else {
        charge(5).idempotency_key("deposit").await?;
        charge(5).idempotency_key("deposit").await?;
    }
    charge(6).await?;
    Err(Error::fatal("no"))
}

#[workflow]
async fn in_passes(pass: u32, seen: Vec<u32>) -> Result<Vec<u32>> {
    let mut seen = seen;
    for _ in 0..2 {
        seen.push(fetch(pass).idempotency_key("monthly").await?);
    }
    if pass == 2 {
        return Ok(seen);
    }
    checkpoint(&(pass + 1, seen)).await
}

#[workflow]
async fn misusing(how: u32) -> Result<()> {
    match how {
        0 => ship().idempotency_key("s").await?,
        1 => drop(fetch(1).idempotency_key("").await?),
        2 => drop(fetch(1).shared(std::time::Duration::ZERO).await?),
        3 => {
            let keyed = charge(1).idempotency_key("c");
            let _ = keyed.shared(std::time::Duration::ZERO).await?;
        }
        _ => drop(fetch(1).idempotency_key("x".repeat(2000)).await?),
    }
    Ok(())
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<anywhere>()
        .register::<at_once>()
        .register::<differing>()
        .register::<differing_plainly>()
        .register::<retrying>()
        .register::<racing>()
        .register::<losing>()
        .register::<undoing>()
        .register::<in_passes>()
        .register::<misusing>()
        .resource_arc(ledger.clone())
        .resource(Numbers::default())
}

async fn run<W: Workflow>(
    ledger: &Arc<Ledger>,
    call: WorkflowCall<W>,
) -> (
    Result<W::Ok, RunError<W::Error>>,
    workflow_runtime::journal::Journal,
) {
    let engine = engine(ledger).open_in_memory().await.expect("opens");
    let run = engine.start(call).await.expect("starts");
    let result = run.result().await;
    let journal = engine.journal(run.id()).await.expect("reads");
    (result, journal)
}

#[tokio::test]
async fn a_second_call_of_a_key_gives_the_first_outcome_in_any_scope() {
    let ledger = Ledger::shared();
    let (result, journal) = run(&ledger, anywhere()).await;
    assert_eq!(
        result.expect("ends well"),
        [7000, 7000, 7000, 8001, 7000, 7002],
        "{journal}"
    );
    assert_eq!(ledger.effects(), ["fetch 7", "fetch 7", "fetch 8"]);
    let records = steps(&journal);
    let ids: std::collections::HashSet<_> = records.iter().map(|step| step.step).collect();
    assert_eq!(ids.len(), 6, "each call has a record of its own: {journal}");
    let mut attempts: Vec<_> = records.iter().map(|step| step.attempts).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [0, 0, 0, 1, 1, 1], "{journal}");
    for (id, _) in ledger.attempts().iter().take(2) {
        assert!(!ids.contains(id), "outside, a key has an id of its own");
    }
    assert!(
        journal.to_string().contains("answered by its key"),
        "{journal}"
    );
}

#[tokio::test]
async fn calls_that_are_made_while_another_one_runs_wait_for_it() {
    let ledger = Ledger::shared();
    let (result, journal) = run(&ledger, at_once(20)).await;
    assert_eq!(result.expect("ends well"), [7000; 20], "{journal}");
    assert_eq!((ledger.asked(), steps(&journal).len()), (1, 20));
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(at_once(20)).await.expect("starts");
    run.result().await.expect("ends well");
    let seen = run.duplicates().await.expect("reads");
    assert_eq!(seen.count(DuplicateKind::Step), 19);
}

#[tokio::test]
async fn another_input_is_a_conflict_that_names_both_calls_and_both_digests() {
    let ledger = Ledger::shared();
    let (result, journal) = run(&ledger, differing()).await;
    let text = result.expect("is caught");
    assert_eq!(text.matches("keyed_steps.rs:").count(), 2, "{text}");
    assert!(
        text.contains("\"user\"") && text.contains("`fetch`"),
        "{text}"
    );
    assert!(text.contains("use another key"), "{text}");
    let digests: std::collections::HashSet<_> = text
        .split([' ', ',', ':'])
        .filter(|word| word.len() == 32 && word.chars().all(|c| c.is_ascii_hexdigit()))
        .collect();
    assert_eq!(digests.len(), 2, "{text}");
    assert_eq!(ledger.effects(), ["fetch 7"]);
    assert!(
        matches!(steps(&journal)[1].outcome, Outcome::Broken(_)),
        "it is on record, so a replay sees the same: {journal}"
    );
}

#[tokio::test]
async fn a_step_without_a_place_for_errors_fails_its_run_on_a_conflict() {
    let (result, _) = run(&Ledger::shared(), differing_plainly()).await;
    let text = format!("{:?}", result.expect_err("fails"));
    assert!(text.contains("idempotency key"), "{text}");
}

#[tokio::test]
async fn a_call_that_failed_frees_its_key_for_the_next_one() {
    for at_once in [false, true] {
        let ledger = Ledger::shared();
        let (result, journal) = run(&ledger, retrying(2, at_once)).await;
        let mut seen = result.expect("ends well");
        let rest = seen.split_off(2);
        assert_eq!(seen, ["failure 0", "failure 1"], "{journal}");
        assert!(rest.iter().all(|value| value == "2"), "{rest:?} {journal}");
        assert_eq!(ledger.asked(), 3, "a value is not asked for again");
        assert_eq!(ledger.effects(), ["shaky"], "under one id");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_while_its_body_runs_frees_its_key() {
    let ledger = Ledger::shared();
    let (result, journal) = run(&ledger, racing()).await;
    assert_eq!(result.expect("ends well"), 4, "{journal}");
    assert_eq!(
        ledger.effects(),
        ["fetch 1", "hangs"],
        "the second body has the id of the first"
    );
}

#[tokio::test]
async fn an_outcome_on_record_counts_for_its_key_also_if_its_call_was_dropped() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(losing()).await.expect("starts");
    let value_seen = run.result().await.expect("ends well");
    let journal = first.journal(run.id()).await.expect("reads");
    let records = steps(&journal);
    assert_eq!((records.len(), ledger.asked()), (3, 2), "{journal}");
    assert_eq!(value::<u32>(&records[1]), value_seen);
    // The loser's record is there, the last call's is not.
    let recorded = frames(&store, run.id()).await;
    let cut = cut(journal.header(), &recorded, 3).await;
    ledger.forget_asking();
    let again = engine(&ledger).open_with(cut).await.expect("opens");
    let resumed = again.run::<losing>(run.id()).await.expect("is there");
    assert_eq!(resumed.result().await.expect("ends well"), value_seen);
    assert_eq!(ledger.asked(), 0, "nothing is run again");
}

#[tokio::test]
async fn calls_under_a_key_are_undone_as_one() {
    for late in [false, true] {
        let call = || undoing(late);
        let ledger = Ledger::shared();
        let (result, store) = survive(|| engine(&ledger), call, []).await;
        assert!(matches!(result, Err(RunError::Failed(_))));
        let expected = [
            "charge 5",
            "charge 6",
            "refund 5 Some(6)",
            "refund 6 Some(7)",
        ];
        assert_eq!(ledger.effects(), expected, "late: {late}");
        for write in 0..store.writes() {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let ledger = Ledger::shared();
                let numbers = Arc::new(Numbers::default()); // what fails once fails once in all processes
                let engine = || engine(&ledger).resource_arc(numbers.clone());
                let plan = FaultPlan::at(write, fault);
                let (result, _) = survive(engine, call, [plan]).await;
                assert!(matches!(result, Err(RunError::Failed(_))), "{result:?}");
                assert_eq!(ledger.effects(), expected, "{fault:?} at {write}");
            }
        }
    }
}

#[tokio::test]
async fn a_pass_of_a_run_has_keys_of_its_own() {
    let ledger = Ledger::shared();
    let (result, journal) = run(&ledger, in_passes(0, vec![])).await;
    let seen = result.expect("ends well");
    assert_eq!(seen, [0, 0, 1001, 1001, 2002, 2002], "{journal}");
    assert_eq!(ledger.effects(), ["fetch 0", "fetch 1", "fetch 2"]);
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_at_the_call() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let refusals = [
        "`at_most_once`",
        "a key cannot be empty",
        "without a key",
        "`undo`",
        "too long",
    ];
    for (how, refusal) in (0..).zip(refusals) {
        let run = engine.start(misusing(how)).await.expect("starts");
        let text = match run.result().await.expect_err("is refused") {
            RunError::Broken(error) => error.to_string(),
            RunError::Parked(parking) => {
                assert_eq!(parking.reason, ParkReason::Panicked);
                let detail = engine.parked_detail(run.id()).await.expect("reads");
                detail.expect("says why")
            }
            other => panic!("{other:?}"),
        };
        assert!(text.contains(refusal), "{how}: {text}");
        assert!(text.contains("keyed_steps.rs:"), "{how}: {text}");
    }
    assert_eq!(ledger.asked(), 0, "nothing was run");
}

#[tokio::test]
async fn a_crash_at_any_write_runs_a_body_again_only_under_the_same_id() {
    let clean = Ledger::shared();
    let (result, store) = survive(|| engine(&clean), anywhere, []).await;
    result.expect("ends well");
    for first in 0..store.writes() {
        for second in 0..=store.writes() - first {
            let ledger = Ledger::shared();
            let plans = vec![
                FaultPlan::at(first, Fault::CrashAfter),
                FaultPlan::at(second, Fault::CrashBefore),
            ];
            let (result, store) = survive(|| engine(&ledger), anywhere, plans).await;
            let seen = result.expect("ends well");
            let same = [seen[0], seen[1], seen[2], seen[4]];
            assert_eq!(same, [seen[0]; 4], "{first}, {second}: {seen:?}");
            assert_eq!(ledger.effects(), ["fetch 7", "fetch 7", "fetch 8"]);
            let engine = engine(&ledger).open_with(store.reopen(Surviving::Synced));
            let engine = engine.await.expect("opens");
            let run = engine
                .start(anywhere())
                .key("story")
                .await
                .expect("is there");
            let journal = engine.journal(run.id()).await.expect("reads");
            assert_eq!(ids_of(&journal, "fetch").len(), 6, "{journal}");
        }
    }
}

/// The body sees an id that neither its scope nor its call has a part in.
#[workflow]
async fn looking() -> Result<Vec<String>> {
    let plain = see().await?;
    let keyed = see().idempotency_key("k").await?;
    let other = async { see_again().idempotency_key("k").await }.await?;
    Ok(vec![plain, keyed, other])
}

#[step]
async fn see() -> Result<String> {
    Ok(get_step_metadata().step_id.to_string())
}

#[step]
async fn see_again() -> Result<String> {
    Ok(get_step_metadata().step_id.to_string())
}

#[tokio::test]
async fn steps_of_two_names_share_no_key() {
    let builder = Engine::builder().register::<looking>();
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(looking()).await.expect("starts");
    let seen = run.result().await.expect("ends well");
    let ids: std::collections::HashSet<_> = seen.iter().collect();
    assert_eq!(ids.len(), 3, "{seen:?}");
}
