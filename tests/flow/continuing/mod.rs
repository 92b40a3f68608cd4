//! Runs that go on as new ones: what follows the line, what is refused, and what a crash leaves.

mod acting;
mod belongings;
mod crashes;
mod refusals;
mod replaced;
mod retention;

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{EndKind, Origin, StateKind};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Lineage, Result, RunId, RunStatus, Sent, checkpoint,
    continue_as_new, step, wait_for, workflow,
};
use workflow_tests::Ledger;

#[step]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<usize> {
    ledger.act(&what);
    Ok(what.len())
}

/// Does one thing in each of its runs.
#[workflow]
async fn living(at: u64, until: u64) -> Result<u64> {
    act(format!("life {at}")).await?;
    if at == until {
        return Ok(at);
    }
    continue_as_new(living(at + 1, until)).await
}

/// Takes one signal in each of its runs.
#[workflow]
async fn listening(heard: Vec<String>, until: usize) -> Result<Vec<String>> {
    let mut heard = heard;
    heard.push(wait_for::<String>("text").await?);
    act(format!("heard {}", heard.len())).await?;
    if heard.len() == until {
        return Ok(heard);
    }
    continue_as_new(listening(heard, until)).await
}

/// Goes through two passes in each of its runs.
#[workflow]
async fn passing(at: u64) -> Result<u64> {
    act(format!("pass {at}")).await?;
    match at {
        5 => Ok(at),
        _ if at.is_multiple_of(2) => checkpoint(&(at + 1)).await,
        _ => continue_as_new(passing(at + 1)).await,
    }
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<living>()
        .register::<listening>()
        .register::<passing>()
        .resource_arc(ledger.clone())
}

/// Looks until it is so; a test that waits for ever says where.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "still not: {what}"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until the line of a run is so long.
async fn until_line(engine: &Engine, run: RunId, ordinal: u64) -> Lineage {
    until("the line is that long", async || {
        newest(engine, run).await.ordinal >= ordinal
    })
    .await;
    newest(engine, run).await
}

async fn newest(engine: &Engine, run: RunId) -> Lineage {
    let asked = engine.lineage(run).await.expect("is there");
    engine.lineage(asked.newest).await.expect("is there")
}

#[tokio::test]
async fn any_run_of_a_line_gives_the_result_of_the_last() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(living(0, 3)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 3);
    assert_eq!(run.status().await.expect("is there"), RunStatus::Completed);
    let first = run.id();
    let (mut at, mut previous) = (Some(first), None);
    for ordinal in 0..4 {
        let lineage = engine.lineage(at.expect("goes on")).await.expect("reads");
        assert_eq!(Some(lineage.run), at);
        assert_eq!((lineage.first, lineage.ordinal), (first, ordinal));
        assert_eq!(lineage.previous, previous);
        let is_last = lineage.newest == lineage.run;
        assert_eq!(
            (is_last, lineage.next.is_none()),
            (ordinal == 3, ordinal == 3)
        );
        let status = engine.status(lineage.run).await.expect("reads");
        let wanted = [RunStatus::Continued, RunStatus::Completed];
        assert_eq!(status, wanted[usize::from(is_last)]);
        let handle = engine.run::<living>(lineage.run).await.expect("is there");
        assert_eq!(handle.result().await.expect("ends well"), 3);
        (at, previous) = (lineage.next, at);
    }
    assert_eq!(at, None);
    assert_eq!(
        ledger.effects(),
        ["life 0", "life 1", "life 2", "life 3"],
        "each run has step ids of its own"
    );
}

#[tokio::test]
async fn a_line_is_seen_in_lists_journals_and_timelines() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(living(0, 2)).key("k").await.expect("starts");
    run.result().await.expect("ends well");
    let first = run.id();
    let listed = engine.runs().await.expect("lists").runs;
    let origins: Vec<_> = listed.iter().map(|run| run.origin).collect();
    let continued = Some(Origin::Continued(first));
    assert_eq!(origins, [continued, continued, None]);
    assert!(listed.iter().all(|run| run.key.as_deref() == Some("k")));
    let went_on = engine.runs().state(StateKind::Ended(EndKind::Continued));
    assert_eq!(went_on.await.expect("lists").runs.len(), 2);
    let second = engine.lineage(first).await.expect("reads").next;
    let second = second.expect("went on");
    let shown = engine.journal(first).await.expect("reads").to_string();
    assert!(
        shown.contains(&format!("■ continued as {second}")),
        "{shown}"
    );
    let journal = engine.journal(second).await.expect("reads");
    let shown = journal.to_string();
    let line = format!("↪ continues        {first}  number 1 of the line of {first}");
    assert!(shown.contains(&line), "{shown}");
    let Event::RunStarted(started) = &journal.records()[0].event else {
        panic!("{shown}");
    };
    assert_eq!((started.key.as_deref(), started.version), (Some("k"), 1));
    let verified = engine.verify().await.expect("verifies");
    assert_eq!((verified.runs, verified.damaged.len()), (3, 0));
}

