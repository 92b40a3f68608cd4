//! Poison runs: what kills its process again and again is parked, and those that shared it are not.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{NoteKey, ParkReason, Store};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunError, RunId, RunStatus, step, wait_for, workflow,
};
use workflow_tests::Ledger;

/// The process that a run can kill.
struct Process {
    store: MemoryStore,
    harmless: Arc<AtomicBool>,
}

impl Process {
    async fn die(&self) {
        if !self.harmless.load(Ordering::Relaxed) {
            self.store.crash();
            std::future::pending().await
        }
    }
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    tokio::time::sleep(Duration::from_millis(2)).await;
    Ok(())
}

#[step]
async fn kill(#[resource] process: &Process) -> Result<u32> {
    process.die().await;
    Ok(7)
}

#[workflow]
async fn poison() -> Result<u32> {
    act("poison").await?;
    kill().await
}

#[workflow]
async fn innocent(number: u32) -> Result<u32> {
    act(&format!("innocent {number}")).await?;
    act(&format!("innocent {number} again")).await?;
    Ok(number)
}

fn engine(ledger: &Arc<Ledger>, store: &MemoryStore, harmless: &Arc<AtomicBool>) -> EngineBuilder {
    Engine::builder()
        .register::<poison>()
        .register::<innocent>()
        .register::<waiting>()
        .register::<stumbling>()
        .register::<rotten>()
        .resource_arc(ledger.clone())
        .resource(Process {
            store: store.clone(),
            harmless: harmless.clone(),
        })
}

/// The marks in a store.
async fn marks(store: &MemoryStore) -> usize {
    let prefix = NoteKey::new(2, &[]);
    store.notes(prefix, None, 100).await.expect("reads").len()
}

/// Lives through processes until all is settled; the second one dies at a write if asked to.
async fn live(second: FaultPlan) -> (u32, MemoryStore, RunId, Arc<Ledger>, Engine) {
    let ledger = Ledger::shared();
    let dangerous = Arc::new(AtomicBool::new(false));
    let mut store = MemoryStore::new();
    let mut crashes = 0;
    loop {
        let living = async {
            let engine = engine(&ledger, &store, &dangerous)
                .open_with(store.clone())
                .await
                .expect("opens");
            let mut runs = Vec::new();
            let mut killer = None;
            for number in 0..6 {
                if number == 3 {
                    killer = Some(engine.start(poison()).key("k").await.expect("starts"));
                }
                let key = format!("n{number}");
                let run = engine.start(innocent(number)).key(key.as_str()).await;
                runs.push((number, run.expect("starts")));
            }
            for (number, run) in runs {
                assert_eq!(run.result().await.expect("ends well"), number);
            }
            let killer = killer.expect("was started");
            let error = killer.result().await.expect_err("is parked");
            assert!(matches!(error, RunError::Parked(_)), "{error}");
            (killer.id(), engine)
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            (run, engine) = living => return (crashes, store, run, ledger, engine),
        }
        crashes += 1;
        assert!(crashes < 30, "the poison run is never parked");
        store = store.reopen(Surviving::Synced);
        if crashes == 1 {
            store.set_faults(second.clone());
        }
    }
}

