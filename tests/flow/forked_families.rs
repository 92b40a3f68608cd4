//! Forks of runs that have a family: parents, children and what was undone stay the origin's.

use std::time::Duration;

use workflow_runtime::journal::Event;
use workflow_runtime::store::RunState;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::check_invariants;
use workflow_runtime::{
    Engine, EngineError, Error, Result, RunError, RunHandle, RunId, RunStatus, checkpoint, step,
    wait_for, workflow,
};
use workflow_tests::Ledger;

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[step(undo = take_back)]
async fn give(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.act(what);
    Ok(())
}

#[step]
async fn take_back(#[resource] ledger: &Ledger, what: String, _given: Option<()>) {
    ledger.act(&format!("no {what}"));
}

#[workflow]
async fn child() -> Result<u64> {
    act("child").await?;
    wait_for::<u64>("value").await
}

#[workflow]
async fn parent() -> Result<u64> {
    act("parent").await?;
    child().await
}

/// A child that begins anew, and ends when it is told to.
#[workflow]
async fn passing(pass: u64) -> Result<u64> {
    match pass {
        0 => checkpoint(&1_u64).await,
        _ => wait_for::<u64>("value").await,
    }
}

#[workflow]
async fn of_passing() -> Result<u64> {
    passing(0).await
}

#[workflow]
async fn regrets() -> Result<()> {
    give("money").await?;
    act("more").await?;
    Err(Error::fatal("regret"))
}

async fn open(store: &MemoryStore) -> Engine {
    let builder = Engine::builder()
        .register::<child>()
        .register::<parent>()
        .register::<passing>()
        .register::<of_passing>()
        .register::<regrets>()
        .evict_after(Some(Duration::from_millis(5)))
        .resource_arc(Ledger::shared());
    builder.open_with(store.clone()).await.expect("opens")
}

