//! Step ids come from structure alone: what may change around a call without moving its id.

use std::time::{Duration, SystemTime};

use futures::join;
use workflow_runtime::journal::Journal;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore};
use workflow_runtime::{
    Engine, Error, Result, StepId, Workflow, WorkflowCall, get_step_metadata, now, random, scope,
    step, uuid, workflow,
};
use workflow_tests::{Ledger, ids_of, steps, survive};

#[step]
async fn pay(item: &str) -> Result<StepId> {
    let _ = item;
    Ok(get_step_metadata().step_id)
}

#[step]
async fn note() -> Result<()> {
    Ok(())
}

/// Runs a workflow under one and the same key, so that all runs of a name have the same id.
async fn journal_of<W: Workflow>(call: WorkflowCall<W>) -> Journal
where
    W::Error: std::fmt::Debug,
{
    let engine = Engine::builder()
        .register::<W>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(call).key("one").await.expect("starts");
    if let Err(error) = run.result().await {
        panic!("{error:?}");
    }
    engine.journal(run.id()).await.expect("reads")
}

mod original {
    use super::*;

    #[workflow(name = "buy")]
    pub(super) async fn buy() -> Result<()> {
        pay("a").await?;
        pay("b").await?;
        let (left, right) = join!(async { pay("left").await }, async {
            pay("right 1").await?;
            pay("right 2").await
        });
        left?;
        right?;
        Ok(())
    }
}

/// The ids of the payments in the order of the items' names, as original code made them.
fn payments(journal: &Journal) -> Vec<StepId> {
    let mut ids: Vec<_> = steps(journal)
        .into_iter()
        .filter(|step| &*step.name == "pay")
        .map(|step| (step.scope, step.step))
        .collect();
    ids.sort_by(|a, b| a.0.cmp(&b.0));
    ids.into_iter().map(|(_, id)| id).collect()
}

mod moved {
    #[rustfmt::skip]
    #[workflow_runtime::workflow(name = "buy")]
    pub(super) async fn bought(

    ) -> workflow_runtime::Result<()> {
        /* another module, another layout, another name of the function */
        for item in ["a", "b"] { super::pay(item).await?; }
        let left = async { super::pay("left").await }; let right = async { super::pay(
            "right 1").await?; super::pay("right 2").await };
        let (left, right) = tokio::join!(left, right);
        left.and(right).map(drop)
    }
}

#[tokio::test]
async fn reformatted_and_moved_code_keeps_its_ids() {
    let original = payments(&journal_of(original::buy()).await);
    assert_eq!(original.len(), 5);
    assert_eq!(payments(&journal_of(moved::bought()).await), original);
}

mod inserted {
    use super::*;

    #[workflow(name = "buy")]
    pub(super) async fn buy() -> Result<()> {
        note().await?;
        pay("a").await?;
        note().await?;
        pay("b").await?;
        let (left, right) = join!(
            async {
                note().await?;
                let paid = pay("left").await;
                pay("left again").await?;
                paid
            },
            async {
                pay("right 1").await?;
                note().await?;
                pay("right 2").await
            }
        );
        left?;
        right?;
        pay("at the end").await?;
        Ok(())
    }
}

#[tokio::test]
async fn steps_inserted_before_or_in_another_branch_move_no_id() {
    let before = payments(&journal_of(original::buy()).await);
    let after = payments(&journal_of(inserted::buy()).await);
    for id in &before {
        assert!(after.contains(id), "{id} moved");
    }
    assert_eq!(after.len(), before.len() + 2);
}

#[step(backoff = "1ms")]
async fn flaky(#[resource] ledger: &Ledger, fail: u32) -> Result<()> {
    ledger.act("flaky");
    if get_step_metadata().attempt <= fail {
        return Err(Error::new("again"));
    }
    Ok(())
}

#[workflow]
async fn retried(fail: u32) -> Result<()> {
    flaky(fail).await
}

#[tokio::test]
async fn a_retry_and_a_restart_keep_the_id() {
    let ledger = Ledger::shared();
    let engine = || {
        Engine::builder()
            .register::<retried>()
            .resource_arc(ledger.clone())
    };
    for plans in [
        vec![],
        vec![FaultPlan::at(1, Fault::CrashBefore)],
        vec![FaultPlan::at(2, Fault::CrashBefore)],
    ] {
        let (result, _) = survive(engine, || retried(2), plans).await;
        result.expect("ends well");
    }
    let ids: std::collections::HashSet<_> =
        ledger.attempts().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 1);
    assert!(ledger.attempts().len() >= 10, "{:?}", ledger.attempts());
}

