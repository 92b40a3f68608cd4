//! Patches: runs that were begun with old code keep it, others take the new, and no crash makes a run
//! take both.

use std::sync::Arc;
use std::time::Duration;

use futures::join;
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Result, RunError, RunHandle, Workflow, deprecate_patch, patched, sleep,
    step, workflow,
};
use workflow_tests::{Ledger, cut, frames, survive};

#[step(backoff = "1ms..2ms")]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[step]
async fn old_way(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("old");
    Ok(1)
}

#[step]
async fn new_way(#[resource] ledger: &Ledger) -> Result<u32> {
    ledger.act("new");
    Ok(2)
}

/// Both branches of the join end in one write, so that one outcome is left when the patch is reached.
#[workflow(name = "order")]
async fn before() -> Result<u32> {
    act("first").await?;
    let (way, other) = join!(
        async {
            act("left").await?;
            old_way().await
        },
        async {
            act("right").await?;
            sleep(Duration::from_millis(1)).await;
            act("right again").await
        }
    );
    other?;
    act("last").await?;
    Ok(way? * 10)
}

#[workflow(name = "order")]
async fn after() -> Result<u32> {
    act("first").await?;
    let (way, other) = join!(
        async {
            act("left").await?;
            if patched("way") {
                new_way().await
            } else {
                old_way().await
            }
        },
        async {
            act("right").await?;
            sleep(Duration::from_millis(1)).await;
            act("right again").await
        }
    );
    other?;
    act("last").await?;
    let agrees = u32::from(patched("way"));
    Ok(way? * 10 + agrees)
}

#[workflow(name = "order")]
async fn cleaned_up() -> Result<u32> {
    act("first").await?;
    let (way, other) = join!(
        async {
            act("left").await?;
            deprecate_patch("way");
            new_way().await
        },
        async {
            act("right").await?;
            sleep(Duration::from_millis(1)).await;
            act("right again").await
        }
    );
    other?;
    act("last").await?;
    Ok(way? * 10 + 1)
}

#[workflow(name = "order")]
async fn without_a_trace() -> Result<u32> {
    act("first").await?;
    let (way, other) = join!(
        async {
            act("left").await?;
            new_way().await
        },
        async {
            act("right").await?;
            sleep(Duration::from_millis(1)).await;
            act("right again").await
        }
    );
    other?;
    act("last").await?;
    Ok(way? * 10 + 1)
}

fn engine<W: Workflow>(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<W>()
        .resource_arc(ledger.clone())
}

async fn open<W: Workflow>(ledger: &Arc<Ledger>, store: &MemoryStore) -> Engine {
    let store = store.clone();
    engine::<W>(ledger).open_with(store).await.expect("opens")
}

/// The one run of a store.
async fn only_run<W: Workflow>(engine: &Engine) -> RunHandle<W> {
    let runs = engine.runs().await.expect("lists").runs;
    engine.run::<W>(runs[0].run).await.expect("is there")
}

fn markers(journal: &Journal) -> Vec<&str> {
    let events = journal.records().iter().map(|record| &record.event);
    events
        .filter_map(|event| match event {
            Event::PatchMarker(patch) => Some(&*patch.name),
            _ => None,
        })
        .collect()
}

/// What was done besides what both ways do.
fn ways(ledger: &Ledger) -> Vec<String> {
    let effects = ledger.effects().into_iter();
    effects.filter(|it| it == "old" || it == "new").collect()
}

/// A journal of the old code, and how many of its records lie before the old way began.
async fn recorded() -> (Journal, Vec<bytes::Bytes>, usize) {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine::<before>(&ledger), before, []).await;
    assert_eq!(result.expect("ends well"), 10);
    let store = store.reopen(Surviving::Synced);
    let engine = open::<before>(&ledger, &store).await;
    let run = only_run::<before>(&engine).await.id();
    let journal = engine.journal(run).await.expect("reads");
    let old = journal.records().iter().position(
        |record| matches!(&record.event, Event::StepCompleted(step) if &*step.name == "old_way"),
    );
    (journal, frames(&store, run).await, old.expect("is there"))
}

#[tokio::test]
async fn a_new_run_takes_the_patch_and_its_journal_says_so_once_without_a_write_more() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine::<new_loop>(&ledger), new_loop, []).await;
    assert_eq!(result.expect("ends well"), [2; 4]);
    let (_, without) = survive(|| engine::<old_loop>(&ledger), old_loop, []).await;
    assert_eq!(store.writes(), without.writes());
    let engine = open::<new_loop>(&ledger, &store.reopen(Surviving::Synced)).await;
    let run = only_run::<new_loop>(&engine).await.id();
    let journal = engine.journal(run).await.expect("reads");
    assert_eq!(markers(&journal), ["way"]);
    let timeline = journal.to_string();
    assert!(timeline.contains("took patch       \"way\""), "{timeline}");
}

