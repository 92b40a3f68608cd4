//! Looking at runs: lists, journals, timelines, verification.

use std::time::Duration;

use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{EndKind, ParkReason, StateKind};
use workflow_runtime::{
    Engine, EngineError, Error, Result, RunCursor, RunError, get_step_metadata, sleep, step,
    workflow,
};
use workflow_tests::{Edited, frames, steps};

#[step(backoff = "1ms")]
async fn greet(name: &str, fails: u32) -> Result<String> {
    match get_step_metadata().attempt {
        n if n <= fails => Err(Error::new("payload-error")),
        _ => Ok(format!("payload-output {name}")),
    }
}

#[workflow]
async fn welcome(name: String, fails: u32) -> Result<String> {
    let said = greet(&name, fails).await?;
    sleep(Duration::from_millis(1)).await;
    async { greet("again", 0).await }.await?;
    Ok(said)
}

#[workflow]
async fn failing() -> Result<()> {
    Err(Error::new("no"))
}

#[workflow]
async fn asleep() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}

#[workflow]
async fn panicking() -> Result<()> {
    panic!("poison")
}

async fn open() -> Engine {
    open_on(MemoryStore::new()).await
}

async fn open_on(store: MemoryStore) -> Engine {
    Engine::builder()
        .register::<welcome>()
        .register::<failing>()
        .register::<asleep>()
        .register::<panicking>()
        .open_with(store)
        .await
        .expect("opens")
}

#[tokio::test]
async fn runs_are_listed_by_workflow_and_state() {
    let engine = open().await;
    for _ in 0..2 {
        let run = engine.start(welcome("a".into(), 0)).await.expect("starts");
        run.result().await.expect("ends well");
    }
    let failed = engine.start(failing()).await.expect("starts");
    failed.result().await.expect_err("fails");
    let sleeping = engine.start(asleep()).await.expect("starts");
    let parked = engine.start(panicking()).await.expect("starts");
    parked.result().await.expect_err("is parked");

    let all = engine.runs().await.expect("lists");
    assert_eq!(all.runs.len(), 5);
    assert!(all.next.is_none());
    assert!(
        all.runs.is_sorted_by(|a, b| a.created_at >= b.created_at),
        "newest first"
    );
    let only = |name: &str| engine.runs().workflow(name);
    assert_eq!(only("welcome").await.expect("lists").runs.len(), 2);
    assert_eq!(only("unheard of").await.expect("lists").runs.len(), 0);
    for (state, expected) in [
        (StateKind::Active, vec![sleeping.id()]),
        (StateKind::Parked, vec![parked.id()]),
        (StateKind::Ended(EndKind::Failed), vec![failed.id()]),
        (StateKind::Ended(EndKind::Cancelled), vec![]),
    ] {
        let found = engine.runs().state(state).await.expect("lists");
        let found: Vec<_> = found.runs.iter().map(|run| run.run).collect();
        assert_eq!(found, expected, "{state:?}");
    }
    let ended = engine
        .runs()
        .state(StateKind::Ended(EndKind::Completed))
        .state(StateKind::Ended(EndKind::Failed));
    assert_eq!(ended.await.expect("lists").runs.len(), 3);
    let both = only("welcome")
        .state(StateKind::Ended(EndKind::Failed))
        .await
        .expect("lists");
    assert!(both.runs.is_empty());
}

#[tokio::test]
async fn a_cursor_stays_where_it_is_while_runs_are_added() {
    let engine = open().await;
    let mut expected = Vec::new();
    for _ in 0..23 {
        expected.push(engine.start(failing()).await.expect("starts").id());
    }
    let mut seen = Vec::new();
    let mut page = engine.runs().limit(5).await.expect("lists");
    loop {
        seen.extend(page.runs.iter().map(|run| run.run));
        let Some(next) = page.next else { break };
        engine.start(failing()).await.expect("starts");
        let text = next.to_string();
        let next: RunCursor = text.parse().expect("survives as text");
        page = engine.runs().limit(5).after(next).await.expect("lists");
    }
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected, "each once, and none of the new ones");
    let error = "12-nonsense"
        .parse::<RunCursor>()
        .expect_err("is no cursor");
    assert!(error.to_string().contains("12-nonsense"));
}

#[tokio::test]
async fn a_timeline_shows_what_happened_and_never_a_payload() {
    let engine = open().await;
    let run = engine
        .start(welcome("payload-input".into(), 1))
        .key("w-1")
        .await
        .expect("starts");
    run.result().await.expect("ends well");
    let journal = engine.journal(run.id()).await.expect("reads");
    let text = journal.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 1 + 7, "{text}");
    assert_eq!(lines[0], format!("welcome  {}  key \"w-1\"", run.id()));
    let ids: Vec<_> = steps(&journal).iter().map(|s| s.step.to_string()).collect();
    for (line, parts) in lines[1..].iter().zip([
        vec!["+0.0", "0  ▶ started"],
        vec!["1  ↻ greet", &ids[0], "attempt 1 failed →"],
        vec!["2  ✓ greet", &ids[0], "attempt 2"],
        vec!["3  ⏲ sleeps until"],
        vec!["4  ⏰ woke up"],
        vec!["5  ✓ greet", &ids[1], "in a0"],
        vec!["6  ■ completed"],
    ]) {
        for part in parts {
            assert!(line.contains(part), "`{part}` is not in `{line}`");
        }
    }
    assert!(!text.contains("payload"), "{text}");
    let unfinished = engine.start(asleep()).await.expect("starts");
    tokio::task::yield_now().await;
    let text = engine
        .journal(unfinished.id())
        .await
        .expect("reads")
        .to_string();
    assert!(text.trim_end().ends_with("unfinished"), "{text}");
    let failed = engine.start(failing()).await.expect("starts");
    failed.result().await.expect_err("fails");
    let text = engine
        .journal(failed.id())
        .await
        .expect("reads")
        .to_string();
    assert!(text.contains("■ failed"), "{text}");
}

