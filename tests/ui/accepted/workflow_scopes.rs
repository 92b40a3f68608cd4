//! Blocks and async closures keep `?`, `return`, labels, inference and Send-ness.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

use std::collections::HashMap;

use futures::stream::{FuturesUnordered, StreamExt};

#[step]
async fn fetch(id: u64) -> Result<String, String> {
    Ok(id.to_string())
}

async fn with<R>(body: impl AsyncFn(u64) -> Result<R, String>) -> Result<R, String> {
    body(1).await?;
    body(2).await
}

#[workflow]
async fn everything(ids: Vec<u64>) -> Result<usize, String> {
    let early = async {
        if ids.is_empty() {
            return Ok(0);
        }
        let text = fetch(1).await?;
        Ok::<_, String>(text.len())
    };
    let (a, b) = futures::join!(early, async move { fetch(2).await.map(|text| text.len()) });

    let total = 'search: {
        for id in &ids {
            let found = async { fetch(*id).await }.await?;
            if found == "7" {
                break 'search 7;
            }
        }
        0
    };

    let mut unordered: FuturesUnordered<_> = ids.iter().map(|id| async move { fetch(*id).await }).collect();
    let mut seen = HashMap::new();
    while let Some(text) = unordered.next().await {
        *seen.entry(text?).or_insert(0) += 1;
    }

    let owned = String::from("x");
    let lending = async |id| {
        let text = fetch(id).await?;
        Ok::<_, String>(text + &owned)
    };
    let lent = lending(1).await? + &lending(2).await?;
    let moved = with(async move |id| fetch(id).await.map(|text| text.len() + owned.len())).await?;
    let boxed = async |id: u64| -> Result<Box<dyn ToString + Send>, String> {
        if id == 0 {
            return Ok(Box::new(0));
        }
        fetch(id).await?;
        Ok(Box::new("x"))
    };
    let text = boxed(1).await?.to_string() + &boxed(0).await?.to_string();

    let raced = tokio::select! {
        biased;
        text = fetch(1) => text?,
        text = async { fetch(2).await } => text?,
    };
    Ok(a? + b? + total + seen.len() + lent.len() + moved + text.len() + raced.len())
}

fn main() {
    let _call = || everything(vec![]);
}
