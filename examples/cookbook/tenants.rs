//! Tenants: the same key of two tenants is two keys.

use std::path::Path;
use std::sync::Arc;

use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{
    Engine, EngineError, Error, Key, Result, RunHandle, get_step_metadata, step, workflow,
};

use super::world::Service;

#[step(effect = "payment", timeout = "30s")]
async fn charge(#[resource] bank: &Service, cents: u64) -> Result<usize> {
    let meta = get_step_metadata();
    Ok(bank.act(meta.step_id, format!("{} {cents}", meta.namespace)))
}

#[workflow(key_ttl = "90d")]
async fn pay(cents: u64) -> Result<usize> {
    charge(cents).await
}

/// Opens the engine of a tenant: a namespace, in a directory of its own.
async fn open(dir: &Path, tenant: &str, bank: &Arc<Service>) -> Result<Engine> {
    let engine = Engine::builder()
        .namespace(tenant)
        .register::<pay>()
        .resource_arc(bank.clone())
        .open(dir.join(tenant))
        .await?;
    Ok(engine)
}

async fn start(engine: &Engine, cents: u64) -> Result<RunHandle<pay>> {
    let run = engine
        .start(pay(cents))
        .key(Key::business("order", 7))
        .await?;
    run.result().await?;
    Ok(run)
}

/// Has two tenants pay for their order number seven, and restarts them in between.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<pay>();
    let dir = tempfile::tempdir()?;
    let bank = Arc::new(Service::default());
    let mut seen = Vec::new();
    for _ in 0..2 {
        let ada = open(dir.path(), "ada", &bank).await?;
        let bob = open(dir.path(), "bob", &bank).await?;
        // Their own amounts: among one tenant's keys this were a conflict.
        let (of_ada, of_bob) = (start(&ada, 500).await?, start(&bob, 900).await?);
        assert_ne!(of_ada.id(), of_bob.id());
        let foreign = bob.status(of_ada.id()).await;
        assert!(
            matches!(foreign, Err(EngineError::UnknownRun(_))),
            "it is not theirs to see"
        );
        seen.push((of_ada.id(), of_bob.id()));
        ada.shutdown().await?;
        bob.shutdown().await?;
    }
    assert_eq!(seen[0], seen[1], "the same runs after a restart");
    assert_eq!(bank.ledger(), ["ada 500", "bob 900"]);

    // One engine for all: the tenant is a part of the key, or the scope of the guard's.
    let shared = open(dir.path(), "shared", &bank).await?;
    for tenant in ["ada", "bob"] {
        let key = || Key::of((tenant, "order", 7));
        let run = shared.start(pay(tenant.len() as u64)).key(key()).await?;
        let again = shared.start(pay(tenant.len() as u64)).key(key()).await?;
        assert_eq!(run.id(), again.id());
        run.result().await?;
        for _ in 0..2 {
            let once = shared.once(Key::business("invoice", 7)).scope(tenant);
            let whose = once
                .run(|| async { Ok::<_, Error>(tenant.to_owned()) })
                .await?;
            assert_eq!(whose, tenant);
        }
    }
    shared.shutdown().await?;
    assert_eq!(bank.ledger().len(), 4);
    Ok("order 7 of two tenants, two charges, also after a restart".into())
}