#[tokio::test]
async fn a_crash_at_any_write_makes_no_run_take_both_ways() {
    let (_, store) = survive(|| engine::<after>(&Ledger::shared()), after, []).await;
    for first in 0..store.writes() {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            for second in 0..store.writes() {
                let plans = [
                    FaultPlan::at(first, fault),
                    FaultPlan::at(second, Fault::CrashBefore),
                ];
                let ledger = Ledger::shared();
                let (result, _) = survive(|| engine::<after>(&ledger), after, plans).await;
                assert_eq!(result.expect("ends well"), 21, "{fault:?} {first} {second}");
                assert_eq!(ways(&ledger), ["new"], "{fault:?} {first} {second}");
            }
        }
    }
}

#[tokio::test]
async fn a_change_under_a_run_at_any_record_and_a_crash_at_any_write_take_one_way() {
    let (journal, recorded, old) = recorded().await;
    for records in 1..recorded.len() {
        // The old way has an outcome, so the run went past the patch: 11 would be both.
        let expected = if records > old { 10 } else { 21 };
        for write in 0..12 {
            let store = cut(journal.header(), &recorded, records).await;
            store.set_faults(FaultPlan::at(write, Fault::CrashBefore));
            let ledger = Ledger::shared();
            let living = async {
                let first = open::<after>(&ledger, &store).await;
                only_run::<after>(&first).await.result().await
            };
            tokio::select! {
                biased;
                () = store.crashed() => {}
                result = living => assert_eq!(result.expect("ends well"), expected),
            }
            let store = store.reopen(Surviving::Synced);
            let second = open::<after>(&ledger, &store).await;
            let result = only_run::<after>(&second).await.result().await;
            assert_eq!(
                result.expect("ends well"),
                expected,
                "{records} records, write {write}"
            );
            let taken: &[&str] = match expected {
                21 => &["new"],
                _ => &[], // it ran before the change
            };
            assert_eq!(ways(&ledger), taken, "{records} records, write {write}");
        }
    }
}

#[workflow(name = "loop")]
async fn old_loop() -> Result<Vec<u32>> {
    let mut ways = Vec::new();
    for _ in 0..4 {
        ways.push(old_way().await?);
    }
    Ok(ways)
}

#[workflow(name = "loop")]
async fn new_loop() -> Result<Vec<u32>> {
    let mut ways = Vec::new();
    for _ in 0..4 {
        ways.push(if patched("way") {
            new_way().await?
        } else {
            old_way().await?
        });
    }
    Ok(ways)
}

#[tokio::test]
async fn once_decided_a_patch_stays_decided_for_the_run() {
    let ledger = Ledger::shared();
    let (result, store) = survive(|| engine::<old_loop>(&ledger), old_loop, []).await;
    assert_eq!(result.expect("ends well"), [1; 4]);
    let store = store.reopen(Surviving::Synced);
    let engine = open::<old_loop>(&ledger, &store).await;
    let run = only_run::<old_loop>(&engine).await.id();
    let journal = engine.journal(run).await.expect("reads");
    let recorded = frames(&store, run).await;
    // Two outcomes of the old way are recorded; from the third on the run is live.
    let store = cut(journal.header(), &recorded, 3).await;
    let engine = open::<new_loop>(&ledger, &store).await;
    let result = only_run::<new_loop>(&engine).await.result().await;
    assert_eq!(result.expect("ends well"), [1; 4]);
    let after = engine.journal(run).await.expect("reads");
    assert!(markers(&after).is_empty(), "{after}");
    // None is recorded: the patch is reached for the first time.
    let store = cut(journal.header(), &recorded, 1).await;
    let engine = open::<new_loop>(&ledger, &store).await;
    let result = only_run::<new_loop>(&engine).await.result().await;
    assert_eq!(result.expect("ends well"), [2; 4]);
}

#[workflow(name = "waiting")]
async fn waits() -> Result<u32> {
    act("first").await?;
    sleep(Duration::from_millis(30)).await;
    Ok(1)
}

#[workflow(name = "waiting")]
async fn waits_patched() -> Result<u32> {
    act("first").await?;
    if patched("way") {
        new_way().await?;
    }
    sleep(Duration::from_millis(30)).await;
    Ok(1)
}

#[tokio::test]
async fn a_run_that_sleeps_behind_a_patch_has_passed_it() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = open::<waits>(&ledger, &store).await;
    let run = engine.start(waits()).await.expect("starts");
    while frames(&store, run.id()).await.len() < 3 {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let store = store.reopen(Surviving::All);
    let engine = open::<waits_patched>(&ledger, &store).await;
    let result = only_run::<waits_patched>(&engine).await.result().await;
    assert_eq!(result.expect("ends well"), 1);
    assert!(ways(&ledger).is_empty(), "the sleep was begun by old code");
}

