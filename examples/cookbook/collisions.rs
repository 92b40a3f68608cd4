//! A key that is used again: completed, under way, failed, or with something else in mind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{
    DuplicateKind, Engine, EngineError, Error, Key, OnConflict, OnFailure, Result,
    get_step_metadata, step, workflow,
};

use super::world::Service;

#[step(effect = "payment", timeout = "30s")]
async fn charge(#[resource] bank: &Bank, cents: u64) -> Result<usize> {
    if bank.is_closed.load(Ordering::Relaxed) {
        return Err(Error::fatal("the bank is closed"));
    }
    Ok(bank
        .service
        .act(get_step_metadata().step_id, cents.to_string()))
}

#[workflow(key_ttl = "90d")]
async fn pay(cents: u64) -> Result<usize> {
    charge(cents).await
}

#[derive(Default)]
struct Bank {
    service: Service,
    is_closed: AtomicBool,
}

/// Uses keys again in every state that they can be in.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<pay>();
    let bank = Arc::new(Bank::default());
    let builder = Engine::builder()
        .register::<pay>()
        .resource_arc(bank.clone());
    let engine = builder.open_in_memory().await?;
    let key = Key::business("payment", 7);

    // Under way or completed: the same input is the same run, and the same result.
    let run = engine.start(pay(500)).key(&key).await?;
    let beside = engine.start(pay(500)).key(&key).await?;
    assert_eq!(run.result().await?, beside.result().await?);
    let again = engine.start(pay(500)).key(&key).await?;
    assert_eq!(again.id(), run.id());
    assert_eq!(
        run.duplicates().await?.count(DuplicateKind::Start),
        2,
        "on record"
    );

    // Another input is a mistake, unless somebody says otherwise.
    match engine.start(pay(900)).key(&key).await {
        Err(EngineError::Conflict { run: first, .. }) => assert_eq!(first, run.id()),
        other => return Err(Error::new(format!("no conflict: {:?}", other.is_ok()))),
    }
    let existing = engine
        .start(pay(900))
        .key(&key)
        .on_conflict(OnConflict::ReturnExisting)
        .await?;
    assert_eq!(existing.id(), run.id());
    assert_eq!(bank.service.ledger(), ["500"]);

    // Failed: taken up again, with the same step ids, so that whatever had happened is known outside.
    bank.is_closed.store(true, Ordering::Relaxed);
    let kept = engine
        .start(pay(7))
        .key(Key::business("payment", 8))
        .await?;
    assert!(kept.result().await.is_err());
    bank.is_closed.store(false, Ordering::Relaxed);
    kept.retry().await?;
    kept.result().await?;

    // Failed, and nothing had happened: the next start may begin anew, with ids of its own.
    bank.is_closed.store(true, Ordering::Relaxed);
    let released = || {
        let start = engine.start(pay(9)).key(Key::business("payment", 9));
        start.on_failure(OnFailure::Release)
    };
    let failed = released().await?;
    assert!(failed.result().await.is_err());
    bank.is_closed.store(false, Ordering::Relaxed);
    let next = released().await?;
    assert_ne!(next.id(), failed.id());
    next.result().await?;

    assert_eq!(bank.service.ledger(), ["500", "7", "9"]);
    engine.shutdown().await?;
    Ok("8 starts under three keys, three charges".into())
}
