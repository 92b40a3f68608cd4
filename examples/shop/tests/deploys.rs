//! What a deploy must not break: the shape of the workflows, and the runs that were recorded.
//!
//! `SHOP_RECORD=1 cargo test -p examples --test shop` records the journals anew, `WORKFLOWS_LOCK=update` the lock. Both files are
//! committed, and both are only written when somebody says so.

use std::path::{Path, PathBuf};

use examples::shop::orders::{checkout, deliver};
use workflow_runtime::testing::{Lock, Replayer, TestEngine};
use workflow_runtime::{Diagram, Error, Result, RunId};

use crate::{engine, granted, tea, yacht};

fn here(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/shop")).join(name)
}

/// Writes a run's journal, without the customer.
async fn record(engine: &TestEngine, run: RunId, name: &str) -> Result<()> {
    let file = engine.export(run).await?.redact_fields(["customer"]);
    file.write(here("journals").join(format!("{name}.journal.json")))?;
    Ok(())
}

#[tokio::test]
async fn recorded_orders_are_written_when_they_are_asked_for() -> Result<()> {
    if std::env::var_os("SHOP_RECORD").is_none() {
        return Ok(());
    }
    let engine = engine().open().await?;
    let run = engine.start(checkout(yacht())).key("approved").await?;
    run.signal("approval", &granted()).await?;
    run.result().await?;
    record(&engine, run.id(), "approved").await?;
    let run = engine.start(checkout(yacht())).key("waiting").await?;
    engine.until_waiting_for_signal(&run, "approval").await;
    record(&engine, run.id(), "waiting").await?;
    let run = engine.start(checkout(yacht())).key("given-up").await?;
    run.result().await.expect_err("nobody approves");
    record(&engine, run.id(), "given-up").await
}

#[test]
fn runs_under_way_survive_this_code() {
    let recorded = Replayer::new()
        .register::<checkout>()
        .register::<deliver>()
        .dir(here("journals"));
    Lock::new()
        .workflow::<checkout>()
        .workflow::<deliver>()
        .assert_compatible(here("workflows.lock"), recorded);
}

#[tokio::test]
async fn a_picture_shows_how_far_an_order_has_come() -> Result<()> {
    let engine = engine()
        .stub::<examples::shop::orders::charge>(|_| Err(Error::new("declined")))
        .open()
        .await?;
    let run = engine.start(checkout(tea())).await?;
    run.result().await.expect_err("the card is declined");
    let plain = Diagram::of::<checkout>().mermaid();
    let drawn = engine.diagram(run.id()).await?.mermaid();
    assert!(plain.contains("charge") && drawn.contains("charge"));
    assert!(
        drawn.contains("failed") && !plain.contains("failed"),
        "{drawn}"
    );
    Ok(())
}
