//! Forks: a new run that shares another one's history up to a step and goes its own way from there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::join;
use serde::Deserialize;
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{Origin, ParkReason, RunHeader};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, ForkPoint, Result, RunError, RunId, StepId,
    Workflow, get_step_metadata, get_workflow_metadata, random, sleep, step, workflow,
};
use workflow_tests::{Ledger, cut, frames, ids_of, steps};

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str, luck: u64, run: &str) -> Result<String> {
    ledger.act(&format!("{what} {luck} {run}"));
    Ok(what.to_owned())
}

/// Has what a fork must not mix up in its input: the run's id and a random number.
fn own() -> (u64, String) {
    (random(), get_workflow_metadata().run_id.to_string())
}

#[workflow]
async fn order() -> Result<Vec<String>> {
    let mut done = Vec::new();
    for what in ["first", "second", "third", "fourth"] {
        let (luck, run) = own();
        done.push(act(what, luck, &run).await?);
    }
    Ok(done)
}

const DONE: [&str; 4] = ["first", "second", "third", "fourth"];

fn engine<W: Workflow>(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<W>()
        .resource_arc(ledger.clone())
}

async fn open<W: Workflow>(ledger: &Arc<Ledger>, store: &MemoryStore) -> Engine {
    let store = store.clone();
    engine::<W>(ledger).open_with(store).await.expect("opens")
}

async fn journal(engine: &Engine, run: RunId) -> Journal {
    engine.journal(run).await.expect("reads")
}

#[derive(Deserialize)]
struct Input {
    run: String,
}

/// Which run each step of a journal believed to be, as it told the outside world.
fn believed(journal: &Journal) -> Vec<String> {
    let inputs = steps(journal).into_iter().map(|step| step.input);
    inputs
        .map(|input| {
            let input = input.expect("is kept");
            rmp_serde::from_slice::<Input>(&input).expect("is one").run
        })
        .collect()
}

#[tokio::test]
async fn a_fork_shares_what_is_before_a_step_and_runs_the_rest_under_ids_of_its_own() {
    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let engine = open::<order>(&ledger, &store).await;
    let origin = engine.start(order()).key("o-1").await.expect("starts");
    assert_eq!(origin.result().await.expect("ends well"), DONE);
    let before = frames(&store, origin.id()).await;
    let ids = ids_of(&journal(&engine, origin.id()).await, "act");
    for shared in 0..4 {
        ledger.forget_asking();
        let fork = origin.fork().at(ids[shared]).await.expect("is forked");
        assert_eq!(fork.result().await.expect("ends well"), DONE);
        assert_eq!(ledger.asked(), 4 - shared, "shared steps ran again");

        let made = journal(&engine, fork.id()).await;
        let fork_ids = ids_of(&made, "act");
        assert_eq!(fork_ids[..shared], ids[..shared]);
        assert!(fork_ids[shared..].iter().all(|id| !ids.contains(id)));
        let (theirs, mine) = (origin.id().to_string(), fork.id().to_string());
        let mut expected = vec![theirs; shared];
        expected.resize(4, mine);
        assert_eq!(believed(&made), expected);
        let header = made.header();
        assert_eq!(header.origin, Some(Origin::Forked(origin.id())));
        assert_eq!(header.key, None);
        let timeline = made.to_string();
        let forked = format!("forked from      {}", origin.id());
        assert!(timeline.contains(&forked), "{timeline}");

        // Every later replay of the fork gives the same, from any record on.
        let recorded = frames(&store, fork.id()).await;
        for records in shared + 2..recorded.len() {
            ledger.forget_asking();
            let again = cut(header, &recorded, records).await;
            let again = open::<order>(&ledger, &again).await;
            let run = again.run::<order>(fork.id()).await.expect("is there");
            assert_eq!(run.result().await.expect("ends well"), DONE);
            assert_eq!(ledger.asked(), recorded.len() - 1 - records);
            let resumed = journal(&again, fork.id()).await;
            assert_eq!(ids_of(&resumed, "act"), fork_ids);
        }
    }
    assert_eq!(
        frames(&store, origin.id()).await,
        before,
        "the origin changed"
    );
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
    assert_eq!(ledger.effects().len(), 4 + 4 + 3 + 2 + 1);
}

