//! The rule of commit: what the workflow, or anybody else, is told of is durable by then.

use std::sync::Arc;
use std::time::Duration;

use workflow_runtime::journal::Event;
use workflow_runtime::store::Durability;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::{Engine, EngineBuilder, Result, RunStatus, step, wait_for, workflow};
use workflow_tests::{Ledger, frames, steps};

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[workflow]
async fn two_steps() -> Result<u32> {
    act("one").await?;
    act("two").await?;
    Ok(2)
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<two_steps>()
        .resource_arc(ledger.clone())
}

/// Lets everything happen that can happen without the disk.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_outcome_is_durable_before_the_workflow_sees_it() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    store.hold();
    let mut start = Box::pin(engine.start(two_steps()).into_future());
    assert!(futures::poll!(&mut start).is_pending());
    settle().await;
    assert!(
        futures::poll!(&mut start).is_pending(),
        "a start is durable"
    );
    assert_eq!(ledger.asked(), 0, "no body runs before the run is durable");
    store.release();
    store.hold();
    let run = start.await.expect("starts");
    settle().await;
    assert_eq!(
        ledger.effects(),
        ["one"],
        "the second step waits for the disk"
    );
    store.release();
    store.hold();
    settle().await;
    assert_eq!(ledger.effects(), ["one", "two"]);
    let mut result = Box::pin(run.result());
    assert!(futures::poll!(&mut result).is_pending());
    store.release();
    store.hold();
    settle().await;
    assert!(
        futures::poll!(&mut result).is_pending(),
        "a result is durable"
    );
    store.release();
    assert_eq!(result.await.expect("ends well"), 2);
}

#[tokio::test]
async fn one_successful_step_is_one_write() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(two_steps()).await.expect("starts");
    run.result().await.expect("ends well");
    assert_eq!(store.writes(), 4, "start, two outcomes, end");
    assert_eq!(frames(&store, run.id()).await.len(), 4);
}

#[tokio::test]
async fn a_buffered_engine_loses_nothing_with_its_process_and_doubles_nothing_after_a_power_cut() {
    for surviving in [Surviving::All, Surviving::Random(3), Surviving::Synced] {
        let ledger = Ledger::shared();
        let store = MemoryStore::new();
        let buffered = engine(&ledger).durability(Durability::Buffered);
        let first = buffered.open_with(store.clone()).await.expect("opens");
        let run = first.start(two_steps()).key("k").await.expect("starts");
        run.result().await.expect("ends well");
        drop(first);
        ledger.forget_asking();
        let again = engine(&ledger)
            .open_with(store.reopen(surviving))
            .await
            .expect("opens");
        let same = again.start(two_steps()).key("k").await.expect("starts");
        assert_eq!(same.id(), run.id());
        same.result().await.expect("ends well");
        if surviving == Surviving::All {
            assert_eq!(ledger.asked(), 0);
        }
        assert_eq!(ledger.effects(), ["one", "two"]);
    }
}

#[tokio::test]
async fn a_recovery_is_on_record_before_any_body_starts_again() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(two_steps()).await.expect("starts");
    run.result().await.expect("ends well");
    let journal = first.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let store = workflow_tests::cut(journal.header(), &recorded, 2).await;
    drop(first);

    ledger.forget_asking();
    let again = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    store.hold(); // before any task of the engine has run
    settle().await;
    assert_eq!(
        ledger.asked(),
        0,
        "the body waits for the record of the crash"
    );
    assert_eq!(
        again.status(run.id()).await.expect("reads"),
        RunStatus::Active
    );
    store.release();
    let run = again.run::<two_steps>(run.id()).await.expect("is there");
    let result = tokio::time::timeout(Duration::from_secs(5), run.result()).await;
    assert_eq!(result.expect("goes on").expect("ends well"), 2);
    let journal = again.journal(run.id()).await.expect("reads");
    let Event::RunRecovered(recovered) = &journal.records()[2].event else {
        panic!("{journal}");
    };
    assert_eq!(recovered.replayed, 1);
    assert_eq!(recovered.in_flight, [steps(&journal)[1].step]);
}

#[workflow]
async fn by_letter_by_clock_by_step() -> Result<()> {
    wait_for::<()>("go").await?;
    workflow_runtime::sleep(Duration::from_millis(1)).await;
    act("one").await?;
    act("two").await
}

#[tokio::test]
async fn the_record_of_a_crash_counts_all_that_was_delivered_again_and_not_only_steps() {
    let ledger = Ledger::shared();
    let builder = || engine(&ledger).register::<by_letter_by_clock_by_step>();
    let store = MemoryStore::new();
    let first = builder().open_with(store.clone()).await.expect("opens");
    let run = first.start(by_letter_by_clock_by_step()).await;
    let run = run.expect("starts");
    run.signal("go", &()).await.expect("is sent");
    run.result().await.expect("ends well");
    let journal = first.journal(run.id()).await.expect("reads");
    let recorded = frames(&store, run.id()).await;
    let second = recorded.len() - 2; // before it and the end
    let store = workflow_tests::cut(journal.header(), &recorded, second).await;
    drop(first);
    let again = builder().open_with(store).await.expect("opens");
    let run = again.run::<by_letter_by_clock_by_step>(run.id()).await;
    let run = run.expect("is there");
    run.result().await.expect("ends well");
    let journal = again.journal(run.id()).await.expect("reads");
    let Event::RunRecovered(recovered) = &journal.records()[second].event else {
        panic!("{journal}");
    };
    assert_eq!(
        recovered.replayed, 3,
        "a signal, a timer, a step: {journal}"
    );
}

#[workflow]
async fn naps() -> Result<u32> {
    workflow_runtime::sleep(Duration::from_millis(20)).await;
    Ok(3)
}

#[tokio::test]
async fn a_buffered_engine_syncs_starts_all_the_same() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = || engine(&ledger).register::<naps>();
    let buffered = builder().durability(Durability::Buffered);
    let first = buffered.open_with(store.clone()).await.expect("opens");
    let run = first.start(naps()).await.expect("starts");
    // The power is cut right after the start was told, while the run sleeps.
    let after = store.reopen(Surviving::Synced);
    drop(first);
    let again = builder().open_with(after).await.expect("opens");
    let same = again.run::<naps>(run.id()).await.expect("is there");
    assert_eq!(same.result().await.expect("ends well"), 3);
}

#[tokio::test]
async fn a_buffered_engine_syncs_results_all_the_same_and_with_them_all_before() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let buffered = engine(&ledger).durability(Durability::Buffered);
    let first = buffered.open_with(store.clone()).await.expect("opens");
    let run = first.start(two_steps()).await.expect("starts");
    run.result().await.expect("ends well");
    let after = store.reopen(Surviving::Synced);
    drop(first);
    ledger.forget_asking();
    let again = engine(&ledger).open_with(after).await.expect("opens");
    let same = again.run::<two_steps>(run.id()).await.expect("is there");
    let status = same.status().await.expect("is known");
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(same.result().await.expect("is known"), 2);
    assert_eq!(ledger.asked(), 0, "nothing ran again");
}
