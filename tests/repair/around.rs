//! What lives beside journals comes through a repair: guarded keys, queues, schedules, children, signals that wait.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use workflow_runtime::repair::repair;
use workflow_runtime::store::{EndKind, StateKind};
use workflow_runtime::{
    Engine, Error, Overlap, Queue, Result, RunId, ScheduleDescription, resource, step, wait_for,
    workflow,
};
use workflow_tests::Ledger;

use super::sound::{content, copy_all};

const PATIENCE: Duration = Duration::from_secs(60);

#[step]
async fn act(what: String) -> Result<()> {
    resource::<Ledger>().act(&what);
    Ok(())
}

/// Waits for a word.
#[workflow]
async fn turn(number: u64) -> Result<u64> {
    act(format!("turn {number}")).await?;
    Ok(number + wait_for::<u64>("go").await?)
}

/// Waits for a child that waits for a word.
#[workflow]
async fn parent() -> Result<u64> {
    act("parent".to_owned()).await?;
    let value = turn(100).await?;
    act("parent again".to_owned()).await?;
    Ok(value)
}

#[workflow]
async fn tick() -> Result<()> {
    act("tick".to_owned()).await
}

async fn open(ledger: &Arc<Ledger>, path: &Path) -> Engine {
    let builder = Engine::builder().resource_arc(ledger.clone());
    let builder = builder
        .register::<turn>()
        .register::<parent>()
        .register::<tick>()
        .queue(Queue::named("one").concurrency(1));
    builder.open(path).await.expect("opens")
}

/// What somebody was told.
struct Told {
    first: RunId,
    second: RunId,
    parent: RunId,
    schedule: ScheduleDescription,
}

/// A run that has its turn, one that waits for it, a parent and its child, a schedule, a guarded key, a signal that came early.
async fn make(path: &Path, began: SystemTime) -> Told {
    let ledger = Ledger::shared();
    let engine = open(&ledger, path).await;
    let first = engine.start(turn(1)).key("first").queue("one").await;
    let first = first.expect("starts");
    let second = engine.start(turn(2)).key("second").queue("one").await;
    let second = second.expect("starts");
    second.signal("go", &20_u64).await.expect("waits");
    let parent = engine.start(parent()).key("parent").await.expect("starts");
    let schedule = declare(&engine, began).await;
    let done = engine.once("guarded").ttl(Duration::from_secs(86_400));
    let done = done.run(|| async { Ok::<u64, Error>(7) }).await;
    assert_eq!(done.expect("done"), 7);
    while ledger.effects() != ["parent", "turn 1", "turn 100"] {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let told = Told {
        first: first.id(),
        second: second.id(),
        parent: parent.id(),
        schedule,
    };
    // Long enough for the archive.
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    let stopping = engine.shutdown().grace(Duration::from_millis(100));
    stopping.await.expect("stops");
    told
}

async fn declare(engine: &Engine, began: SystemTime) -> ScheduleDescription {
    let schedule = engine.schedule("yearly", tick()).overlap(Overlap::Skip);
    let year = Duration::from_secs(365 * 86_400);
    let schedule = schedule.every(year).start_at(began + year).await;
    schedule.expect("declared").describe().await.expect("there")
}

/// Opens a store and has everything in it come to its end.
async fn go_on(path: &Path, told: &Told, began: SystemTime) {
    let ledger = Ledger::shared();
    let engine = open(&ledger, path).await;
    let kept = engine.once("guarded").ttl(Duration::from_secs(86_400));
    let again = kept.run(|| async { Ok::<u64, Error>(8) }).await;
    assert_eq!(again.expect("kept"), 7, "guarded work is not done again");
    let names: Vec<_> = engine.schedules().await.expect("listed");
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(declare(&engine, began).await, told.schedule);

    let (first, second) = (
        engine.run::<turn>(told.first).await.expect("there"),
        engine.run::<turn>(told.second).await.expect("there"),
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ledger.asked(), 0, "the second has to wait for its turn");
    first.signal("go", &10_u64).await.expect("sent");
    assert_eq!(in_time(first.result()).await.expect("ends"), 11);
    // The signal came before the repair.
    assert_eq!(in_time(second.result()).await.expect("ends"), 22);
    assert_eq!(ledger.effects(), ["turn 2"]);

    let children = engine.runs().workflow("turn").await.expect("lists").runs;
    let active = |kind: StateKind| !matches!(kind, StateKind::Ended(EndKind::Completed));
    let child = children.iter().find(|run| active(run.state.kind()));
    let child = child.expect("the child goes on").run;
    engine.signal(child, "go", &5_u64).await.expect("sent");
    let parent = engine.run::<parent>(told.parent).await.expect("there");
    assert_eq!(in_time(parent.result()).await.expect("ends"), 105);
    assert_eq!(ledger.effects(), ["parent again", "turn 2"]);
    engine.shutdown().await.expect("stops");
}

async fn in_time<T>(result: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, result).await;
    result.expect("it hangs")
}

#[tokio::test]
async fn guarded_keys_queues_schedules_children_and_signals_come_through_a_repair() {
    let root = tempfile::tempdir().expect("a directory");
    let (sound, from, to) = (
        root.path().join("sound"),
        root.path().join("from"),
        root.path().join("to"),
    );
    let began = SystemTime::now();
    let told = make(&sound, began).await;
    let copy = root.path().join("copy");
    copy_all(&sound, &copy);
    let notes = content(&copy).await.notes;
    assert!(notes.len() >= 4, "{} notes", notes.len());
    // As it is; with a header in `db` that sled cannot read; with a bit of the log flipped.
    for damage in 0..3 {
        for old in [&from, &to] {
            let _ = fs::remove_dir_all(old);
        }
        copy_all(&sound, &from);
        if damage > 0 {
            let log = fs::read_dir(from.join("log")).expect("there");
            let log = log.map(|file| file.expect("readable").path()).max();
            let path = if damage == 1 {
                from.join("db")
            } else {
                log.expect("a log")
            };
            let mut bytes = fs::read(&path).expect("there");
            let used = bytes.iter().rposition(|byte| *byte != 0).expect("written");
            bytes[if damage == 1 { 6 } else { used / 2 }] ^= 1;
            fs::write(&path, bytes).expect("written");
        }
        let repaired = repair(&from, &to).expect("repaired");
        assert!(repaired.is_whole(), "damage {damage}: {repaired}");
        go_on(&to, &told, began).await;
    }
}