#[tokio::test]
async fn a_run_that_kills_its_process_is_parked_and_those_beside_it_end_well() {
    let (crashes, store, run, ledger, engine) = live(FaultPlan::none()).await;
    // The first one, one with others, three alone.
    assert_eq!(crashes, 5);
    let RunStatus::Parked(parking) = engine.status(run).await.expect("is there") else {
        panic!("it is not parked");
    };
    assert_eq!(parking.reason, ParkReason::Poison);
    let journal = engine.journal(run).await.expect("reads");
    for part in ["died 3 times", "in flight", "step_", "engine.resume(run)"] {
        assert!(
            parking.report.contains(part),
            "{}\n{journal}",
            parking.report
        );
    }
    assert_eq!(ledger.effects().len(), 13);
    assert_eq!(
        marks(&store).await,
        0,
        "all is settled, and nothing is left"
    );
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_recovery_parks_no_innocent() {
    for write in 0..12 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let (_, store, run, ledger, engine) = live(FaultPlan::at(write, fault)).await;
            let status = engine.status(run).await.expect("is there");
            assert!(matches!(status, RunStatus::Parked(_)), "{write} {fault:?}");
            assert_eq!(ledger.effects().len(), 13, "{write} {fault:?}");
            assert_eq!(marks(&store).await, 0, "{write} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_poison_run_that_is_resumed_after_the_fix_goes_on_with_a_clean_record() {
    let (_, store, run, ledger, _) = live(FaultPlan::none()).await;
    let harmless = Arc::new(AtomicBool::new(true));
    let mut store = store.reopen(Surviving::Synced);
    let opened = engine(&ledger, &store, &harmless).open_with(store.clone());
    let fixed = opened.await.expect("opens");
    assert_eq!(fixed.runs_in_memory(), 0, "it waits for a person");
    // Not fixed after all: it has all its chances again.
    harmless.store(false, Ordering::Relaxed);
    fixed.resume(run).await.expect("resumes");
    store.crashed().await;
    for _ in 0..4 {
        store = store.reopen(Surviving::Synced);
        let opened = engine(&ledger, &store, &harmless).open_with(store.clone());
        let again = opened.await.expect("opens");
        let status = again.status(run).await.expect("is there");
        assert_eq!(status, RunStatus::Active);
        store.crashed().await;
    }
    harmless.store(true, Ordering::Relaxed);
    store = store.reopen(Surviving::Synced);
    let opened = engine(&ledger, &store, &harmless).open_with(store.clone());
    let fixed = opened.await.expect("opens");
    let handle = fixed.run::<poison>(run).await.expect("is there");
    handle.result().await.expect_err("is parked");
    fixed.resume(run).await.expect("resumes");
    assert_eq!(handle.result().await.expect("ends well"), 7);
    assert_eq!(marks(&store).await, 0);
}

static ROTTEN: Mutex<Option<MemoryStore>> = Mutex::new(None);

#[workflow]
async fn rotten() -> Result<u32> {
    act("before").await?;
    let process = ROTTEN.lock().expect("is there").clone();
    if let Some(process) = process {
        process.crash();
        std::future::pending::<()>().await;
    }
    Ok(1)
}

#[tokio::test]
async fn workflow_code_that_kills_the_process_in_replay_is_caught_too() {
    let ledger = Ledger::shared();
    let harmless = Arc::new(AtomicBool::new(true));
    let mut store = MemoryStore::new();
    let mut crashes = 0;
    let parking = loop {
        *ROTTEN.lock().expect("is there") = Some(store.clone());
        let living = async {
            let opened = engine(&ledger, &store, &harmless).open_with(store.clone());
            let engine = opened.await.expect("opens");
            let run = engine.start(rotten()).key("r").await.expect("starts");
            run.result().await.expect_err("does not end")
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            error = living => break error,
        }
        crashes += 1;
        assert!(crashes < 10, "it is never parked");
        store = store.reopen(Surviving::Synced);
    };
    assert_eq!(crashes, 5);
    let RunError::Parked(parking) = parking else {
        panic!("{parking}");
    };
    assert_eq!(parking.reason, ParkReason::Poison);
    *ROTTEN.lock().expect("is there") = None;
}

#[derive(Default)]
struct Stones(Mutex<HashSet<u32>>);

#[step]
async fn stumble(
    #[resource] stones: &Stones,
    #[resource] process: &Process,
    at: u32,
) -> Result<()> {
    let first = stones.0.lock().expect("is there").insert(at);
    if first {
        process.die().await;
    }
    Ok(())
}

#[workflow]
async fn stumbling(steps: u32) -> Result<u32> {
    for at in 0..steps {
        stumble(at).await?;
    }
    Ok(steps)
}

#[tokio::test]
async fn a_run_that_gets_further_every_time_is_never_parked() {
    let (ledger, stones) = (Ledger::shared(), Arc::new(Stones::default()));
    let harmless = Arc::new(AtomicBool::new(false));
    let mut store = MemoryStore::new();
    let mut crashes = 0;
    loop {
        let living = async {
            let builder = engine(&ledger, &store, &harmless).resource_arc(stones.clone());
            let engine = builder.open_with(store.clone()).await.expect("opens");
            let run = engine.start(stumbling(12)).key("s").await.expect("starts");
            run.result().await
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            result = living => {
                assert_eq!(result.expect("ends well"), 12);
                break;
            }
        }
        crashes += 1;
        store = store.reopen(Surviving::Synced);
    }
    assert_eq!(crashes, 12);
    assert_eq!(marks(&store).await, 0);
}

#[workflow]
async fn waiting() -> Result<u32> {
    act("asked").await?;
    wait_for::<u32>("answer").await
}

#[tokio::test]
async fn runs_that_only_wait_carry_no_mark_however_often_the_process_dies() {
    let ledger = Ledger::shared();
    let harmless = Arc::new(AtomicBool::new(true));
    let mut store = MemoryStore::new();
    let mut last = None;
    for _ in 0..8 {
        let opened = engine(&ledger, &store, &harmless)
            .evict_after(None)
            .open_with(store.clone());
        let engine = opened.await.expect("opens");
        let run = engine.start(waiting()).key("w").await.expect("starts");
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(marks(&store).await, 0, "it has come to its wait");
        assert_eq!(run.status().await.expect("is there"), RunStatus::Active);
        drop(engine);
        store = store.reopen(Surviving::Synced);
        last = Some(run.id());
    }
    let opened = engine(&ledger, &store, &harmless).open_with(store.clone());
    let engine = opened.await.expect("opens");
    let run = engine.run::<waiting>(last.expect("was started")).await;
    let run = run.expect("is there");
    run.signal("answer", &5_u32).await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), 5);
}