/// Runs an order, forks it at its third step and waits for the fork's end, through crashes.
async fn forked_through(plans: Vec<FaultPlan>) -> (Arc<Ledger>, MemoryStore, Vec<RunHeader>) {
    let ledger = Ledger::shared();
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    loop {
        let living = async {
            let engine = open::<order>(&ledger, &store).await;
            let origin = engine.start(order()).key("o-1").await.expect("starts");
            origin.result().await.expect("ends well");
            let runs = engine.runs().await.expect("lists").runs;
            let fork = match runs.iter().find(|run| run.origin.is_some()) {
                Some(fork) => engine.run::<order>(fork.run).await.expect("is there"),
                None => {
                    let third = ids_of(&journal(&engine, origin.id()).await, "act")[2];
                    origin.fork().at(third).await.expect("is forked")
                }
            };
            assert_eq!(fork.result().await.expect("ends well"), DONE);
            let checked = engine.verify().await.expect("verifies");
            assert!(checked.damaged.is_empty(), "{checked:?}");
            engine.runs().await.expect("lists").runs
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            runs = living => return (ledger, store, runs),
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_run_and_its_fork_changes_neither_result_nor_effects() {
    let writes = forked_through(vec![]).await.1.writes();
    for first in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            for second in 0..writes - first + 1 {
                let plans = vec![
                    FaultPlan::at(first, fault),
                    FaultPlan::at(second, Fault::CrashBefore),
                ];
                let (ledger, _, runs) = forked_through(plans).await;
                let shown = format!("{fault:?} at {first}, then at {second}");
                assert_eq!(runs.len(), 2, "{shown}");
                // Four of the origin and two of the fork: no step of either had two effects.
                assert_eq!(ledger.effects().len(), 6, "{shown}");
            }
        }
    }
}

#[workflow]
async fn side_by_side() -> Result<Vec<String>> {
    let (luck, run) = own();
    let (left, right) = join!(
        async {
            sleep(Duration::from_millis(400)).await;
            act("left", luck, &run).await
        },
        async {
            act("right", luck, &run).await?;
            let (luck, run) = own();
            act("right again", luck, &run).await
        }
    );
    Ok(vec![left?, right?])
}

#[tokio::test]
async fn what_runs_again_has_an_id_of_its_own_even_if_it_was_called_in_the_shared_part() {
    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let engine = open::<side_by_side>(&ledger, &store).await;
    let origin = engine.start(side_by_side()).await.expect("starts");
    origin.result().await.expect("ends well");
    let ids = ids_of(&journal(&engine, origin.id()).await, "act");
    // Shared is the timer's deadline, and nothing else: `right` is called before anything happens.
    let began = Instant::now();
    let fork = origin.fork().at(ids[0]).await.expect("is forked");
    fork.result().await.expect("ends well");
    assert!(
        began.elapsed() < Duration::from_millis(350),
        "it slept again"
    );
    let made = journal(&engine, fork.id()).await;
    assert!(
        ids_of(&made, "act").iter().all(|id| !ids.contains(id)),
        "{made}"
    );
    assert_eq!(ledger.effects().len(), 6);
}

/// Fails at first.
#[step(backoff = "1ms")]
async fn flaky() -> Result<u32> {
    match get_step_metadata().attempt {
        1 => Err(Error::new("not yet")),
        attempt => Ok(attempt),
    }
}

#[workflow]
async fn tries() -> Result<u32> {
    flaky().await
}

#[tokio::test]
async fn attempts_that_failed_in_the_origin_are_not_the_forks() {
    let engine = open::<tries>(&Ledger::shared(), &MemoryStore::new()).await;
    let origin = engine.start(tries()).await.expect("starts");
    assert_eq!(origin.result().await.expect("ends well"), 2);
    let ids = ids_of(&journal(&engine, origin.id()).await, "flaky");
    let fork = origin.fork().at(ids[0]).await.expect("is forked");
    assert_eq!(fork.result().await.expect("ends well"), 2);
    let made = journal(&engine, fork.id()).await;
    let failures = made
        .records()
        .iter()
        .filter(|record| matches!(record.event, Event::AttemptFailed(_)));
    assert_eq!(failures.count(), 2, "one of each\n{made}");
    assert_ne!(ids_of(&made, "flaky"), ids);
}

#[tokio::test]
async fn a_fork_can_be_forked_before_and_after_the_place_where_it_was_made() {
    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let engine = open::<order>(&ledger, &store).await;
    let first = engine.start(order()).await.expect("starts");
    first.result().await.expect("ends well");
    let second = first.fork().at(3).await.expect("is forked");
    second.result().await.expect("ends well");
    let ids = ids_of(&journal(&engine, second.id()).await, "act");
    for shared in 0..4 {
        ledger.forget_asking();
        let third = second.fork().at(ids[shared]).await.expect("is forked");
        assert_eq!(third.result().await.expect("ends well"), DONE);
        assert_eq!(ledger.asked(), 4 - shared);
        let made = journal(&engine, third.id()).await;
        assert_eq!(ids_of(&made, "act")[..shared], ids[..shared], "{made}");
        let by = [first.id(), first.id(), second.id()].map(|run| run.to_string());
        let mut expected = by[..shared].to_vec();
        expected.resize(4, third.id().to_string());
        assert_eq!(believed(&made), expected);
        assert_eq!(made.header().origin, Some(Origin::Forked(second.id())));
    }
    assert!(engine.verify().await.expect("verifies").damaged.is_empty());
}

#[tokio::test]
async fn a_fork_without_a_place_shares_everything_but_the_end() {
    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let engine = open::<order>(&ledger, &store).await;
    let origin = engine.start(order()).await.expect("starts");
    origin.result().await.expect("ends well");
    let fork = engine.fork(origin.id()).await.expect("is forked");
    let fork = engine.run::<order>(fork).await.expect("is there");
    assert_eq!(fork.result().await.expect("ends well"), DONE);
    assert_eq!(ledger.asked(), 4, "nothing was left to run");
}

#[tokio::test]
async fn where_a_run_cannot_be_forked_is_said() {
    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let engine = open::<order>(&ledger, &store).await;
    let run = engine.start(order()).await.expect("starts");
    run.result().await.expect("ends well");
    let unknown = StepId::from_bytes([7; 16]);
    let cases: [(ForkPoint, &str); 4] = [
        (unknown.into(), "no outcome of it"),
        (0.into(), "record 0 is the start"),
        (6.into(), "had ended with record 5"),
        (7.into(), "it has 6 records"),
    ];
    for (at, says) in cases {
        match engine.fork(run.id()).at(at).await {
            Err(error @ EngineError::NoForkPoint { .. }) => {
                assert!(error.to_string().contains(says), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    let nobody = RunId::from_bytes([1; 16]);
    let refused = engine.fork(nobody).await;
    assert!(matches!(refused, Err(EngineError::UnknownRun(run)) if run == nobody));
    assert_eq!(engine.runs().await.expect("lists").runs.len(), 1);
}

#[step(max_attempts = 1)]
async fn fail() -> Result<()> {
    Err(Error::fatal("no"))
}

#[workflow]
async fn fails_or_panics(panics: bool) -> Result<String> {
    let (luck, run) = own();
    act("first", luck, &run).await?;
    assert!(!panics, "on purpose");
    fail().await?;
    Ok("cannot be".into())
}

#[tokio::test]
async fn parked_and_failed_runs_can_be_forked_with_other_code() {
    #[workflow(name = "fails_or_panics")]
    async fn mended(panics: bool) -> Result<String> {
        let (luck, run) = own();
        act("first", luck, &run).await?;
        let (luck, run) = own();
        act(if panics { "panicked" } else { "failed" }, luck, &run).await
    }

    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let engine = open::<fails_or_panics>(&ledger, &store).await;
    let parked = engine.start(fails_or_panics(true)).await.expect("starts");
    let failed = engine.start(fails_or_panics(false)).await.expect("starts");
    assert!(matches!(parked.result().await, Err(RunError::Parked(_))));
    assert!(matches!(failed.result().await, Err(RunError::Failed(_))));
    drop(engine);
    let store = store.reopen(Surviving::Synced);
    let engine = open::<mended>(&ledger, &store).await;
    for (run, says) in [(parked.id(), "panicked"), (failed.id(), "failed")] {
        let fork = engine.fork(run).at(2).await.expect("is forked");
        let fork = engine.run::<mended>(fork).await.expect("is there");
        assert_eq!(fork.result().await.expect("ends well"), says);
    }
    // At its end the failed run has an outcome that the new code does not ask for.
    let fork = engine.fork(failed.id()).await.expect("is forked");
    let fork = engine.run::<mended>(fork).await.expect("is there");
    let parked = fork.result().await;
    assert!(
        matches!(&parked, Err(RunError::Parked(parking)) if parking.reason == ParkReason::Diverged),
        "{parked:?}"
    );
}

#[tokio::test]
async fn a_fork_is_on_the_disk_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::shared();
    let path = dir.path().join("orders.db");
    let first = engine::<order>(&ledger).open(&path).await.expect("opens");
    let origin = first.start(order()).await.expect("starts");
    origin.result().await.expect("ends well");
    let fork = origin.fork().at(3).await.expect("is forked");
    assert_eq!(fork.result().await.expect("ends well"), DONE);
    first.shutdown().await.expect("stops");
    let second = engine::<order>(&ledger).open(&path).await.expect("opens");
    let made = journal(&second, fork.id()).await;
    let forked_at = made.records().iter().position(
        |record| matches!(&record.event, Event::RunForked(fork) if fork.origin == origin.id()),
    );
    assert_eq!((made.records().len(), forked_at), (7, Some(3)));
    assert!(second.verify().await.expect("verifies").damaged.is_empty());
}
