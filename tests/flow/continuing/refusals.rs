//! What `continue_as_new` refuses, and how.

use futures::join;
use workflow_runtime::store::{Commit, NoteChange, ParkReason, Store};

use super::*;

#[step(undo = forget)]
async fn remember(what: String) -> Result<()> {
    let _ = what;
    Ok(())
}

#[step]
async fn forget(#[resource] ledger: &Ledger, what: String, done: Option<()>) -> Result<()> {
    ledger.act(&format!("forgot {what} {done:?}"));
    Ok(())
}

#[workflow]
async fn hasty(how: u32) -> Result<()> {
    match how {
        0 => {
            let anew = async {
                let () = continue_as_new(hasty(9)).await;
            };
            join!(act("slow".into()), anew).0.map(drop)
        }
        1 => {
            remember("this".into()).await?;
            continue_as_new(hasty(9)).await
        }
        2 => continue_as_new(living(0, 0)).await,
        3 => continue_as_new(hasty(9).key("other")).await,
        4 => continue_as_new(hasty(9).detached()).await,
        _ => Ok(()),
    }
}

#[step(max_attempts = 1)]
async fn misplaced() -> Result<()> {
    continue_as_new(hasty(9)).await
}

#[workflow]
async fn misplacing() -> Result<()> {
    misplaced().await
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    super::engine(ledger)
        .register::<hasty>()
        .register::<misplacing>()
}

#[tokio::test]
async fn what_would_lose_something_fails_the_run_and_says_what() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let refusals = [
        "`act` at",
        "steps to undo, which the new run would not know of",
        "a run of `hasty` cannot go on as one of `living`",
        "has a key or is detached",
        "has a key or is detached",
    ];
    for (how, words) in (0..).zip(refusals) {
        let run = engine.start(hasty(how)).await.expect("starts");
        let error = run.result().await.expect_err("cannot go on").to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains("continue_as_new(..) at tests"), "{error}");
    }
    let runs = engine.runs().await.expect("lists").runs;
    assert_eq!(runs.len(), refusals.len(), "none went on");
    assert!(
        ledger
            .effects()
            .contains(&"forgot this Some(())".to_owned()),
        "what was done is undone"
    );
}

#[tokio::test]
async fn a_step_cannot_continue_its_run() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(misplacing()).await.expect("starts");
    let error = run.result().await.expect_err("fails").to_string();
    assert!(error.contains("inside step `misplaced`"), "{error}");
}

#[tokio::test]
#[should_panic(expected = "was called outside a workflow")]
async fn there_is_nothing_to_continue_outside_a_workflow() {
    continue_as_new(hasty(0)).await
}

#[tokio::test]
async fn a_run_whose_line_does_not_know_it_is_parked() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first.start(listening(Vec::new(), 3)).await.expect("starts");
    run.signal("text", "a").await.expect("sends");
    let line = until_line(&first, run.id(), 1).await;
    drop(first);
    let store = store.reopen(Surviving::Synced);
    let mut commit = Commit::default();
    commit.changes.notes.push(NoteChange {
        key: workflow_runtime::store::Newest::key(line.first),
        value: None,
    });
    store.commit(commit).await.expect("writes");
    let second = engine(&ledger).open_with(store).await.expect("opens");
    until("it is parked", async || {
        let status = second.status(line.run).await.expect("reads");
        matches!(status, RunStatus::Parked(parking) if parking.reason == ParkReason::Corrupt)
    })
    .await;
}

/// Goes on without taking what it was sent.
#[workflow]
async fn deaf(at: u32) -> Result<u32> {
    wait_for::<()>("on").await?;
    match at {
        1 => Ok(at),
        _ => continue_as_new(deaf(at + 1)).await,
    }
}

#[tokio::test]
async fn more_signals_than_a_write_takes_are_not_carried_but_named() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger).register::<deaf>();
    let engine = builder.open_in_memory().await.expect("opens");
    for (megabytes, goes_on) in [(3, true), (34, false)] {
        let run = engine.start(deaf(0)).await.expect("starts");
        for _ in 0..megabytes {
            let text = "x".repeat(1 << 20);
            run.signal("text", &text).await.expect("sends");
        }
        for _ in 0..2 {
            match run.signal("on", &()).await {
                Ok(_) | Err(EngineError::Ended(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        match run.result().await {
            Ok(at) => assert_eq!((at, goes_on), (1, true)),
            Err(error) => {
                assert!(!goes_on, "{error}");
                let error = error.to_string();
                assert!(
                    error.contains("of signals wait that were not taken"),
                    "{error}"
                );
            }
        }
    }
}