#[tokio::test]
async fn an_intact_store_verifies() {
    let engine = open().await;
    for _ in 0..3 {
        let run = engine.start(welcome("a".into(), 0)).await.expect("starts");
        run.result().await.expect("ends well");
    }
    let verification = engine.verify().await.expect("verifies");
    assert_eq!((verification.runs, verification.records), (3, 18));
    assert!(verification.damaged.is_empty());
}

#[tokio::test]
async fn damage_anywhere_in_a_journal_is_found_and_named() {
    let store = MemoryStore::new();
    let engine = open_on(store.clone()).await;
    let run = engine.start(welcome("a".into(), 0)).await.expect("starts");
    run.result().await.expect("ends well");
    let whole = frames(&store, run.id()).await;
    drop(engine);
    type Damage = Box<dyn Fn(&mut Vec<bytes::Bytes>) + Send + Sync>;
    let mut damages: Vec<(String, Damage)> = vec![
        ("swapped".into(), Box::new(|frames| frames.swap(1, 2))),
        // A chain that is only shorter is whole; what the header says is not in it.
        ("no end".into(), Box::new(|frames| drop(frames.pop()))),
        ("no records".into(), Box::new(Vec::clear)),
        ("missing".into(), Box::new(|frames| drop(frames.remove(2)))),
        (
            "doubled".into(),
            Box::new(|frames| frames.insert(2, frames[1].clone())),
        ),
        (
            "cut".into(),
            Box::new(|frames| frames[1] = frames[1].slice(..20)),
        ),
    ];
    for (n, frame) in whole.iter().enumerate() {
        for at in (0..frame.len()).step_by(7) {
            let flip: Damage = Box::new(move |frames| {
                let mut bytes = frames[n].to_vec();
                bytes[at] ^= 0x10;
                frames[n] = bytes.into();
            });
            damages.push((format!("bit {at} of record {n}"), flip));
        }
    }
    let store = store.reopen(Surviving::Synced);
    for (name, edit) in damages {
        let engine = Engine::builder()
            .register::<welcome>()
            .open_with(Edited {
                store: store.clone(),
                edit,
            })
            .await
            .expect("opens");
        let damaged = engine.verify().await.expect("verifies").damaged;
        assert_eq!(damaged.len(), 1, "{name}");
        assert_eq!(damaged[0].run(), run.id());
        assert!(damaged[0].to_string().contains("record "), "{}", damaged[0]);
        if !name.starts_with("no ") {
            let read = engine.journal(run.id()).await;
            assert!(matches!(read, Err(EngineError::Journal(_))), "{name}");
        }
    }
}

#[tokio::test]
async fn a_run_with_a_journal_of_a_newer_release_is_not_called_corrupt() {
    let store = MemoryStore::new();
    let engine = open_on(store.clone()).await;
    let newer = engine.start(asleep()).await.expect("starts").id();
    while frames(&store, newer).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let edited = Edited {
        store: store.reopen(Surviving::Synced),
        edit: |frames: &mut Vec<bytes::Bytes>| {
            if let Some(second) = frames.get_mut(1) {
                let format = second[0] + 1;
                *second = [&[format], &second[1..]].concat().into();
            }
        },
    };
    let engine = Engine::builder().register::<asleep>();
    let engine = engine.open_with(edited).await.expect("opens");
    let run = engine.run::<asleep>(newer).await.expect("is there");
    let Err(RunError::Parked(parking)) = run.result().await else {
        panic!("is parked");
    };
    assert_eq!(parking.reason, ParkReason::Undecodable);
    assert!(parking.report.contains("upgrade"), "{}", parking.report);
}

#[tokio::test]
async fn a_run_with_a_damaged_journal_is_parked_and_the_others_go_on() {
    let store = MemoryStore::new();
    let engine = open_on(store.clone()).await;
    let damaged = engine.start(asleep()).await.expect("starts").id();
    while frames(&store, damaged).await.len() < 2 {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let edited = Edited {
        store: store.reopen(Surviving::Synced),
        edit: |frames: &mut Vec<bytes::Bytes>| {
            if frames.len() == 2 {
                frames.swap(0, 1);
            }
        },
    };
    let engine = Engine::builder()
        .register::<asleep>()
        .register::<failing>()
        .open_with(edited)
        .await
        .expect("opens");
    let run = engine.run::<asleep>(damaged).await.expect("is there");
    let Err(RunError::Parked(parking)) = run.result().await else {
        panic!("is parked");
    };
    assert_eq!(parking.reason, ParkReason::Corrupt);
    assert!(parking.report.contains("record 0"), "{}", parking.report);
    let other = engine.start(failing()).await.expect("starts");
    assert!(matches!(other.result().await, Err(RunError::Failed(_))));
}
