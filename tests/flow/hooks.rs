//! Hooks: signals by a token, one holder at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::select;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::store::{Commit, Committed, NoteChange, NoteKey, Store};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Result, RunError, RunStatus, Sent, hook, step, wait_for,
    workflow,
};
use workflow_tests::{Ledger, ids_of};

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<usize> {
    ledger.act(what);
    Ok(what.len())
}

#[workflow]
async fn paying(token: String, count: usize) -> Result<Vec<u64>> {
    let mut payments = hook::<u64>(&token).await?;
    act("asked to pay").await?;
    let mut paid = Vec::new();
    while paid.len() < count {
        let cents = payments.next().await?;
        act(&format!("paid {cents}")).await?;
        paid.push(cents);
    }
    Ok(paid)
}

#[workflow]
async fn closing(token: String) -> Result<u64> {
    let mut payments = hook::<u64>(&token).await?;
    let cents = payments.next().await?;
    payments.close().await?;
    wait_for::<()>("end").await?;
    Ok(cents)
}

#[workflow]
async fn taking_twice(token: String) -> Result<(u64, u64)> {
    let mut first = hook::<u64>(&token).await?;
    let one = first.next().await?;
    drop(first); // lets nothing go
    let mut second = hook::<u64>(&token).await?;
    assert_eq!(second.token(), token);
    Ok((one, second.next().await?))
}

#[workflow]
async fn merging(left: String, right: String) -> Result<Vec<u64>> {
    let both = select(hook::<u64>(&left).await?, hook::<u64>(&right).await?);
    both.take(3).collect::<Vec<_>>().await.into_iter().collect()
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<paying>()
        .register::<closing>()
        .register::<taking_twice>()
        .register::<merging>()
        .resource_arc(ledger.clone())
}

