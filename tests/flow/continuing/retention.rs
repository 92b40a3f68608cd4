//! What is deleted of a line, and when: the first run stays until the last has gone.

use workflow_runtime::Retention;
use workflow_runtime::store::memory::{Fault, FaultPlan};

use super::*;

const AT_ONCE: Retention = Retention::of(Duration::ZERO);

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    super::engine(ledger)
        .retention(AT_ONCE)
        .key_ttl(Duration::ZERO)
}

async fn known(engine: &Engine) -> Vec<RunId> {
    let runs = engine.runs().await.expect("lists").runs;
    runs.iter().rev().map(|header| header.run).collect()
}

#[tokio::test]
async fn a_line_that_goes_on_keeps_its_first_and_its_newest_run() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let start = || engine.start(listening(Vec::new(), 4)).key("k");
    let run = start().await.expect("starts");
    for (at, text) in [(1, "a"), (2, "b"), (3, "c")] {
        run.signal("text", text).key(text).await.expect("sends");
        until_line(&engine, run.id(), at).await;
    }
    let line = newest(&engine, run.id()).await;
    engine.sweep().await.expect("sweeps");
    assert_eq!(known(&engine).await, [run.id(), line.newest]);
    let previous = line.previous.expect("there was one");
    let gone = engine.signal(previous, "text", "x").await;
    let gone = gone.expect_err("its id is not known any more");
    assert!(matches!(gone, EngineError::UnknownRun(_)), "{gone}");
    assert_eq!(start().await.expect("the same").id(), line.newest);
    let again = run.signal("text", "c").key("c").await.expect("sends");
    assert_eq!(again, Sent::Duplicate, "the keys of the line are kept");
    run.signal("text", "d").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn an_ended_line_whose_key_is_held_keeps_its_first_and_its_last_run() {
    let ledger = Ledger::shared();
    let engine = super::engine(&ledger).retention(AT_ONCE).open_in_memory();
    let engine = engine.await.expect("opens");
    let start = || engine.start(living(0, 3)).key("k");
    let run = start().await.expect("starts");
    run.result().await.expect("ends well");
    until("all have left", async || engine.runs_in_memory() == 0).await;
    let (last, effects) = (newest(&engine, run.id()).await.newest, ledger.effects());
    engine.sweep().await.expect("sweeps");
    assert_eq!(known(&engine).await, [run.id(), last]);
    let again = start().await.expect("the same");
    assert_eq!(again.id(), last);
    again.result().await.expect("ended well");
    assert_eq!(ledger.effects(), effects, "nothing was done twice");
}

#[tokio::test]
async fn an_ended_line_goes_in_one_sweep_and_its_key_names_another_line() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(living(0, 3)).key("k").await.expect("starts");
    run.result().await.expect("ends well");
    until("all have left", async || engine.runs_in_memory() == 0).await;
    engine.sweep().await.expect("sweeps");
    assert_eq!(known(&engine).await, []);
    let again = engine.start(living(0, 3)).key("k").await.expect("starts");
    assert_ne!(again.id(), run.id());
    again.result().await.expect("ends well");
    assert_eq!(ledger.effects().len(), 8, "under ids of their own");
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_sweep_gives_no_id_twice() {
    for write in 0..4 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let ledger = Ledger::shared();
            let store = MemoryStore::new();
            let keeping = super::engine(&ledger).key_ttl(Duration::ZERO);
            let keeping = keeping.open_with(store.clone()).await;
            let keeping = keeping.expect("opens");
            let run = keeping.start(living(0, 2)).key("k").await.expect("starts");
            run.result().await.expect("ends well");
            keeping.shutdown().await.expect("stops");
            let store = store.reopen(Surviving::Synced);
            store.set_faults(FaultPlan::at(write, fault));
            let sweeping = async {
                let engine = engine(&ledger).open_with(store.clone()).await;
                let engine = engine.expect("opens");
                engine.sweep().await.expect("sweeps");
                engine.shutdown().await.expect("stops");
            };
            tokio::select! {
                biased;
                () = store.crashed() => {}
                () = sweeping => {}
            }
            let store = store.reopen(Surviving::Synced);
            let after = engine(&ledger).open_with(store).await.expect("opens");
            after.sweep().await.expect("sweeps");
            assert_eq!(known(&after).await, [], "{write} {fault:?}");
            let again = after.start(living(0, 2)).key("k").await.expect("starts");
            again.result().await.expect("ends well");
            assert_eq!(ledger.effects().len(), 6, "{write} {fault:?}");
        }
    }
}
