//! Leaving memory: runs that only wait are rebuilt when they are woken, and nothing is lost by it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::{FutureExt as _, join};
use serde::Serialize;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunStatus, get_step_metadata,
    sleep, step, timeout, wait_for, workflow,
};
use workflow_tests::Ledger;

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[step(backoff = "60ms..60ms", max_attempts = 3)]
async fn flaky(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("flaky");
    match get_step_metadata().attempt {
        1 | 2 => Err(Error::new("not yet")),
        attempt => Ok(attempt),
    }
}

#[workflow]
async fn napping(naps: u32, millis: u64) -> Result<u32> {
    for nap in 0..naps {
        act(&format!("nap {nap}")).await?;
        sleep(Duration::from_millis(millis)).await;
    }
    Ok(naps)
}

#[workflow]
async fn answering() -> Result<String> {
    act("asked").await?;
    let name = wait_for::<String>("name").await?;
    act(&name).await?;
    Ok(name)
}

#[workflow]
async fn patient(names: u32) -> Result<u32> {
    let mut heard = 0;
    for _ in 0..names {
        let name = timeout(Duration::from_secs(3600), wait_for::<String>("name")).await;
        heard += u32::from(name.is_ok());
    }
    Ok(heard)
}

#[workflow]
async fn asking() -> Result<String> {
    let (answer, ()) = join!(answering(), sleep(Duration::from_millis(40)));
    answer
}

#[workflow]
async fn retrying() -> Result<u32> {
    flaky().await
}

/// An argument that cannot be copied, which every attempt does.
#[derive(Serialize)]
struct Brittle;

impl Clone for Brittle {
    fn clone(&self) -> Self {
        panic!("it breaks");
    }
}

#[step]
async fn hold(_brittle: Brittle) -> u32 {
    1
}

#[workflow]
async fn careful() -> Result<u32> {
    let held = AssertUnwindSafe(hold(Brittle)).catch_unwind().await;
    sleep(Duration::from_secs(3600)).await;
    Ok(held.map_or(0, |held| held))
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<napping>()
        .register::<answering>()
        .register::<asking>()
        .register::<patient>()
        .register::<retrying>()
        .register::<careful>()
        .evict_after(Duration::from_millis(2))
        .resource_arc(ledger.clone())
}

async fn until_memory_holds(engine: &Engine, runs: usize) {
    let began = Instant::now();
    while engine.runs_in_memory() != runs {
        assert!(began.elapsed() < Duration::from_secs(10), "still in memory");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_call_that_panicked_and_is_gone_keeps_no_run_in_memory() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(careful()).await.expect("starts");
    until_memory_holds(&engine, 0).await;
    assert_eq!(run.status().await.expect("is there"), RunStatus::Active);
}

#[tokio::test]
async fn a_sleeping_run_leaves_memory_and_comes_back_in_time() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let began = Instant::now();
    let run = engine.start(napping(2, 100)).await.expect("starts");
    until_memory_holds(&engine, 0).await;
    assert_eq!(run.status().await.expect("is there"), RunStatus::Active);
    let again = engine.run::<napping>(run.id()).await.expect("is there");
    let (first, second) = join!(run.result(), again.result());
    assert_eq!((first.expect("ends"), second.expect("ends")), (2, 2));
    assert!(began.elapsed() >= Duration::from_millis(200));
    assert_eq!(ledger.asked(), 2, "replay ran a body again");
}

#[tokio::test]
async fn a_signal_wakes_a_run_that_left_memory() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(answering()).await.expect("starts");
    until_memory_holds(&engine, 0).await;
    run.signal("name", "ada").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), "ada");
    assert_eq!(ledger.asked(), 2);
}

/// Waits before it has done anything: its journal says no more than that it was started.
#[workflow]
async fn listening() -> Result<String> {
    wait_for::<String>("name").await
}

#[tokio::test]
async fn a_signal_wakes_a_run_that_has_nothing_on_record() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = || engine(&ledger).register::<listening>();
    let first = builder().open_with(store.clone()).await.expect("opens");
    let run = first.start(listening()).await.expect("starts");
    let other = first.start(listening()).await.expect("starts").id();
    until_memory_holds(&first, 0).await;
    run.signal("name", "ada").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), "ada");
    // Sent, and not heard before the process is gone.
    first.signal(other, "name", "bob").await.expect("sends");
    let store = store.reopen(Surviving::Synced);
    drop(first);
    let second = builder().open_with(store).await.expect("opens");
    let other = second.run::<listening>(other).await.expect("is there");
    assert_eq!(other.result().await.expect("ends well"), "bob");
}