/// Sends until somebody holds the token.
async fn send(engine: &Engine, token: &str, value: u64) {
    loop {
        match engine.signal_token(token, &value).await {
            Ok(sent) => return assert_eq!(sent, Sent::Accepted),
            Err(EngineError::NoHook { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn ends_as(engine: &Engine, run: workflow_runtime::RunId, status: RunStatus) {
    while engine.status(run).await.expect("is there") != status {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_token_leads_to_the_run_that_holds_it() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let refused = engine
        .signal_token("order-7", &1)
        .await
        .expect_err("nobody");
    assert!(
        matches!(&refused, EngineError::NoHook { token } if token == "order-7"),
        "{refused}"
    );
    let run = engine
        .start(paying("order-7".into(), 2))
        .await
        .expect("starts");
    send(&engine, "order-7", 100).await;
    let again = |key: &'static str| engine.signal_token("order-7", &200u64).key(key);
    assert_eq!(again("a").await.expect("sends"), Sent::Accepted);
    assert_eq!(run.result().await.expect("ends well"), [100, 200]);
    let late = engine
        .signal_token("order-7", &1)
        .await
        .expect_err("it has ended");
    assert!(matches!(late, EngineError::NoHook { .. }), "{late}");
}

#[tokio::test]
async fn a_repeated_sending_to_a_token_counts_once() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(paying("t".into(), 2)).await.expect("starts");
    send(&engine, "t", 1).await;
    for expected in [Sent::Accepted, Sent::Duplicate] {
        // The second one may come when the run has ended: then nobody holds the token.
        match engine.signal_token("t", &2u64).key("k").await {
            Ok(sent) => assert_eq!(sent, expected),
            Err(EngineError::NoHook { .. }) => assert_eq!(expected, Sent::Duplicate),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(run.result().await.expect("ends well"), [1, 2]);
}

#[tokio::test]
async fn a_token_that_is_held_is_refused_and_the_holder_named() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let holder = engine.start(paying("t".into(), 1)).await.expect("starts");
    while ledger.effects().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = engine.start(closing("t".into())).await.expect("starts");
    match second.result().await {
        Err(RunError::Failed(error)) => {
            let text = error.to_string();
            assert!(text.contains(&holder.id().to_string()), "{text}");
            assert!(text.contains("`paying`"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    // The holder was not disturbed.
    send(&engine, "t", 5).await;
    assert_eq!(holder.result().await.expect("ends well"), [5]);
}

#[tokio::test]
async fn a_token_is_free_again_when_its_run_has_ended_however_it_did() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let first = engine.start(paying("t".into(), 1)).await.expect("starts");
    send(&engine, "t", 1).await;
    first.result().await.expect("ends well");
    let second = engine.start(paying("t".into(), 9)).await.expect("starts");
    send(&engine, "t", 2).await;
    second.cancel().await.expect("asks");
    ends_as(&engine, second.id(), RunStatus::Cancelled).await;
    let third = engine.start(paying("t".into(), 1)).await.expect("starts");
    send(&engine, "t", 3).await;
    assert_eq!(third.result().await.expect("ends well"), [3]);
}

#[tokio::test]
async fn the_write_that_ends_a_run_lets_its_token_go() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let run = engine.start(paying("t".into(), 1)).await.expect("starts");
    send(&engine, "t", 1).await;
    run.result().await.expect("ends well");
    let note = NoteKey::new(1, &[b"default", b"t"]);
    assert_eq!(store.note(note).await.expect("reads"), None);
}

#[tokio::test]
async fn a_closed_hook_lets_its_token_go_and_the_end_takes_it_from_nobody() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let first = engine.start(closing("t".into())).await.expect("starts");
    send(&engine, "t", 1).await;
    while !matches!(
        engine.signal_token("t", &0u64).await,
        Err(EngineError::NoHook { .. })
    ) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = engine.start(paying("t".into(), 1)).await.expect("starts");
    while ledger.effects().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.signal("end", &()).await.expect("sends");
    assert_eq!(first.result().await.expect("ends well"), 1);
    let sent = engine.signal_token("t", &2u64).await.expect("still held");
    assert_eq!(sent, Sent::Accepted);
    assert_eq!(second.result().await.expect("ends well"), [2]);
}

#[tokio::test]
async fn the_same_run_takes_its_token_again_and_a_dropped_hook_lets_nothing_go() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine
        .start(taking_twice("t".into()))
        .await
        .expect("starts");
    send(&engine, "t", 1).await;
    send(&engine, "t", 2).await;
    assert_eq!(run.result().await.expect("ends well"), (1, 2));
}

#[tokio::test]
async fn hooks_are_streams() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine
        .start(merging("l".into(), "r".into()))
        .await
        .expect("starts");
    for (token, value) in [("l", 1), ("r", 2), ("l", 3)] {
        send(&engine, token, value).await;
    }
    assert_eq!(run.result().await.expect("ends well"), [1, 2, 3]);
}

#[tokio::test]
async fn a_token_belongs_to_its_namespace() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let open = |namespace: &'static str| {
        let builder = engine(&ledger).namespace(namespace);
        builder.open_with(store.clone())
    };
    let (one, two) = (
        open("one").await.expect("opens"),
        open("two").await.expect("opens"),
    );
    let first = one.start(paying("t".into(), 1)).await.expect("starts");
    let second = two.start(paying("t".into(), 1)).await.expect("starts");
    send(&one, "t", 1).await;
    send(&two, "t", 2).await;
    assert_eq!(first.result().await.expect("ends well"), [1]);
    assert_eq!(second.result().await.expect("ends well"), [2]);
}

#[tokio::test]
async fn the_token_of_a_run_that_ended_without_letting_go_is_taken_over() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let engine = engine(&ledger)
        .open_with(store.clone())
        .await
        .expect("opens");
    let gone = engine
        .start(paying("other".into(), 0))
        .await
        .expect("starts");
    gone.result().await.expect("ends well");
    let mut left = Commit::default();
    left.changes.notes.push(NoteChange {
        key: NoteKey::new(1, &[b"default", b"t"]),
        value: Some(gone.id().as_bytes().to_vec().into()),
    });
    assert_eq!(store.commit(left).await.expect("writes"), Committed::Done);
    let nobody = engine
        .signal_token("t", &1)
        .await
        .expect_err("it has ended");
    assert!(matches!(nobody, EngineError::NoHook { .. }), "{nobody}");
    let run = engine.start(paying("t".into(), 1)).await.expect("starts");
    send(&engine, "t", 1).await;
    assert_eq!(run.result().await.expect("ends well"), [1]);
}

#[tokio::test]
async fn a_token_has_a_limit() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    for token in [String::new(), "x".repeat(257)] {
        let refused = engine.signal_token(&token, &1).await.expect_err("no token");
        assert!(matches!(refused, EngineError::Name { .. }), "{refused}");
        let run = engine.start(paying(token, 1)).await.expect("starts");
        let error = run.result().await.expect_err("no token");
        assert!(error.to_string().contains("token"), "{error}");
    }
    let run = engine
        .start(paying("x".repeat(256), 1))
        .await
        .expect("starts");
    send(&engine, &"x".repeat(256), 4).await;
    assert_eq!(run.result().await.expect("ends well"), [4]);
}

/// A sender that does not know what arrived sends all under keys until the run has ended.
async fn pay_through(plan: FaultPlan) -> (Vec<u64>, Vec<String>, u64) {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine
                .start(paying("t".into(), 2))
                .key("story")
                .await
                .expect("starts");
            let sending = async {
                loop {
                    for cents in [100u64, 200] {
                        match engine.signal_token("t", &cents).key(cents).await {
                            Ok(_) | Err(EngineError::NoHook { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                paid = run.result() => {
                    let journal = engine.journal(run.id()).await.expect("reads");
                    assert_eq!(ids_of(&journal, "hook").len(), 1, "{journal}");
                    let free = engine.signal_token("t", &1u64).await;
                    assert!(matches!(free, Err(EngineError::NoHook { .. })), "{free:?}");
                    paid.expect("ends well")
                }
                () = sending => unreachable!("it never ends"),
            }
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            paid = living => return (paid, ledger.effects(), store.writes()),
        }
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn a_crash_at_any_write_loses_neither_token_nor_value() {
    let (paid, effects, writes) = pay_through(FaultPlan::none()).await;
    assert_eq!(effects, ["asked to pay", "paid 100", "paid 200"]);
    assert!(writes >= 9, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            let (mut after, again, _) = pay_through(FaultPlan::at(write, fault)).await;
            after.sort_unstable(); // a sender that starts anew may send the second first
            assert_eq!((&after, &again), (&paid, &effects), "{write} {fault:?}");
        }
    }
}
