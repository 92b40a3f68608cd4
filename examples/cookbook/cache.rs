//! An expensive question to an API: asked once for all runs, by a hash of the request, for as long as the answer is good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::testing::{TestEngine, assert_audit_clean};
use workflow_runtime::{Key, Result, get_step_metadata, step, workflow};

use super::world::Service;

const HOUR: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Query {
    path: String,
    parameters: BTreeMap<String, String>,
}

#[step(effect = "read", timeout = "30s")]
async fn ask(#[resource] api: &Service, query: &Query) -> Result<usize> {
    // The id is the key's, not the call's: whoever takes over from a call that failed asks under the same one.
    Ok(api.act(get_step_metadata().step_id, &query.path))
}

#[workflow]
async fn report(query: Query) -> Result<usize> {
    ask(&query)
        .idempotency_key(Key::hash(&query))
        .shared(HOUR)
        .await
}

fn query(path: &str) -> Query {
    let pairs = [("from", "EUR"), ("to", "USD")];
    Query {
        path: path.into(),
        parameters: pairs
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
    }
}

/// Makes eight reports at once, and others later.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<report>();
    let api = Arc::new(Service::default());
    let builder = TestEngine::builder()
        .register::<report>()
        .resource_arc(api.clone());
    let engine = builder.open().await?;

    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(engine.start(report(query("/rates"))).await?);
    }
    for run in &runs {
        assert_eq!(run.result().await?, 1);
    }
    assert_eq!(api.asked(), 1, "one asked, the others waited for it");

    engine.advance(HOUR / 2).await;
    engine
        .start(report(query("/rates")))
        .await?
        .result()
        .await?;
    assert_eq!(api.asked(), 1, "the answer is still good");
    engine.start(report(query("/fees"))).await?.result().await?;
    assert_eq!(api.asked(), 2, "another request is another key");

    engine.advance(HOUR).await;
    let later = engine.start(report(query("/rates"))).await?;
    assert_eq!(
        later.result().await?,
        3,
        "a new answer, not the old one under the old id"
    );
    assert_eq!(api.asked(), 3);
    Ok("11 reports, the API was asked 3 times".into())
}