/// A parent that waits for its child, which waits for a value.
async fn family(engine: &Engine) -> (RunHandle<parent>, RunId) {
    let parent = engine.start(parent()).await.expect("starts");
    loop {
        let children = engine.runs().workflow(child::NAME).await.expect("lists");
        let Some(child) = children.runs.first() else {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let journal = engine.journal(child.run).await.expect("reads");
        if journal.records().len() == 2 {
            return (parent, child.run);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn in_time<T>(result: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(Duration::from_secs(60), result).await;
    result.expect("it hangs")
}

#[tokio::test]
async fn a_parent_does_not_hear_of_the_end_of_a_fork_of_its_child() {
    let engine = open(&MemoryStore::new()).await;
    let (parent, child) = family(&engine).await;
    let fork = engine.fork(child).await.expect("is forked");
    let made = engine.run::<self::child>(fork).await.expect("there");
    engine.signal(fork, "value", &1_u64).await.expect("sent");
    assert_eq!(in_time(made.result()).await.expect("ends"), 1);
    // Had the parent heard of it, it would end now, with a value that its child never gave.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let status = parent.status().await.expect("reads");
    assert!(matches!(status, RunStatus::Active), "{status:?}");
    engine.signal(child, "value", &2_u64).await.expect("sent");
    assert_eq!(in_time(parent.result()).await.expect("ends"), 2);
    assert_eq!(check_invariants(&engine).await.expect("checks"), []);
}

#[tokio::test]
async fn who_terminates_a_fork_neither_ends_its_originals_child_nor_tells_its_parent() {
    let engine = open(&MemoryStore::new()).await;
    let (parent, child) = family(&engine).await;
    let of_child = engine.fork(child).await.expect("is forked");
    engine.terminate(of_child).await.expect("ends");
    let of_parent = engine.fork(parent.id()).await.expect("is forked");
    engine.terminate(of_parent).await.expect("ends");
    tokio::time::sleep(Duration::from_millis(50)).await;
    engine.signal(child, "value", &2_u64).await.expect("sent");
    assert_eq!(in_time(parent.result()).await.expect("ends"), 2);
    assert_eq!(check_invariants(&engine).await.expect("checks"), []);
}

#[tokio::test]
async fn nor_does_it_if_the_fork_has_begun_anew_and_another_process_goes_on_with_it() {
    let mut store = MemoryStore::new();
    let engine = open(&store).await;
    let parent = engine.start(of_passing()).await.expect("starts").id();
    let forked = async {
        loop {
            let children = engine.runs().workflow(passing::NAME).await.expect("lists");
            if let Some(child) = children.runs.first() {
                return child.run;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let child = in_time(forked).await;
    let ends = engine.fork(child).at(1).await.expect("is forked");
    let is_terminated = engine.fork(child).at(1).await.expect("is forked");
    // Until all of them wait in their second pass, in which nothing tells that two of them were forked.
    for run in [child, ends, is_terminated] {
        let begun_anew = async {
            loop {
                let journal = engine.journal(run).await.expect("reads");
                let is_checkpoint = |event: &Event| matches!(event, Event::Checkpoint(_));
                if journal.records().iter().any(|it| is_checkpoint(&it.event)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time(begun_anew).await;
    }
    drop(engine);
    store = store.reopen(Surviving::Synced);
    let engine = open(&store).await;
    engine.signal(ends, "value", &1_u64).await.expect("sent");
    let made = engine.run::<passing>(ends).await.expect("there");
    assert_eq!(in_time(made.result()).await.expect("ends"), 1);
    engine.terminate(is_terminated).await.expect("ends");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let parent = engine.run::<of_passing>(parent).await.expect("there");
    let status = parent.status().await.expect("reads");
    assert!(matches!(status, RunStatus::Active), "{status:?}");
    engine.signal(child, "value", &2_u64).await.expect("sent");
    assert_eq!(in_time(parent.result()).await.expect("ends"), 2);
    assert_eq!(check_invariants(&engine).await.expect("checks"), []);
}

/// What the fork of a parent shares of a child that goes on is not its own: nobody tells it how that one ends.
#[tokio::test]
async fn a_fork_of_a_parent_is_no_orphan_when_the_child_of_its_origin_has_ended() {
    let engine = open(&MemoryStore::new()).await;
    let (parent, child) = family(&engine).await;
    let fork = engine.fork(parent.id()).await.expect("is forked");
    engine.signal(child, "value", &2_u64).await.expect("sent");
    assert_eq!(in_time(parent.result()).await.expect("ends"), 2);
    let own = async {
        loop {
            let children = engine.runs().workflow(child::NAME).await.expect("lists");
            let own = children.runs.iter().find(|it| it.run != child);
            if let Some(own) = own {
                return own.run;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let own = in_time(own).await;
    // It has left memory by then, and waits for a child of its own.
    let asleep = async {
        loop {
            let header = engine.runs().await.expect("lists").runs;
            let state = header.iter().find(|it| it.run == fork).map(|it| &it.state);
            if matches!(state, Some(RunState::Asleep { .. })) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(asleep).await;
    assert_eq!(check_invariants(&engine).await.expect("checks"), []);
    engine.signal(own, "value", &3_u64).await.expect("sent");
    let fork = engine.run::<self::parent>(fork).await.expect("there");
    assert_eq!(in_time(fork.result()).await.expect("ends"), 3);
}

#[tokio::test]
async fn what_was_undone_is_not_undone_again_by_a_fork() {
    let engine = open(&MemoryStore::new()).await;
    let run = engine.start(regrets()).await.expect("starts");
    assert!(matches!(run.result().await, Err(RunError::Failed(_))));
    let journal = engine.journal(run.id()).await.expect("reads");
    let records = journal.records().iter();
    let closes = |event: &Event| matches!(event, Event::RunClosing(_));
    let closing = records
        .clone()
        .find(|it| closes(&it.event))
        .expect("closes");
    for behind in closing.seq + 1..records.len() as u64 {
        match run.fork().at(behind).await {
            Err(error @ EngineError::NoForkPoint { .. }) => {
                let says = format!("from record {} on the run undid", closing.seq);
                assert!(error.to_string().contains(&says), "{error}");
            }
            other => panic!("record {behind}: {:?}", other.map(|run| run.id())),
        }
    }
    // At its end means before it began to undo.
    let fork = run.fork().await.expect("is forked");
    let made = engine.journal(fork.id()).await.expect("reads");
    let place = made
        .records()
        .iter()
        .position(|it| matches!(it.event, Event::RunForked(_)));
    assert_eq!(place, Some(closing.seq as usize), "{made}");
}
