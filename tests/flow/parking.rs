//! Parking: a run that cannot go on without help waits for it, and disturbs nobody.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{Engine, Result, RunError, sleep, step, workflow};
use workflow_tests::Ledger;

#[step]
async fn reserve(#[resource] ledger: &Ledger, item: &str) -> Result<String> {
    ledger.act("reserve");
    Ok(format!("reserved {item}"))
}

mod needs_more {
    use super::*;

    pub(super) struct Mailer;

    #[step]
    async fn mail(#[resource] ledger: &Ledger, #[resource] _mailer: &Mailer) -> Result<()> {
        ledger.act("mail");
        Ok(())
    }

    #[workflow]
    pub(super) async fn welcome() -> Result<u8> {
        reserve("seat").await?;
        mail().await?;
        Ok(1)
    }
}

#[tokio::test]
async fn a_missing_resource_parks_with_its_type_and_goes_on_when_it_is_given() {
    let (ledger, store) = (Ledger::shared(), MemoryStore::new());
    let builder = || {
        Engine::builder()
            .register::<needs_more::welcome>()
            .resource_arc(ledger.clone())
    };
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let run = engine.start(needs_more::welcome()).await.expect("starts");
    let Err(RunError::Parked(parking)) = run.result().await else {
        panic!("is parked");
    };
    assert_eq!(parking.reason, ParkReason::MissingResource);
    assert!(
        parking.report.contains("needs_more::Mailer"),
        "{}",
        parking.report
    );
    assert_eq!(ledger.effects(), ["reserve"]);
    drop(engine);

    let engine = builder()
        .resource(needs_more::Mailer)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    let run = engine
        .run::<needs_more::welcome>(run.id())
        .await
        .expect("there");
    assert_eq!(run.result().await.expect("ends well"), 1);
    assert_eq!(ledger.effects(), ["mail", "reserve"]);
    assert_eq!(ledger.asked(), 2);
}

#[workflow]
async fn poisoned(panics: bool) -> Result<u32> {
    reserve("a").await?;
    assert!(!panics, "poison");
    sleep(Duration::from_millis(5)).await;
    reserve("b").await?;
    Ok(7)
}

#[tokio::test]
async fn a_panicking_run_never_disturbs_the_others() {
    let engine = Engine::builder()
        .register::<poisoned>()
        .resource_arc(Ledger::shared())
        .open_in_memory()
        .await
        .expect("opens");
    let mut runs = Vec::new();
    for n in 0..20 {
        runs.push((n, engine.start(poisoned(n % 2 == 0)).await.expect("starts")));
    }
    for (n, run) in runs {
        match run.result().await {
            Ok(7) if n % 2 == 1 => {}
            Err(RunError::Parked(parking)) if n % 2 == 0 => {
                assert_eq!(parking.reason, ParkReason::Panicked);
                let detail = engine.parked_detail(run.id()).await.expect("reads");
                assert!(detail.expect("the message").contains("poison"));
            }
            other => panic!("run {n}: {other:?}"),
        }
    }
}

#[step]
async fn pass(#[resource] gate: &tokio::sync::Semaphore) -> Result<()> {
    gate.acquire().await?.forget();
    Ok(())
}

#[workflow]
async fn behind_a_gate() -> Result<u32> {
    pass().await?;
    panic!("poison");
}

#[tokio::test]
async fn waiting_for_a_parked_run_goes_on_through_its_resumption() {
    let store = MemoryStore::new();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let engine = Engine::builder()
        .register::<behind_a_gate>()
        .resource_arc(gate.clone())
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(behind_a_gate()).await.expect("starts");
    let mut waiting = Box::pin(run.result());
    assert!(futures::poll!(&mut waiting).is_pending());
    gate.add_permits(1);
    assert!(matches!(run.result().await, Err(RunError::Parked(_))));
    // Taken up again before the first waiter looks: the run is driven, so the wait goes on.
    store.hold();
    engine.resume(run.id()).await.expect("resumes");
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    assert!(futures::poll!(&mut waiting).is_pending());
    store.release();
    assert!(matches!(waiting.await, Err(RunError::Parked(_))));
}