#[tokio::test]
async fn a_deprecated_patch_parks_runs_of_the_old_code_and_lets_all_others_pass() {
    let (journal, recorded, old) = recorded().await;
    let ledger = Ledger::shared();
    let store = cut(journal.header(), &recorded, old + 1).await;
    let engine = open::<cleaned_up>(&ledger, &store).await;
    let run = only_run::<cleaned_up>(&engine).await;
    let parking = match run.result().await {
        Err(RunError::Parked(parking)) => parking,
        other => panic!("{other:?}"),
    };
    assert_eq!(parking.reason, ParkReason::Diverged);
    for part in ["patch \"way\"", "patches.rs", "engine.resume(run)"] {
        assert!(parking.report.contains(part), "{}", parking.report);
    }
    assert_eq!(ledger.asked(), 0, "something was run");
    assert_eq!(frames(&store, run.id()).await, recorded[..=old]);
    drop(engine);
    // With the patch back, it goes on.
    let store = store.reopen(Surviving::Synced);
    let engine = open::<after>(&ledger, &store).await;
    let run = only_run::<after>(&engine).await;
    engine.resume(run.id()).await.expect("resumes");
    assert_eq!(run.result().await.expect("ends well"), 10);

    // A run that took the patch passes, and so does a new one; both can go back to `patched`.
    let (_, taken) = survive(|| self::engine::<after>(&ledger), after, []).await;
    let (_, fresh) = survive(|| self::engine::<cleaned_up>(&ledger), cleaned_up, []).await;
    for store in [taken, fresh] {
        let engine = open::<cleaned_up>(&ledger, &store.reopen(Surviving::Synced)).await;
        let run = only_run::<cleaned_up>(&engine).await.id();
        let journal = engine.journal(run).await.expect("reads");
        let all = engine.runs().await.expect("lists").runs;
        let header = &all[0];
        assert_eq!(markers(&journal), ["way"]);
        let recorded = frames(&store.reopen(Surviving::Synced), run).await;
        let before_the_end = cut(header, &recorded, recorded.len() - 1).await;
        let engine = open::<cleaned_up>(&ledger, &before_the_end).await;
        let result = only_run::<cleaned_up>(&engine).await.result().await;
        assert_eq!(result.expect("ends well"), 21);
        let before_the_end = cut(header, &recorded, recorded.len() - 1).await;
        let engine = open::<without_a_trace>(&ledger, &before_the_end).await;
        let result = only_run::<without_a_trace>(&engine).await.result().await;
        assert_eq!(result.expect("ends well"), 21);
        let before_the_end = cut(header, &recorded, recorded.len() - 1).await;
        let engine = open::<after>(&ledger, &before_the_end).await;
        let result = only_run::<after>(&engine).await.result().await;
        assert_eq!(result.expect("ends well"), 21);
    }
}

#[workflow(name = "order")]
async fn patched_and_otherwise_changed() -> Result<u32> {
    act("first").await?;
    let (left, right) = join!(
        async {
            act("left").await?;
            assert!(
                patched("way"),
                "what is left belongs to a call that was made"
            );
            new_way().await
        },
        async { act("something else").await }
    );
    right?;
    left
}

#[tokio::test]
async fn code_that_does_not_fit_leaves_no_marker_behind() {
    let (journal, recorded, _) = recorded().await;
    let store = cut(journal.header(), &recorded, 4).await;
    let ledger = Ledger::shared();
    let engine = open::<patched_and_otherwise_changed>(&ledger, &store).await;
    let run = only_run::<patched_and_otherwise_changed>(&engine).await;
    let parked = run.result().await;
    assert!(
        matches!(&parked, Err(RunError::Parked(parking)) if parking.reason == ParkReason::Diverged),
        "{parked:?}"
    );
    assert_eq!(frames(&store, run.id()).await, recorded[..4]);
}

#[test]
#[should_panic(expected = "patched() was called outside a workflow")]
fn a_patch_outside_a_workflow_is_refused() {
    let _ = patched("way");
}

#[workflow]
async fn nameless() {
    deprecate_patch("");
}

#[tokio::test]
async fn a_patch_without_a_name_parks_the_run() {
    let engine = open::<nameless>(&Ledger::shared(), &MemoryStore::new()).await;
    let run = engine.start(nameless()).await.expect("starts");
    let parked = run.result().await;
    assert!(
        matches!(&parked, Err(RunError::Parked(parking)) if parking.reason == ParkReason::Panicked),
        "{parked:?}"
    );
}