#[tokio::test]
async fn a_run_that_a_signal_woke_leaves_no_time_behind() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(patient(3)).await.expect("starts");
    for n in 0..3 {
        until_memory_holds(&engine, 0).await;
        let asleep = engine.runs_asleep().await.expect("counted");
        assert_eq!(asleep, 1, "before signal {n}");
        run.signal("name", "ada").await.expect("sends");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(run.result().await.expect("ends well"), 3);
    assert_eq!(engine.runs_asleep().await.expect("counted"), 0);
}

#[tokio::test]
async fn a_child_wakes_a_parent_that_left_memory() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(asking()).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(80)).await;
    until_memory_holds(&engine, 0).await;
    let page = engine.runs().workflow("answering").await.expect("lists");
    let child = page.runs[0].run;
    engine.signal(child, "name", "bob").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), "bob");
}

#[tokio::test]
async fn a_long_retry_leaves_memory_and_keeps_its_attempts() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(retrying()).await.expect("starts");
    until_memory_holds(&engine, 0).await;
    assert_eq!(run.result().await.expect("ends well"), 3);
    assert_eq!(ledger.asked(), 3);
}

#[tokio::test]
async fn a_cancelled_run_is_cancelled_in_its_sleep() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(napping(1, 3_600_000)).await.expect("starts");
    until_memory_holds(&engine, 0).await;
    run.cancel().await.expect("asks");
    run.result().await.expect_err("cancelled");
    let other = engine.start(napping(1, 3_600_000)).await.expect("starts");
    until_memory_holds(&engine, 0).await;
    engine.terminate(other.id()).await.expect("terminates");
    other.result().await.expect_err("terminated");
}

#[tokio::test]
async fn a_sleeper_survives_a_restart_and_is_woken_by_the_next_engine() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let run = {
        let engine = engine(&ledger)
            .open_with(store.clone())
            .await
            .expect("opens");
        let run = engine.start(napping(1, 100)).await.expect("starts");
        until_memory_holds(&engine, 0).await;
        engine.shutdown().await.expect("stops");
        run.id()
    };
    let store = store.reopen(Surviving::All);
    let engine = engine(&ledger).open_with(store).await.expect("opens");
    assert_eq!(engine.runs_in_memory(), 0, "it sleeps");
    let run = engine.run::<napping>(run).await.expect("is there");
    assert_eq!(run.result().await.expect("ends well"), 1);
    assert_eq!(ledger.asked(), 1);
}

#[tokio::test]
async fn sleepers_are_woken_by_the_next_engine_however_many_pages_of_the_store_they_are() {
    const RUNS: u64 = 1_100; // they are read a thousand at a time
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    for _ in 0..RUNS {
        let call = napping(1, DAY.as_millis() as u64);
        first.start(call).await.expect("starts");
    }
    until_memory_holds(&first, 0).await;
    assert_eq!(first.runs_asleep().await.expect("counts"), RUNS);
    first.shutdown().await.expect("stops");
    let next = TestEngine::builder()
        .register::<napping>()
        .resource_arc(ledger.clone())
        .store(store.reopen(Surviving::All))
        .starts_at(SystemTime::now() + 2 * DAY);
    let next = next.open().await.expect("opens");
    let began = Instant::now();
    while next.runs_asleep().await.expect("counts") > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "nobody wakes it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ledger.asked(), RUNS as usize);
}

#[tokio::test]
async fn sleepers_of_another_namespace_are_not_counted() {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::new();
    for namespace in ["one", "other"] {
        let engine = engine(&ledger).namespace(namespace);
        let engine = engine.open_with(store.clone()).await.expect("opens");
        let count = || async { engine.runs_asleep().await.expect("counts") };
        assert_eq!(count().await, 0, "{namespace} has none yet");
        engine.start(napping(1, 86_400_000)).await.expect("starts");
        until_memory_holds(&engine, 0).await;
        assert_eq!(count().await, 1, "{namespace} has one");
        engine.shutdown().await.expect("stops");
        store = store.reopen(Surviving::All);
    }
}