#[step]
async fn for_ever() -> Result<()> {
    std::future::pending().await
}

#[workflow]
async fn endless() -> Result<()> {
    for_ever().await
}

#[tokio::test]
async fn an_orderly_stop_never_counts_and_takes_all_marks_away() {
    let mut store = MemoryStore::new();
    let open = |store: &MemoryStore| {
        Engine::builder()
            .register::<endless>()
            .open_with(store.clone())
    };
    for round in 0..10 {
        let engine = open(&store).await.expect("opens");
        let run = engine.start(endless()).key("e").await.expect("starts");
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(run.status().await.expect("is there"), RunStatus::Active);
        if round % 2 == 0 {
            drop(engine);
            store = store.reopen(Surviving::Synced);
            continue;
        }
        assert_eq!(marks(&store).await, 1, "the process died under it");
        let stopping = engine.shutdown().grace(Duration::ZERO);
        stopping.await.expect("stops");
        store = store.reopen(Surviving::Synced);
        assert_eq!(marks(&store).await, 0);
    }
}

#[tokio::test]
async fn suspects_that_wait_for_their_turn_can_be_terminated_paused_and_shut_down() {
    let mut store = MemoryStore::new();
    let open = |store: &MemoryStore| {
        Engine::builder()
            .register::<endless>()
            .open_with(store.clone())
    };
    let mut runs = Vec::new();
    for _ in 0..3 {
        let engine = open(&store).await.expect("opens");
        for number in 0..4 {
            let key = format!("e{number}");
            let run = engine.start(endless()).key(key.as_str()).await;
            runs.push(run.expect("starts").id());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        drop(engine);
        store = store.reopen(Surviving::Synced);
    }
    let engine = open(&store).await.expect("opens");
    tokio::time::sleep(Duration::from_millis(2)).await;
    let limit = Duration::from_secs(5);
    for run in &runs[..4] {
        let status = engine.status(*run).await.expect("is there");
        assert_eq!(status, RunStatus::Active);
    }
    let waiting = runs[3];
    let paused = tokio::time::timeout(limit, engine.pause(waiting)).await;
    paused.expect("does not hang").expect("pauses");
    let ended = tokio::time::timeout(limit, engine.terminate(runs[2]).into_future()).await;
    ended.expect("does not hang").expect("terminates");
    let stopping = engine.shutdown().grace(Duration::from_millis(100));
    let stopped = tokio::time::timeout(limit, stopping.into_future()).await;
    stopped.expect("does not hang").expect("stops");
    assert_eq!(marks(&store.reopen(Surviving::Synced)).await, 0);
}
