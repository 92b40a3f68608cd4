//! How long a key is remembered: from the end of its run for as long as somebody may still ask again.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::testing::{TestEngine, assert_audit_clean};
use workflow_runtime::{Error, Key, Result, RunHandle, get_step_metadata, sleep, step, workflow};

use super::world::Service;

const DAY: Duration = Duration::from_secs(86_400);

#[step(effect = "payment", timeout = "30s")]
async fn charge(#[resource] bank: &Service, cents: u64) -> Result<usize> {
    Ok(bank.act(get_step_metadata().step_id, cents.to_string()))
}

/// Money: as long as the other side and the accountants take.
#[workflow(key_ttl = "90d")]
async fn pay(cents: u64) -> Result<usize> {
    let receipt = charge(cents).await?;
    sleep(10 * DAY).await; // until it is settled
    Ok(receipt)
}

async fn start(engine: &TestEngine) -> Result<RunHandle<pay>> {
    Ok(engine
        .start(pay(500))
        .key(Key::business("payment", 7))
        .await?)
}

/// Lets a hundred days pass.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<pay>();
    let bank = Arc::new(Service::default());
    let builder = TestEngine::builder()
        .register::<pay>()
        .resource_arc(bank.clone());
    let engine = builder.open().await?;

    let run = start(&engine).await?;
    run.result().await?;
    engine.advance(89 * DAY).await; // since its end; 99 days since its start
    assert_eq!(start(&engine).await?.id(), run.id());
    assert_eq!(bank.asked(), 1);

    engine.advance(2 * DAY).await;
    let next = start(&engine).await?;
    assert_ne!(next.id(), run.id(), "the key names a new run");
    next.result().await?;
    assert_eq!(bank.ledger(), ["500", "500"], "with step ids of its own");

    // Work that is no workflow has a time to live as well.
    let once = || {
        let once = engine.once(Key::business("invoice", 7)).ttl(DAY);
        once.run(|| async { Ok::<_, Error>(bank.act(format!("{:?}", engine.now()), "invoice")) })
    };
    let first = once().await?;
    engine.advance(DAY / 2).await;
    assert_eq!(once().await?, first);
    engine.advance(DAY).await;
    assert_ne!(once().await?, first);
    Ok("the same run for 90 days after its end, then a new one".into())
}