#[tokio::test]
async fn a_thousand_runs_due_together_all_come_back() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let mut runs = Vec::new();
    for n in 0..1_000_u64 {
        let call = napping(1, 400);
        runs.push(
            engine
                .start(call)
                .key(format!("run {n}"))
                .await
                .expect("starts"),
        );
    }
    for run in runs {
        assert_eq!(run.result().await.expect("ends well"), 1);
    }
    assert_eq!(ledger.asked(), 1_000);
}

/// How many runs that only wait stay for their whole moment.
const CROWD: usize = 64;

#[tokio::test]
async fn of_a_crowd_that_sleeps_for_long_all_but_some_leave_at_once() {
    // Less than `patient` waits: who is back within the moment stays.
    let moment = Duration::from_secs(1800);
    let ledger = Ledger::shared();
    let builder = engine(&ledger).evict_after(moment);
    let engine = builder.open_in_memory().await.expect("opens");
    let mut runs = Vec::new();
    for n in 0..2 * CROWD {
        let millis = 2 * u64::try_from(moment.as_millis()).expect("it fits");
        let run = engine.start(napping(1, millis)).await.expect("starts");
        runs.push(run);
        assert!(engine.runs_in_memory() <= n + 1);
    }
    until_memory_holds(&engine, CROWD).await;
    assert_eq!(ledger.asked(), 2 * CROWD);
    // Those that wait for a letter stay for a second, and are found by it after that.
    let patient = engine.start(patient(1)).await.expect("starts");
    assert_eq!(engine.runs_in_memory(), CROWD + 1);
    until_memory_holds(&engine, CROWD).await;
    patient.signal("name", "ada").await.expect("sends");
    assert_eq!(patient.result().await.expect("ends well"), 1);
    // Whoever comes back in less than the moment stays, however many there are.
    let brief = engine.start(napping(1, 300)).await.expect("starts");
    assert_eq!(engine.runs_in_memory(), CROWD + 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(engine.runs_in_memory(), CROWD + 1);
    assert_eq!(brief.result().await.expect("ends well"), 1);
    // Room is made by those who go.
    for run in &runs[..10] {
        run.cancel().await.expect("cancelled");
        run.result().await.expect_err("it was cancelled");
    }
    until_memory_holds(&engine, CROWD - 10).await;
    engine.start(answering()).await.expect("starts");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(engine.runs_in_memory(), CROWD - 9, "there was room");
}

/// Starts the same run again and again: each start is in memory for a moment, and drives nothing.
async fn ask_again(engine: &Engine, key: &str, until: impl Future<Output = ()>) {
    let again = async {
        loop {
            let start = engine.start(napping(1, 20)).key(key).await;
            start.expect("is there");
            let start = engine.start(answering()).key(key).await;
            start.expect("is there");
        }
    };
    tokio::select! {
        () = again => {}
        () = until => {}
    }
}

#[tokio::test]
async fn a_start_of_the_same_key_keeps_no_sleeper_from_being_woken() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_with(MemoryStore::new()).await;
    let engine = engine.expect("opens");
    for round in 0..20 {
        let key = &*round.to_string();
        let naps = engine.start(napping(1, 20)).key(key).await;
        let naps = naps.expect("starts");
        let answers = engine.start(answering()).key(key).await;
        let answers = answers.expect("starts");
        until_memory_holds(&engine, 0).await;
        ask_again(&engine, key, async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            answers.signal("name", "ada").await.expect("is heard");
            tokio::time::sleep(Duration::from_millis(25)).await;
        })
        .await;
        let ends = async {
            naps.result().await.expect("ends well");
            answers.result().await.expect("ends well");
        };
        let limit = Duration::from_secs(5);
        let ended = tokio::time::timeout(limit, ends).await;
        assert!(ended.is_ok(), "round {round}: nobody woke it");
    }
}

