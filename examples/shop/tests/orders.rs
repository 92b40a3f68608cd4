//! What an order does: steps stubbed and failed, time skipped, runs driven.

use std::time::Duration;

use examples::shop::orders::{
    PATIENCE, REVIEW_AFTER, charge, checkout, deliver, mail, refund, release, reserve, ship,
};
use examples::shop::outside::Receipt;
use workflow_runtime::testing::{Ledger, TestEngine, assert_audit_clean};
use workflow_runtime::{Error, Result, RunError};

use crate::{engine, granted, shop, tea, yacht};

#[tokio::test]
async fn a_customer_is_asked_for_a_review_two_weeks_later() -> Result<()> {
    let engine = engine().open().await?;
    let run = engine.start(checkout(tea())).await?;
    assert_eq!(run.result().await?.parcel, "parcel-7");
    assert!(engine.elapsed() >= REVIEW_AFTER);
    engine.calls::<mail>().assert_called_times(2);
    Ok(())
}

#[tokio::test]
async fn a_bank_that_is_down_is_asked_again_under_the_same_key() -> Result<()> {
    let engine = engine()
        .fail_times::<charge>(2, Error::new("the bank is down"))
        .open()
        .await?;
    let run = engine.start(checkout(tea())).await?;
    run.result().await?;
    let calls = engine.calls::<charge>();
    assert_eq!(calls.assert_called_once().attempts().len(), 3);
    calls.assert_inputs([(7, "ada".to_owned(), 1_250)]);
    Ok(())
}

#[tokio::test]
async fn a_declined_card_is_not_tried_again_and_the_items_go_back() -> Result<()> {
    let ledger = Ledger::honouring_keys();
    let engine = shop(TestEngine::builder(), &ledger)
        .stub::<charge>(|_| Err(Error::new("declined: no money")))
        .open()
        .await?;
    let run = engine.start(checkout(tea())).await?;
    assert!(matches!(run.result().await, Err(RunError::Failed(_))));
    let calls = engine.calls::<charge>();
    assert_eq!(calls.assert_called_once().attempts().len(), 1);
    engine.calls::<release>().assert_called_once();
    engine.calls::<refund>().assert_called_once(); // it finds nothing to pay back
    engine.calls::<ship>().assert_not_called();
    ledger.assert_each_once();
    Ok(())
}

#[tokio::test]
async fn a_slow_bank_runs_into_the_time_limit_and_is_asked_again() -> Result<()> {
    let engine = engine()
        .delay::<charge>(Duration::from_secs(11))
        .open()
        .await?;
    let run = engine.start(checkout(tea())).await?;
    assert!(run.result().await.is_err());
    let calls = engine.calls::<charge>();
    assert_eq!(calls.assert_called_once().attempts().len(), 5);
    Ok(())
}

#[tokio::test]
async fn a_large_order_goes_out_when_somebody_approves() -> Result<()> {
    let engine = engine().open().await?;
    let run = engine.start(checkout(yacht())).await?;
    engine.until_waiting_for_signal(&run, "approval").await;
    engine.calls::<charge>().assert_not_called();
    run.signal("approval", &granted()).await?;
    assert_eq!(run.result().await?.receipt.cents, 2_500_000);
    Ok(())
}

#[tokio::test]
async fn a_large_order_that_nobody_approves_is_given_up_after_two_days() -> Result<()> {
    let engine = engine().open().await?;
    let run = engine.start(checkout(yacht())).await?;
    let ended = run.result().await;
    assert!(
        matches!(&ended, Err(RunError::Aborted { reason }) if reason == "nobody approved"),
        "{ended:?}"
    );
    assert!(engine.elapsed() >= PATIENCE);
    engine.calls::<release>().assert_called_once();
    Ok(())
}

#[tokio::test]
async fn the_parcel_is_a_run_of_its_own() -> Result<()> {
    let engine = engine()
        .delay::<ship>(Duration::from_secs(20))
        .open()
        .await?;
    let run = engine.start(checkout(tea())).await?;
    let parcel = engine.child::<deliver>(&run).await;
    assert_eq!(parcel.result().await?, "parcel-7");
    Ok(())
}

#[tokio::test]
async fn the_course_of_an_order_needs_nobody_outside() -> Result<()> {
    let engine = TestEngine::builder()
        .register::<checkout>()
        .register::<deliver>()
        .refuse_unstubbed()
        .stub::<reserve>(|_| Ok(()))
        .stub::<charge>(|(order, _customer, cents)| {
            let charge = format!("charge-{order}");
            Ok(Receipt { charge, cents })
        })
        .stub::<ship>(|(order, _items)| Ok(format!("parcel-{order}")))
        .stub::<mail>(|_| Ok(()))
        .open()
        .await?;
    let run = engine.start(checkout(tea())).await?;
    assert_eq!(run.result().await?.receipt.charge, "charge-7");
    Ok(())
}

#[test]
fn nothing_in_an_order_can_happen_twice_unguarded() {
    assert_audit_clean::<checkout>();
}
