//! Signals that were acknowledged while a run failed: whoever tries it again finds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use workflow_runtime::store::Unread;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineError, Error, Result, RunId, Sent, signals, step, wait_for, workflow,
};
use workflow_tests::Ledger;

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct World {
    /// The step that fails goes on.
    goes_on: AtomicBool,
    works: AtomicBool,
}

/// Waits to be let on, and fails as long as the world does not work.
#[step(max_attempts = 1)]
async fn shaky(#[resource] ledger: &Ledger, #[resource] world: &World) -> Result<()> {
    ledger.act("shaky");
    while !world.goes_on.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    match world.works.load(Ordering::SeqCst) {
        true => Ok(()),
        false => Err(Error::fatal("broken")),
    }
}

/// Takes what comes in the order in which it comes, after something that fails.
#[workflow]
async fn listening() -> Result<Vec<u32>> {
    shaky().await?;
    let mut heard = Vec::new();
    let mut all = signals::<u32>("number");
    while heard.len() < 3 {
        heard.push(futures::StreamExt::next(&mut all).await.expect("endless")?);
    }
    wait_for::<u32>("end").await?;
    Ok(heard)
}

async fn open(store: &MemoryStore, world: &Arc<World>, ledger: &Arc<Ledger>) -> Engine {
    let builder = Engine::builder()
        .register::<listening>()
        .resource_arc(ledger.clone())
        .resource_arc(world.clone());
    builder.open_with(store.clone()).await.expect("opens")
}

/// Starts a run that fails while signals are on their way to it: they are acknowledged and it has not read them.
async fn failed_meanwhile(store: &MemoryStore, world: &Arc<World>, ledger: &Arc<Ledger>) -> RunId {
    let engine = open(store, world, ledger).await;
    let run = engine.start(listening()).await.expect("starts");
    while ledger.asked() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Its failure is written, and nobody has told it so. Signals come behind that, and before its end.
    store.hold();
    world.goes_on.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let send = |n: u32| {
        let (engine, run) = (engine.clone(), run.id());
        async move { engine.signal(run, "number", &n).key(n.to_string()).await }
    };
    let sending = tokio::spawn({
        let (first, second) = (send(0), send(1));
        async move { (first.await, second.await) }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.release();
    let (first, _) = sending.await.expect("does not panic");
    assert_eq!(first.expect("was acknowledged"), Sent::Accepted);
    let failed = timeout(LONG, run.result()).await.expect("ends");
    failed.expect_err("fails");
    let run = run.id();
    let kept = workflow_runtime::store::Store::notes(store, Unread::prefix(run), None, 10).await;
    assert!(!kept.expect("reads").is_empty(), "it had not read them");
    run
}

#[tokio::test]
async fn a_signal_that_was_acknowledged_when_a_run_failed_is_heard_when_it_is_tried_again() {
    for restart in [false, true] {
        let (mut store, world, ledger) = (MemoryStore::new(), Arc::default(), Ledger::shared());
        let run = failed_meanwhile(&store, &world, &ledger).await;
        if restart {
            store = store.reopen(Surviving::Synced);
        }
        world.works.store(true, Ordering::SeqCst);
        let engine = open(&store, &world, &ledger).await;
        // Whoever sends it again is told that it was sent: if it were lost, it would be lost for good.
        let again = engine.signal(run, "number", &0_u32).key("0").await;
        assert_eq!(again.expect("is known"), Sent::Duplicate);
        engine.retry(run).await.expect("is retried");
        // What is sent now comes behind what was sent before.
        for n in [1_u32, 2] {
            let sent = engine.signal(run, "number", &n).key(n.to_string()).await;
            sent.expect("is sent");
        }
        engine.signal(run, "end", &0_u32).await.expect("is sent");
        let handle = engine.run::<listening>(run).await.expect("is there");
        let heard = timeout(LONG, handle.result()).await.expect("hears it");
        assert_eq!(heard.expect("ends well"), [0, 1, 2], "restart: {restart}");
        let kept = workflow_runtime::store::Store::notes(&store, Unread::prefix(run), None, 10);
        assert_eq!(kept.await.expect("reads"), [], "once");
    }
}

/// Tries the failed run again, through one crash; gives how many writes that took.
async fn retried_through(plan: FaultPlan) -> u64 {
    let shown = format!("{plan:?}");
    let (store, world, ledger) = (MemoryStore::new(), Arc::default(), Ledger::shared());
    let run = failed_meanwhile(&store, &world, &ledger).await;
    world.works.store(true, Ordering::SeqCst);
    let mut store = store.reopen(Surviving::Synced);
    store.set_faults(plan);
    loop {
        let living = async {
            let engine = open(&store, &world, &ledger).await;
            match engine.retry(run).await {
                // The crash came after the retry was durable.
                Ok(()) | Err(EngineError::NotFailed { .. }) => {}
                Err(error) => panic!("{shown}: {error}"),
            }
            for (name, n) in [("number", 1_u32), ("number", 2), ("end", 0)] {
                let sent = engine.signal(run, name, &n).key(n.to_string()).await;
                let sent = sent.map(drop);
                let known = matches!(sent, Ok(()) | Err(EngineError::Ended(_)));
                assert!(known, "{shown}: {sent:?}");
            }
            let handle = engine.run::<listening>(run).await.expect("is there");
            let heard = timeout(LONG, handle.result()).await.expect("hears it");
            assert_eq!(heard.expect("ends well"), [0, 1, 2], "{shown}");
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => return store.writes(),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_the_retry_neither_loses_nor_doubles_it() {
    let writes = retried_through(FaultPlan::none()).await;
    assert!(
        writes >= 6,
        "{writes}: a retry, a step, three signals, an end"
    );
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            retried_through(FaultPlan::at(write, fault)).await;
        }
    }
}
