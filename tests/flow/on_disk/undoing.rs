//! Undoing and trying again on a disk: what earlier passes did is found again in the archive, and families are taken
//! up together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use workflow_runtime::journal::Event;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, checkpoint, step, wait_for,
    workflow,
};
use workflow_tests::Ledger;

use super::{BOTH, Disk, until};

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(60);

/// Takes and gives more than the store keeps in one value.
#[step(undo = release)]
async fn reserve(#[resource] ledger: &Ledger, room: u32, note: String) -> Result<String> {
    ledger.act(&format!("reserve {room}"));
    Ok(note)
}

#[step]
async fn release(#[resource] ledger: &Ledger, room: u32, note: String, given: Option<String>) {
    let known = given.map(|given| given == note);
    ledger.act(&format!("release {room} {known:?}"));
}

#[workflow]
async fn touring(night: u32, nights: u32) -> Result<u32> {
    if night == nights {
        wait_for::<()>("pay").await?;
        return Err(Error::fatal("no money"));
    }
    reserve(night, format!("{night} ").repeat(1_500)).await?;
    checkpoint(&(night + 1, nights)).await
}

fn engine() -> EngineBuilder {
    Engine::builder()
        .register::<touring>()
        .register::<parent>()
        .register::<child>()
        .evict_after(Duration::from_millis(2))
}

#[tokio::test]
async fn the_steps_of_all_passes_are_undone_once_and_in_order_through_stops() {
    const NIGHTS: u32 = 40;
    for stop in BOTH {
        for cancelled in [false, true] {
            let disk = Disk::new(engine);
            let mut engine = disk.open().await;
            let run = engine.start(touring(0, NIGHTS)).key("tour").await;
            let run = run.expect("starts").id();
            for nights in [5, 20, NIGHTS as usize] {
                until("it has come so far", async || {
                    disk.ledger.effects().len() >= nights
                })
                .await;
                engine = disk.restart(engine, stop).await;
            }
            // The archiver has nothing left to do: it waits for a second at most.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            match cancelled {
                true => engine.cancel(run).await.expect("asks"),
                false => drop(engine.signal(run, "pay", &()).await.expect("sends")),
            }
            for undone in [3, 25] {
                until("so much is undone", async || {
                    disk.ledger.effects().len() >= NIGHTS as usize + undone
                })
                .await;
                engine = disk.restart(engine, stop).await;
            }
            let handle = engine.run::<touring>(run).await.expect("is there");
            let result = timeout(LONG, handle.result()).await.expect("ends");
            match result {
                Err(RunError::Cancelled { .. }) => assert!(cancelled),
                Err(RunError::Failed(_)) => assert!(!cancelled),
                other => panic!("{other:?}"),
            }
            let released = (0..NIGHTS).rev().map(|n| format!("release {n} Some(true)"));
            let released: Vec<_> = released.collect();
            let done = disk.ledger.in_order();
            assert_eq!(done[NIGHTS as usize..], released, "{stop:?} {cancelled}");
            disk.is_sound(engine).await;
        }
    }
}

static MENDED: AtomicBool = AtomicBool::new(false);

#[step(max_attempts = 1)]
async fn shaky(#[resource] ledger: &Ledger, what: String) -> Result<String> {
    ledger.act(&what);
    match MENDED.load(Ordering::SeqCst) {
        true => Ok(what),
        false => Err(Error::fatal("the world is broken")),
    }
}

#[workflow]
async fn child() -> Result<String> {
    shaky("in the child".into()).await?;
    wait_for::<String>("answer").await
}

#[workflow]
async fn parent() -> Result<String> {
    child().await
}

#[tokio::test]
async fn a_family_is_tried_again_together_through_stops() {
    for stop in BOTH {
        MENDED.store(false, Ordering::SeqCst);
        let disk = Disk::new(engine);
        let mut engine = disk.open().await;
        let run = engine.start(parent()).key("p").await.expect("starts");
        run.result().await.expect_err("fails");
        let run = run.id();
        MENDED.store(true, Ordering::SeqCst);
        engine = disk.restart(engine, stop).await;
        engine.retry(run).await.expect("is retried");
        engine = disk.restart(engine, stop).await;
        let again = engine.retry(run).await;
        assert!(
            matches!(again, Err(EngineError::NotFailed { .. })),
            "{again:?}"
        );
        let page = engine.runs().workflow("child").await.expect("lists");
        let [child] = &page.runs[..] else {
            panic!("{:?}", page.runs);
        };
        until("the child was taken up", async || {
            let journal = engine.journal(child.run).await.expect("reads");
            let mut events = journal.records().iter().map(|record| &record.event);
            events.any(|event| matches!(event, Event::RunReopened(_)))
        })
        .await;
        engine = disk.restart(engine, stop).await;
        engine
            .signal(child.run, "answer", "yes")
            .await
            .expect("sends");
        let handle = engine.run::<parent>(run).await.expect("is there");
        let result = timeout(LONG, handle.result()).await.expect("ends");
        assert_eq!(result.expect("ends well"), "yes");
        assert_eq!(disk.ledger.effects(), ["in the child"]);
        disk.is_sound(engine).await;
    }
}
