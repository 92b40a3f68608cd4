//! Child workflows: runs of their own, whose ends come back.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use workflow_runtime::store::memory::{Fault, FaultPlan};
use workflow_runtime::{
    Engine, EngineBuilder, Error, Result, RunStatus, sleep, start_child, step, timeout, workflow,
};
use workflow_tests::{Ledger, survive};

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[workflow]
async fn child(name: String) -> Result<usize> {
    if name == "bad" {
        return Err(Error::fatal("a bad child"));
    }
    act(&name).await
}

#[workflow]
async fn parent(names: Vec<String>) -> Result<Vec<usize>> {
    let mut sizes = Vec::new();
    for name in &names {
        sizes.push(child(name.clone()).await.unwrap_or(0));
    }
    let all = names
        .iter()
        .map(|name| child(name.clone()).key(name.as_str()));
    for size in join_all(all).await {
        sizes.push(size.unwrap_or(0));
    }
    act("parent").await?;
    Ok(sizes)
}

#[workflow]
async fn fan_out(names: Vec<String>) -> Result<usize> {
    let ends = join_all(names.into_iter().map(child)).await;
    Ok(ends.into_iter().filter(Result::is_ok).count())
}

#[workflow]
async fn sleeper() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

#[workflow]
async fn impatient(detached: bool) -> Result<String> {
    let call = sleeper();
    let call = if detached { call.detached() } else { call };
    match timeout(Duration::from_millis(20), call).await {
        Ok(_) => Ok("done".into()),
        Err(elapsed) => Ok(elapsed.to_string()),
    }
}

#[workflow]
async fn starter() -> Result<String> {
    let started = start_child(sleeper());
    Ok(started.id().to_string())
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<child>()
        .register::<parent>()
        .register::<fan_out>()
        .register::<sleeper>()
        .register::<impatient>()
        .register::<starter>()
        .resource_arc(ledger.clone())
}

fn names() -> Vec<String> {
    ["ada", "bad", "caesar"].map(String::from).to_vec()
}

#[tokio::test]
async fn a_crash_at_any_write_changes_no_childs_result_or_effect() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || parent(names()), []).await;
    let sizes = result.expect("ends well");
    assert_eq!(sizes, [3, 0, 6, 3, 0, 6]);
    let effects = ledger.effects();
    assert_eq!(effects.len(), 5);
    for write in 0..store.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let (result, _) = survive(|| engine(&ledger), || parent(names()), [plan]).await;
            assert_eq!(result.expect("ends well"), sizes, "{write} {fault:?}");
            assert_eq!(ledger.effects(), effects, "{write} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_thousand_children_at_once_all_come_back() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let names: Vec<String> = (0..1_000).map(|n| format!("child {n}")).collect();
    let run = engine.start(fan_out(names)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 1_000);
    assert_eq!(ledger.effects().len(), 1_000);
}

async fn children_of(engine: &Engine, state: fn(&RunStatus) -> bool) -> bool {
    let page = engine.runs().workflow("sleeper").await.expect("lists");
    assert_eq!(page.runs.len(), 1);
    let status = engine.status(page.runs[0].run).await.expect("is there");
    state(&status)
}

#[tokio::test]
async fn a_dropped_child_is_cancelled_and_a_detached_one_goes_on() {
    for detached in [false, true] {
        let ledger = Ledger::shared();
        let engine = engine(&ledger).open_in_memory().await.expect("opens");
        let run = engine.start(impatient(detached)).await.expect("starts");
        assert_eq!(run.result().await.expect("ends"), "not done within 20ms");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let cancelled = children_of(&engine, |s| matches!(s, RunStatus::Cancelled)).await;
        assert_eq!(cancelled, !detached);
    }
}

#[tokio::test]
async fn a_started_child_outlives_its_parent() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(starter()).await.expect("starts");
    let id = run.result().await.expect("ends well");
    let page = engine.runs().workflow("sleeper").await.expect("lists");
    assert_eq!(page.runs[0].run.to_string(), id);
    assert!(children_of(&engine, |s| matches!(s, RunStatus::Active)).await);
}
