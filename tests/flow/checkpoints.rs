//! Checkpoints: a workflow that begins anew with a state, at a cost that does not grow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::join;
use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunError, checkpoint, now, patched, random, sleep, start_child,
    step, undo_with, wait_for, workflow,
};
use workflow_tests::{Ledger, cut, frames, survive};

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

#[workflow]
async fn counting(at: u64, until: u64) -> Result<u64> {
    act(format!("number {at}")).await?;
    if at.is_multiple_of(2) {
        sleep(Duration::from_millis(1)).await;
    }
    if at == until {
        return Ok(at);
    }
    checkpoint(&(at + 1, until)).await
}

/// What a pass saw of time, chance and patches.
#[workflow]
async fn looking(seen: Vec<(u64, bool, bool)>) -> Result<Vec<(u64, bool, bool)>> {
    let mut seen = seen;
    let before = now();
    act(format!("look {}", seen.len())).await?;
    seen.push((random(), patched("new way"), before <= now()));
    if seen.len() == 3 {
        return Ok(seen);
    }
    checkpoint(&seen).await
}

#[workflow]
async fn listening(names: Vec<String>) -> Result<Vec<String>> {
    let mut names = names;
    names.push(wait_for::<String>("name").await?);
    if names.len() == 3 {
        return Ok(names);
    }
    checkpoint(&names).await
}

#[workflow]
async fn child() -> Result<()> {
    wait_for::<()>("go").await
}

#[workflow]
async fn starting(pass: u32) -> Result<u32> {
    match pass {
        0 => {
            start_child(child());
        }
        _ => wait_for::<()>("end").await?,
    }
    match pass {
        0 => checkpoint(&1_u32).await,
        _ => Ok(pass),
    }
}

#[step]
async fn remember(what: String) -> Result<()> {
    let _ = what;
    Ok(())
}

#[workflow]
async fn hasty(how: u32) -> Result<()> {
    match how {
        0 => {
            let anew = async {
                let () = checkpoint(&1_u32).await;
            };
            join!(act("slow".into()), anew).0.map(drop)
        }
        1 => {
            undo_with(remember("this".into()));
            checkpoint(&1_u32).await
        }
        _ => checkpoint(&"not a number").await,
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<counting>()
        .register::<looking>()
        .register::<listening>()
        .register::<child>()
        .register::<starting>()
        .register::<hasty>()
        .resource_arc(ledger.clone())
}

#[tokio::test]
async fn a_crash_at_any_write_changes_neither_result_nor_effects() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || counting(0, 5), []).await;
    assert_eq!(result.expect("ends well"), 5);
    let effects = ledger.effects();
    assert_eq!(effects.len(), 6);
    for write in 0..store.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let ledger = Ledger::shared();
            let plan = FaultPlan::at(write, fault);
            let (result, store) = survive(|| engine(&ledger), || counting(0, 5), [plan]).await;
            assert_eq!(result.expect("ends well"), 5, "{write} {fault:?}");
            assert_eq!(ledger.effects(), effects, "{write} {fault:?}");
            let after = engine(&ledger).open_with(store.reopen(Surviving::Synced));
            let verified = after
                .await
                .expect("opens")
                .verify()
                .await
                .expect("verifies");
            assert!(verified.damaged.is_empty(), "{write} {fault:?}");
        }
    }
}

#[tokio::test]
async fn time_chance_and_patches_are_the_same_in_a_resumed_pass() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine(&ledger), || looking(Vec::new()), []).await;
    let seen = result.expect("ends well");
    assert!(seen.iter().all(|(_, patched, _)| *patched), "{seen:?}");
    assert_ne!(seen[0].0, seen[1].0, "each pass has chance of its own");
    for write in 0..store.writes() {
        let ledger = Ledger::shared();
        let plan = FaultPlan::at(write, Fault::CrashAfter);
        let (result, _) = survive(|| engine(&ledger), || looking(Vec::new()), [plan]).await;
        assert_eq!(result.expect("ends well"), seen, "{write}");
    }
}