/// Runs a napping and an answering run to their ends, through one crash.
async fn through(plan: FaultPlan) -> (u32, String, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let napping = engine
                .start(napping(2, 6))
                .key("naps")
                .await
                .expect("starts");
            let asking = engine.start(asking()).key("asks").await.expect("starts");
            let child = loop {
                let page = engine.runs().workflow("answering").await.expect("lists");
                match page.runs.first() {
                    Some(child) => break child.run,
                    None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            match engine.signal(child, "name", "ada").key("ada").await {
                Ok(_) | Err(EngineError::Ended(_)) => {}
                Err(error) => panic!("{error}"),
            }
            let both = async {
                let naps = napping.result().await.expect("ends well");
                (naps, asking.result().await.expect("ends well"))
            };
            match tokio::time::timeout(Duration::from_secs(10), both).await {
                Ok(both) => both,
                Err(_) => {
                    let mut shown = String::new();
                    for header in engine.runs().await.expect("lists").runs {
                        let journal = engine.journal(header.run).await.expect("reads");
                        shown += &format!("{:?}\n{journal}\n", header.state);
                    }
                    let (memory, warnings) = (engine.runs_in_memory(), engine.warnings());
                    panic!("it hangs with {memory} in memory: {warnings:?}\n{shown}")
                }
            }
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            (naps, name) = living => return (naps, name, ledger.effects(), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_runs_that_come_and_go_changes_nothing() {
    let (naps, name, effects, writes) = through(FaultPlan::none()).await;
    assert_eq!((naps, &*name), (2, "ada"));
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let after = through(FaultPlan::at(write, fault)).await;
            let (naps, name) = (after.0, &*after.1);
            assert_eq!(
                (naps, name, &after.2),
                (2, "ada", &effects),
                "{write} {fault:?}"
            );
        }
    }
}

/// Polls something so often at most, lets others run between, and says whether it ended.
async fn give_up_after(polls: usize, doing: impl Future<Output = Result<(), EngineError>>) -> bool {
    let mut doing = std::pin::pin!(doing);
    for _ in 0..polls {
        if futures::poll!(&mut doing).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn a_termination_that_is_given_up_half_way_takes_the_run_from_nobody() {
    let ledger = Ledger::shared();
    let directory = tempfile::tempdir().expect("a directory");
    let opened = engine(&ledger).open(directory.path().join("store")).await;
    let engine = opened.expect("opens");
    for polls in 1..1_000 {
        let run = engine.start(napping(1, 60)).await.expect("starts");
        until_memory_holds(&engine, 0).await;
        let terminated = give_up_after(polls, engine.terminate(run.id()).into_future()).await;
        let ended = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        // It was terminated though nobody waited for that, or it went on.
        match ended.unwrap_or_else(|_| panic!("nobody woke it, given up after {polls} polls")) {
            Ok(value) => assert_eq!(value, 1),
            Err(RunError::Cancelled { .. }) => {}
            Err(other) => panic!("given up after {polls} polls: {other:?}"),
        }
        if terminated {
            return engine.shutdown().await.expect("stops");
        }
    }
    panic!("it never ended");
}

#[tokio::test]
async fn a_pause_that_is_given_up_half_way_leaves_no_sleeper_that_nobody_wakes() {
    let ledger = Ledger::shared();
    let directory = tempfile::tempdir().expect("a directory");
    // On a disk: in memory a pause is over before it could be given up.
    let opened = engine(&ledger).open(directory.path().join("store")).await;
    let engine = opened.expect("opens");
    for polls in 1..1_000 {
        let run = engine.start(napping(1, 60)).await.expect("starts");
        until_memory_holds(&engine, 0).await;
        let paused = give_up_after(polls, engine.pause(run.id())).await;
        let ended = || tokio::time::timeout(Duration::from_secs(20), run.result());
        let mut outcome = ended().await;
        // It may be paused though nobody waited for that: what the store was asked for is done.
        if let Ok(Err(RunError::Parked(_))) = &outcome {
            engine.resume(run.id()).await.expect("resumes");
            outcome = ended().await;
        }
        let Ok(outcome) = outcome else {
            panic!("nobody woke it, given up after {polls} polls");
        };
        assert_eq!(outcome.expect("ends well"), 1);
        if paused {
            assert!(polls > 1, "it could not be given up at all");
            return engine.shutdown().await.expect("stops");
        }
    }
    panic!("it never ended");
}
