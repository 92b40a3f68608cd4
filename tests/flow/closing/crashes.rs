//! Crashes while a run does not complete: at every write, in the grace, before a letter is heard.

use super::*;

/// Runs a story to its end through one crash, and gives how it ended, its effects, how many writes.
async fn through(how: &str, plan: FaultPlan) -> (String, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger).open_with(store.clone()).await;
            let engine = engine.expect("opens");
            let run = engine.start(story(how.into())).key("s").await;
            let run = run.expect("starts");
            if how == "slow" || how == "child waits" {
                let last = match how {
                    "slow" => "open a door",
                    _ => "open in the child",
                };
                while !ledger.effects().iter().any(|effect| effect == last) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_millis(4)).await;
                match run.cancel().await {
                    Ok(()) | Err(EngineError::Ended(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            let error = run.result().await.expect_err("does not complete");
            while !engine
                .runs()
                .await
                .expect("lists")
                .runs
                .iter()
                .all(|header| matches!(header.state, workflow_runtime::store::RunState::Ended(_)))
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            error.to_string()
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            error = timeout(LONG, living) => {
                return (error.expect("does not hang"), ledger.effects(), store.writes());
            }
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_run_that_does_not_complete_ends_it_the_same_way() {
    let stories = [
        "swallowed",
        "in flight",
        "abort in flight",
        "child fails",
        "child waits",
        "child is given up",
    ];
    for how in stories {
        let (error, effects, writes) = through(how, FaultPlan::none()).await;
        for write in 0..writes {
            for fault in [Fault::CrashBefore, Fault::CrashAfter] {
                let after = through(how, FaultPlan::at(write, fault)).await;
                assert_eq!(after.0, error, "{how} {write} {fault:?}");
                // What was in flight when the process died gave nothing to be undone with.
                let known = |effects: &[String]| -> Vec<String> {
                    let known = effects.iter().map(|it| {
                        let it = it.replace("a door None", "a door Some(2)");
                        it.replace("in the child None", "in the child Some(1)")
                    });
                    known.collect()
                };
                assert_eq!(known(&after.1), known(&effects), "{how} {write} {fault:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_crash_in_the_grace_of_a_cancelled_run_undoes_what_was_in_flight() {
    let (error, effects, writes) = through("slow", FaultPlan::none()).await;
    assert!(error.contains("cancelled"), "{error}");
    for write in 0..writes {
        let after = through("slow", FaultPlan::at(write, Fault::CrashAfter)).await;
        assert_eq!(
            (after.0, after.1),
            (error.clone(), effects.clone()),
            "{write}"
        );
    }
    // And at a moment that is no write.
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first.start(story("slow".into())).await.expect("starts");
    settle().await;
    run.cancel().await.expect("asks");
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(first);
    let store = store.reopen(Surviving::Synced);
    let next = engine(&ledger).open_with(store).await.expect("opens");
    let run = next.run::<story>(run.id()).await.expect("is there");
    run.result().await.expect_err("cancelled");
    assert_eq!(ledger.effects(), effects);
    assert_eq!(ledger.asked(), 4, "the cancelled body was not begun again");
}

#[tokio::test]
async fn a_request_to_cancel_that_waited_is_heard_before_any_body_begins_again() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first.start(story("slow".into())).await.expect("starts");
    settle().await;
    // The letter is durable, and the process dies before the run has heard of it.
    let writes = store.writes();
    store.set_faults(FaultPlan::at(writes + 1, Fault::CrashBefore));
    run.cancel().await.expect("asks");
    store.crashed().await;
    drop(first);
    let store = store.reopen(Surviving::Synced);
    let next = engine(&ledger).open_with(store).await.expect("opens");
    let run = next.run::<story>(run.id()).await.expect("is there");
    run.result().await.expect_err("cancelled");
    let effects = [
        "open the first",
        "open a door",
        "close a door None",
        "close the first Some(1)",
    ];
    assert_eq!(ledger.in_order(), effects);
    assert_eq!(ledger.asked(), 4, "the body in flight was not begun again");
}

#[workflow]
async fn leaver() -> Result<u32> {
    open("the first").await?;
    drop(start_child(short().detached()));
    Ok(1)
}

#[workflow]
async fn short() -> Result<u32> {
    open("in the short one").await
}

#[tokio::test]
async fn a_child_that_is_called_right_before_the_end_is_created_whatever_crashes() {
    for write in 0..6 {
        for fault in [Fault::CrashBefore, Fault::CrashAfter] {
            let ledger = Ledger::shared();
            let mut store = MemoryStore::with_faults(FaultPlan::at(write, fault));
            loop {
                let builder = Engine::builder()
                    .register::<leaver>()
                    .register::<short>()
                    .resource_arc(ledger.clone());
                let living = async {
                    let engine = builder.open_with(store.clone()).await.expect("opens");
                    let run = engine.start(leaver()).key("l").await.expect("starts");
                    run.result().await.expect("ends well");
                    let page = engine.runs().workflow("short").await.expect("lists");
                    assert_eq!(page.runs.len(), 1, "{write} {fault:?}");
                    let child = engine.run::<short>(page.runs[0].run).await;
                    child.expect("is there").result().await.expect("ends well");
                };
                tokio::select! {
                    biased;
                    () = store.crashed() => {}
                    () = living => break,
                }
                store = store.reopen(Surviving::Synced);
            }
            assert_eq!(ledger.effects().len(), 2, "{write} {fault:?}");
        }
    }
}