#[workflow(name = "passes")]
async fn old_passes(ways: Vec<bool>) -> Result<Vec<bool>> {
    let mut ways = ways;
    act(format!("pass {}", ways.len())).await?;
    ways.push(false);
    match ways.len() {
        3 => Ok(ways),
        _ => checkpoint(&ways).await,
    }
}

#[workflow(name = "passes")]
async fn new_passes(ways: Vec<bool>) -> Result<Vec<bool>> {
    let mut ways = ways;
    let way = patched("new way");
    act(format!("pass {}", ways.len())).await?;
    ways.push(way);
    match ways.len() {
        3 => Ok(ways),
        _ => checkpoint(&ways).await,
    }
}

#[tokio::test]
async fn a_patch_that_a_run_went_past_in_an_earlier_pass_is_not_taken_in_a_later_one() {
    let ledger = Ledger::shared();
    let old = || {
        let engine = Engine::builder().register::<old_passes>();
        engine.resource_arc(ledger.clone())
    };
    let (result, store) = survive(old, || old_passes(Vec::new()), []).await;
    assert_eq!(result.expect("ends well"), [false; 3]);
    let store = store.reopen(Surviving::Synced);
    let engine = old().open_with(store.clone()).await.expect("opens");
    let run = engine.runs().await.expect("lists").runs[0].run;
    let journal = engine.journal(run).await.expect("reads");
    let recorded = frames(&store, run).await;
    let new = || {
        let engine = Engine::builder().register::<new_passes>();
        engine.resource_arc(ledger.clone())
    };
    let finish = async |store: &MemoryStore| {
        let engine = new().open_with(store.clone()).await.expect("opens");
        let run = engine.run::<new_passes>(run).await.expect("is there");
        run.result().await.expect("ends well")
    };
    // The first step of the first pass has an outcome: the old code was there.
    for write in 0.. {
        let store = cut(journal.header(), &recorded, 2).await;
        store.set_faults(FaultPlan::at(write, Fault::CrashAfter));
        tokio::select! {
            biased;
            () = store.crashed() => {}
            ways = finish(&store) => {
                assert_eq!(ways, [false; 3]);
                assert!(write > 4, "no more than {write} writes");
                return;
            }
        }
        let ways = finish(&store.reopen(Surviving::Synced)).await;
        assert_eq!(ways, [false; 3], "write {write}");
    }
}

#[tokio::test]
async fn signals_that_were_not_taken_carry_over() {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = first.start(listening(Vec::new())).await.expect("starts");
    run.signal("name", "ada").await.expect("sends");
    run.signal("name", "bob").await.expect("sends");
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(first);
    store = store.reopen(Surviving::Synced);
    let second = engine(&ledger).open_with(store).await.expect("opens");
    let run = second.run::<listening>(run.id()).await.expect("is there");
    run.signal("name", "cyd").await.expect("sends");
    assert_eq!(
        run.result().await.expect("ends well"),
        ["ada", "bob", "cyd"]
    );
}

#[tokio::test]
async fn a_child_of_an_earlier_pass_ends_without_harm() {
    for restart in [false, true] {
        let ledger = Ledger::shared();
        let mut store = MemoryStore::new();
        let mut engine_now = engine(&ledger)
            .open_with(store.clone())
            .await
            .expect("opens");
        let run = engine_now.start(starting(0)).await.expect("starts").id();
        tokio::time::sleep(Duration::from_millis(20)).await;
        if restart {
            drop(engine_now);
            store = store.reopen(Surviving::Synced);
            engine_now = engine(&ledger).open_with(store).await.expect("opens");
        }
        let children = engine_now
            .runs()
            .workflow("child")
            .await
            .expect("lists")
            .runs;
        assert_eq!(children.len(), 1);
        engine_now
            .signal(children[0].run, "go", &())
            .await
            .expect("sends");
        tokio::time::sleep(Duration::from_millis(20)).await;
        engine_now.signal(run, "end", &()).await.expect("sends");
        let run = engine_now.run::<starting>(run).await.expect("is there");
        assert_eq!(run.result().await.expect("ends well"), 1);
    }
}

