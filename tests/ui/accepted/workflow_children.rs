//! Workflows in workflows: awaited, joined, raced, started, with keys; signals and hooks as futures and streams.

use std::time::Duration;

use futures::future::{join_all, select};
use futures::{StreamExt as _, join};
use workflow_runtime::{
    Engine, Result, hook, publish, signals, start_child, timeout, wait_for, workflow,
};

#[workflow]
async fn ship(item: String, _weight: u32) -> Result<u32> {
    Ok(item.len() as u32)
}

#[workflow]
async fn plain(n: u32) -> u32 {
    n
}

#[workflow]
async fn order(items: Vec<String>) -> Result<u32> {
    let first = ship("first".into(), 1).await?;
    let (second, third) = join!(ship("second".into(), 2), async {
        ship("third".into(), 3).key("third").await
    });
    let all = join_all(items.iter().map(|item| ship(item.clone(), 1).key(item))).await;
    let limited = timeout(Duration::from_secs(1), plain(3)).await.unwrap_or(0);
    let _ = select(plain(1), ship("raced".into(), 1).detached()).await;
    let started = start_child(plain(7));
    publish("started", &started.id().to_string());
    let approved = wait_for::<bool>("approved").await?;
    let merged: Vec<Result<u32>> = futures::stream::select(
        signals::<u32>("more"),
        hook::<u32>("token").await?,
    )
    .take(2)
    .collect()
    .await;
    let mut callback = hook::<String>("callback").await?;
    callback.next().await?;
    callback.close().await?;
    let more = merged.into_iter().sum::<Result<u32>>()?;
    let all = all.into_iter().sum::<Result<u32>>()?;
    Ok(first + second? + third? + all + limited + started.await + u32::from(approved) + more)
}

fn main() {
    let _ = Engine::builder()
        .register::<order>()
        .register::<ship>()
        .register::<plain>();
}