#[derive(Default)]
struct Slow(&'static str);

#[step]
async fn slow(#[resource] which: &Slow, name: &str) -> Result<StepId> {
    if which.0 == name {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(get_step_metadata().step_id)
}

#[workflow]
async fn branches() -> Result<Vec<StepId>> {
    let (a, b) = join!(
        async {
            let first = slow("a").await?;
            Ok::<_, Error>([first, slow("a2").await?])
        },
        async {
            let first = slow("b").await?;
            Ok::<_, Error>([first, slow("b2").await?])
        }
    );
    Ok([a?, b?].concat())
}

#[tokio::test]
async fn branches_that_finish_in_another_order_keep_their_ids() {
    let mut seen = Vec::new();
    for which in ["a", "b"] {
        let engine = Engine::builder()
            .register::<branches>()
            .resource(Slow(which))
            .open_in_memory()
            .await
            .expect("opens");
        let run = engine.start(branches()).key("one").await.expect("starts");
        let ids = run.result().await.expect("ends well");
        let order = ids_of(&engine.journal(run.id()).await.expect("reads"), "slow");
        seen.push((ids, order));
    }
    assert_eq!(seen[0].0, seen[1].0, "ids follow the structure");
    assert_ne!(seen[0].1, seen[1].1, "the order of outcomes differs");
}

mod renamed {
    use super::*;

    #[step(name = "pay")]
    async fn transfer(item: &str) -> Result<StepId> {
        let _ = item;
        Ok(get_step_metadata().step_id)
    }

    #[workflow(name = "single")]
    pub(super) async fn with_new_name() -> Result<StepId> {
        transfer("a").await
    }
}

#[workflow]
async fn single() -> Result<StepId> {
    pay("a").await
}

#[tokio::test]
async fn a_name_on_the_attribute_keeps_ids_through_a_rename() {
    let before = ids_of(&journal_of(single()).await, "pay");
    assert_eq!(
        ids_of(&journal_of(renamed::with_new_name()).await, "pay"),
        before
    );
}

#[workflow(name = "scoped")]
async fn scoped_once() -> Result<StepId> {
    scope("stock", || async { pay("a").await }).await
}

#[workflow(name = "scoped")]
async fn scoped_with_more_before() -> Result<StepId> {
    async { pay("other").await }.await?;
    let unused = async { pay("never").await };
    drop(unused);
    scope("stock", || async { pay("a").await }).await
}

#[tokio::test]
async fn a_named_scope_is_not_shifted_by_blocks_before_it() {
    let before = ids_of(&journal_of(scoped_once()).await, "pay");
    let after = ids_of(&journal_of(scoped_with_more_before()).await, "pay");
    assert_eq!(before[0], after[1]);
}

#[workflow(inline)]
async fn branch(item: &str) -> Result<StepId> {
    pay(item).await
}

async fn plain(item: &str) -> Result<StepId> {
    pay(item).await
}

#[workflow]
async fn everywhere() -> Result<()> {
    pay("root").await?;
    plain("in a plain helper").await?;
    branch("in an inline helper").await?;
    branch("in its second call").await?;
    async { plain("in a block").await }.await?;
    let closure = async |item: &str| pay(item).await;
    closure("in a closure").await?;
    closure("again").await?;
    scope("x/y", || async { pay("named").await }).await?;
    scope("x/y", || async { pay("named again").await }).await?;
    Ok(())
}

#[tokio::test]
async fn every_call_counts_in_the_scope_it_stands_in() {
    let journal = journal_of(everywhere()).await;
    let scopes: Vec<_> = steps(&journal)
        .iter()
        .map(|s| s.scope.to_string())
        .collect();
    assert_eq!(
        scopes,
        [
            "",
            "",
            "h:branch#0",
            "h:branch#1",
            "a0",
            "c0",
            "c1",
            "n:x%2Fy/a0",
            "n:x%2Fy#1/a0"
        ]
    );
    let ids: std::collections::HashSet<_> = ids_of(&journal, "pay").into_iter().collect();
    assert_eq!(ids.len(), scopes.len());
}

type Drawn = (u64, u128, SystemTime, u64, SystemTime, u64);

#[step]
async fn when() -> Result<SystemTime> {
    Ok(get_step_metadata().step_started_at)
}

#[workflow]
async fn drawing() -> Result<Drawn> {
    let first: u64 = random();
    let id = uuid().as_u128();
    let began = now();
    assert_eq!(when().await?, began, "a step starts when it is called");
    let inside = async { random::<u64>() }.await;
    let later = now();
    note().await?;
    Ok((first, id, began, inside, later, random()))
}

#[tokio::test]
async fn time_and_chance_are_equal_in_replay_and_differ_between_scopes_and_runs() {
    let engine = || Engine::builder().register::<drawing>();
    let store = MemoryStore::new();
    let first = engine().open_with(store.clone()).await.expect("opens");
    let run = first.start(drawing()).await.expect("starts");
    let drawn = run.result().await.expect("ends well");
    assert!(drawn.0 != drawn.3 && drawn.0 != drawn.5 && drawn.3 != drawn.5);
    assert!(drawn.2 <= drawn.4);
    assert_eq!((drawn.1 >> 76) & 15, 4, "the version of a random UUID");
    let other = first.start(drawing()).await.expect("starts");
    let other = other.result().await.expect("ends well");
    assert!(drawn.0 != other.0 && drawn.1 != other.1 && drawn.3 != other.3);

    let journal = first.journal(run.id()).await.expect("reads");
    let recorded = workflow_tests::frames(&store, run.id()).await;
    for records in 1..recorded.len() {
        let before = workflow_tests::cut(journal.header(), &recorded, records).await;
        let again = engine().open_with(before).await.expect("opens");
        let run = again.run::<drawing>(run.id()).await.expect("is there");
        let replayed = run.result().await.expect("ends well");
        assert_eq!(
            (replayed.0, replayed.1, replayed.2),
            (drawn.0, drawn.1, drawn.2)
        );
        assert_eq!((replayed.3, replayed.5), (drawn.3, drawn.5));
        if records > 1 {
            assert_eq!(replayed.4, drawn.4, "the time of a recorded delivery");
        }
    }
}

#[tokio::test]
async fn a_run_without_a_key_has_ids_of_its_own() {
    let engine = Engine::builder()
        .register::<single>()
        .open_in_memory()
        .await
        .expect("opens");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let run = engine.start(single()).await.expect("starts");
        assert!(seen.insert(run.result().await.expect("ends well")));
    }
}