#[tokio::test]
async fn a_checkpoint_that_would_lose_something_fails_the_run_and_says_what() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    for (how, words) in [
        (0, "`act` at"),
        (1, "`remember` is kept with `undo_with`"),
        (2, ""),
    ] {
        let run = engine.start(hasty(how)).await.expect("starts");
        let error = run.result().await.expect_err("cannot go on");
        match how {
            2 => assert!(matches!(error, RunError::Parked(_)), "{error}"),
            _ => assert!(error.to_string().contains(words), "{error}"),
        }
    }
}

/// Takes none of the signals that it is sent, and begins anew when it is told to.
#[workflow]
async fn deaf(pass: u32) -> Result<u32> {
    if pass == 1 {
        return Ok(1);
    }
    wait_for::<()>("go").await?;
    checkpoint(&1_u32).await
}

#[tokio::test]
async fn signals_that_are_more_than_a_record_takes_fail_the_run_before_anything_is_lost() {
    for (signals, passes) in [(15, true), (17, false)] {
        let engine = Engine::builder().register::<deaf>();
        let engine = engine.open_in_memory().await.expect("opens");
        let run = engine.start(deaf(0)).await.expect("starts");
        let text = "x".repeat(2 * 1024 * 1024 - 16);
        for _ in 0..signals {
            run.signal("text", &text).await.expect("sends");
        }
        run.signal("go", &()).await.expect("sends");
        match run.result().await {
            Ok(pass) => assert!(passes && pass == 1),
            Err(error) => {
                let error = error.to_string();
                let words = [
                    "checkpoints.rs",
                    "35651397 bytes of signals",
                    "33554432 bytes",
                ];
                let told = words.iter().all(|word| error.contains(word));
                assert!(!passes && told, "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_payload_limit_that_no_record_could_hold_is_refused_at_once() {
    let builder = |bytes| Engine::builder().payload_limit(bytes).open_in_memory();
    builder(16 * 1024 * 1024).await.expect("is allowed");
    let error = builder(16 * 1024 * 1024 + 1).await.err().expect("refused");
    assert!(
        error.to_string().contains("16777217 bytes is too large"),
        "{error}"
    );
}

/// How long it takes a new engine to have a run of so many passes wait again.
async fn resume_after(passes: u64) -> Duration {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    // It never ends by itself: on a busy machine it could before it is looked at.
    let run = first.start(counting(1, u64::MAX)).await;
    let run = run.expect("starts").id();
    let far = |engine: Engine| async move {
        loop {
            let records = engine.journal(run).await.expect("reads");
            let newest = records.records().iter().rev();
            let mut newest = newest.filter_map(|record| match &record.event {
                Event::Checkpoint(checkpoint) => Some(checkpoint.pass),
                _ => None,
            });
            if newest.next().is_some_and(|pass| pass >= passes) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    far(first.clone()).await;
    first.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::All);
    let began = Instant::now();
    let second = engine(&ledger).open_with(store).await.expect("opens");
    ledger.forget_asking();
    while ledger.asked() == 0 {
        tokio::task::yield_now().await;
    }
    let took = began.elapsed();
    second.terminate(run).await.expect("it goes on until then");
    took
}

#[tokio::test]
async fn the_cost_of_a_resume_does_not_grow_with_the_passes() {
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let (few, many) = (resume_after(20).await, resume_after(600).await);
        ratios.push(many.as_secs_f64() / few.as_secs_f64().max(1e-6));
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[0] < 10.0, "30 times the passes cost {ratios:?}");
}
