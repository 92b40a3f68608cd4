//! What an order does when things go wrong: crashes at every write, duplicates, other orders, other clocks, odd input.

use examples::shop::orders::{Order, checkout};
use proptest::prelude::*;
use workflow_runtime::Result;
use workflow_runtime::testing::{
    Ledger, TestEngine, check_invariants, crash_everywhere, deliver_duplicates, strategies,
};

use crate::{engine, granted, shop, tea, yacht};

#[tokio::test]
async fn an_order_is_charged_and_sent_once_whenever_the_process_dies() {
    let report = crash_everywhere(|| checkout(yacht()))
        .engine(shop)
        .drive(async |_engine, run| {
            run.signal("approval", &granted()).key("click-1").await?;
            Ok(())
        })
        .two_crashes()
        .run()
        .await;
    assert!(report.writes() >= 8, "{report}");
}

#[tokio::test]
async fn an_order_that_comes_three_times_is_one() {
    deliver_duplicates(|| checkout(yacht()))
        .engine(shop)
        .drive(async |_engine, run| {
            run.signal("approval", &granted()).key("click-1").await?;
            Ok(())
        })
        .run()
        .await;
}

#[tokio::test]
async fn charge_and_mail_may_end_in_any_order_and_the_clock_may_jump() -> Result<()> {
    for seed in 0..8 {
        let ledger = Ledger::honouring_keys();
        let engine = shop(TestEngine::builder(), &ledger)
            .shuffle_completions(seed)
            .with_clock_jumps(seed)
            .open()
            .await?;
        let run = engine.start(checkout(tea())).await?;
        assert_eq!(run.result().await?.parcel, "parcel-7");
        ledger.assert_each_once();
        check_invariants(&engine).await?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_name_and_any_amount_is_an_order(customer in strategies::hostile_text(), cents in 0..100_000_u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let receipt = runtime.block_on(async {
            let engine = engine().open().await?;
            let order = Order { customer, cents, ..tea() };
            let run = engine.start(checkout(order)).await?;
            Ok::<_, workflow_runtime::Error>(run.result().await?.receipt)
        });
        prop_assert_eq!(receipt.unwrap().cents, cents);
    }
}