#[tokio::test]
async fn a_key_names_the_newest_run_and_the_input_of_the_first() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let start = |engine: &Engine| engine.start(listening(Vec::new(), 3)).key("k");
    let first = start(&engine).await.expect("starts");
    first.signal("text", "a").await.expect("sends");
    let line = until_line(&engine, first.id(), 1).await;
    let again = start(&engine).await.expect("the same");
    assert_eq!(again.id(), line.newest);
    assert_ne!(again.id(), first.id());
    let as_it_is_now = engine.start(listening(vec!["a".into()], 3)).key("k").await;
    let refused = as_it_is_now.expect_err("another input");
    assert!(
        matches!(&refused, EngineError::Conflict { run, .. } if *run == first.id()),
        "{refused}"
    );
    for text in ["b", "c"] {
        again.signal("text", text).await.expect("sends");
    }
    assert_eq!(first.result().await.expect("ends well"), ["a", "b", "c"]);
    let ended = start(&engine).await.expect("the same, though it has ended");
    assert_eq!(ended.result().await.expect("ends well"), ["a", "b", "c"]);
    assert_eq!(engine.runs().await.expect("lists").runs.len(), 3);
}

#[tokio::test]
async fn signals_arrive_in_order_whichever_run_they_are_sent_to() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger);
    let engine_now = builder.open_with(store.clone()).await.expect("opens");
    let run = engine_now
        .start(listening(Vec::new(), 40))
        .await
        .expect("starts")
        .id();
    // A burst: some are in the journal and not taken when the run goes on, some in its mailbox.
    for n in 0..20 {
        let sent = engine_now.signal(run, "text", &n.to_string()).await;
        sent.expect("sends");
    }
    until_line(&engine_now, run, 10).await;
    drop(engine_now);
    let engine_now = engine(&ledger)
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    for n in 20..40 {
        let to = match n % 2 {
            0 => run,
            _ => newest(&engine_now, run).await.run,
        };
        let sent = engine_now.signal(to, "text", &n.to_string()).await;
        sent.expect("sends");
    }
    let handle = engine_now.run::<listening>(run).await.expect("is there");
    let heard = handle.result().await.expect("ends well");
    let wanted: Vec<_> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!(heard, wanted);
    let late = engine_now.signal(run, "text", "late").await;
    let late = late.expect_err("the line has ended");
    assert!(matches!(late, EngineError::Ended(_)), "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_while_runs_go_on_and_leave_memory() {
    let ledger = Ledger::shared();
    let builder = engine(&ledger).evict_after(Duration::ZERO);
    let engine = builder.open_in_memory().await.expect("opens");
    for round in 0..60 {
        let run = engine.start(listening(Vec::new(), 6)).await;
        let run = run.expect("starts");
        let mut tasks = Vec::new();
        for n in 0..6_u32 {
            let sending = run.signal("text", &n.to_string());
            tasks.push(tokio::spawn(sending.into_future()));
        }
        for task in tasks {
            task.await.expect("no panic").expect("sends");
        }
        let result = tokio::time::timeout(Duration::from_secs(30), run.result()).await;
        let heard = result.unwrap_or_else(|_| panic!("hangs in round {round}"));
        assert_eq!(heard.expect("ends well").len(), 6);
    }
}

#[tokio::test]
async fn a_repeated_sending_counts_once_in_the_whole_line() {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).open_in_memory().await.expect("opens");
    let run = engine.start(listening(Vec::new(), 3)).await;
    let run = run.expect("starts");
    for (at, text) in [(1, "a"), (2, "b")] {
        let sent = run.signal("text", text).key(text).await.expect("sends");
        assert_eq!(sent, Sent::Accepted);
        let line = until_line(&engine, run.id(), at).await;
        for to in [run.id(), line.newest] {
            let again = engine.signal(to, "text", text).key(text).await;
            assert_eq!(again.expect("sends"), Sent::Duplicate, "{at}");
        }
    }
    run.signal("text", "c").key("c").await.expect("sends");
    assert_eq!(run.result().await.expect("ends well"), ["a", "b", "c"]);
}

#[tokio::test]
async fn checkpoints_and_new_runs_take_turns() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let builder = engine(&ledger);
    let engine_now = builder.open_with(store).await.expect("opens");
    let run = engine_now.start(passing(0)).await.expect("starts");
    assert_eq!(run.result().await.expect("ends well"), 5);
    assert_eq!(ledger.effects().len(), 6);
    assert_eq!(newest(&engine_now, run.id()).await.ordinal, 2);
}

/// Version 1 hands over to version 2, which takes other arguments.
#[workflow(name = "growing", version = 1)]
async fn growing(number: u32) -> Result<String> {
    act(format!("grow {number}")).await?;
    continue_as_new(grown(number.to_string(), true)).await
}

#[workflow(name = "growing", version = 2)]
async fn grown(text: String, more: bool) -> Result<String> {
    act(format!("grown {text} {more}")).await?;
    match more {
        true => continue_as_new(grown(text, false)).await,
        false => Ok(text),
    }
}

#[tokio::test]
async fn a_newer_version_of_the_workflow_can_go_on() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let old = Engine::builder().resource_arc(ledger.clone());
    let old = old.register::<growing>().open_with(store.clone()).await;
    let old = old.expect("opens");
    let run = old.start(growing(7)).await.expect("starts").id();
    until("it is parked", async || {
        matches!(old.status(run).await, Ok(RunStatus::Parked(_)))
    })
    .await;
    let RunStatus::Parked(parking) = old.status(run).await.expect("reads") else {
        panic!("it was parked");
    };
    assert!(
        parking.report.contains("continue_as_new(..) at"),
        "{}",
        parking.report
    );
    drop(old);
    let new = Engine::builder().resource_arc(ledger.clone());
    let new = new.register::<growing>().register::<grown>();
    let store = store.reopen(Surviving::Synced);
    let new = new.open_with(store).await.expect("opens");
    let handle = new.run::<growing>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends well"), "7");
    let line = newest(&new, run).await;
    let last = new.journal(line.newest).await.expect("reads");
    assert_eq!((line.ordinal, last.header().version), (2, 2));
}
