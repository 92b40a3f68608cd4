//! Steps and workflows that panic, abort the process or block a thread, in a process of their own: the others go on, and
//! what is tried again is bounded.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use workflow_runtime::store::ParkReason;
use workflow_runtime::{Engine, Result, RunError, RunStatus, nondeterministic, step, workflow};

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::scratch;
use super::told::Told;
use super::workload::{self, Line, World, one};

/// What is tried: by the seed.
const KINDS: [&str; 5] = [
    "panic",
    "workflow-panic",
    "abort",
    "workflow-abort",
    "block",
];

/// The signal of `abort`.
const SIGABRT: i32 = 6;

/// More deaths than this and a poison run is never parked.
const MOST_DEATHS: u64 = 12;

/// How often the bad step may be tried: the attempts of a step, unless it says otherwise.
const MOST_ATTEMPTS: u64 = 4;

/// Others that share the process.
const OTHERS: u64 = 6;

/// How long a body blocks its thread.
const BLOCKS: Duration = Duration::from_millis(400);

/// How often the bad step began in this process.
#[derive(Default)]
struct Begun(AtomicU64);

#[step(backoff = "1ms..2ms")]
async fn bad(#[resource] begun: &Begun, kind: &str) -> Result<()> {
    begun.0.fetch_add(1, Ordering::Relaxed);
    match kind {
        "panic" => panic!("on purpose"),
        "abort" => std::process::abort(),
        "block" => std::thread::sleep(BLOCKS),
        _ => {}
    }
    Ok(())
}

#[workflow]
async fn poison(kind: String) -> Result<u64> {
    bad(&kind).await?;
    match &*kind {
        "workflow-panic" => nondeterministic!(panic!("on purpose")),
        "workflow-abort" => nondeterministic!(std::process::abort()),
        _ => Ok(1),
    }
}

/// What the child does: it starts the bad one and others, and lives only if it may.
pub(super) async fn live(kind: &str, dir: &Path) {
    let begun = Arc::new(Begun::default());
    let builder = workload::engine()
        .register::<poison>()
        .resource(World::Outside)
        .resource_arc(begun.clone());
    let engine = match builder.open(dir).await {
        Ok(engine) => engine,
        Err(error) => return Line::Trouble(format!("it does not open: {error}")).say(),
    };
    let others: Vec<_> = (0..OTHERS)
        .map(|number| {
            let engine = engine.clone();
            tokio::spawn(async move { one(&engine, number, 100, &|line| line.say()).await })
        })
        .collect();
    let end = outcome(&engine, kind).await;
    for other in others {
        match other.await {
            Ok(Ok(())) => {}
            other => Line::Trouble(format!("15: another run: {other:?}")).say(),
        }
    }
    if begun.0.load(Ordering::Relaxed) > MOST_ATTEMPTS {
        Line::Trouble(format!("17: begun {:?} times in one process", begun.0)).say();
    }
    match engine.shutdown().await {
        Ok(()) => Line::Stopped(end).say(),
        Err(error) => Line::Trouble(format!("16: shutdown: {error}")).say(),
    }
}

/// Starts the bad run, and says how it ended.
async fn outcome(engine: &Engine, kind: &str) -> String {
    let start = engine.start(poison(kind.to_owned())).key("poison");
    let run = match start.await {
        Ok(run) => run,
        Err(error) => return format!("refused: {error}"),
    };
    match run.result().await {
        Ok(_) => "completed".into(),
        Err(RunError::Failed(_) | RunError::Broken(_)) => "failed".into(),
        Err(RunError::Parked(parking)) => match parking.reason {
            ParkReason::Poison => "poison".into(),
            ParkReason::Panicked => "panicked".into(),
            other => format!("{other:?}"),
        },
        Err(other) => format!(
            "{other} ({:?})",
            run.status().await.unwrap_or(RunStatus::Active)
        ),
    }
}

pub(super) fn case(seed: u64) -> Case {
    let kind = KINDS[usize::try_from(seed).expect("small") % KINDS.len()];
    let directory = scratch::directory();
    let store = directory.path().join("store");
    let dir = store.to_string_lossy().into_owned();
    let (mut told, mut deaths) = (Told::default(), 0);
    while told.stopped.is_none() && deaths <= MOST_DEATHS && told.violations.is_empty() {
        let command = child::command(&["poison", kind, &dir]);
        let (said, status) = Process::start(command).hear_out(PATIENCE);
        told.hear_text(&said);
        match status {
            Some(status) if status.success() => {}
            Some(status) if status.signal() == Some(SIGABRT) && kind.ends_with("abort") => {
                deaths += 1;
            }
            other => told.wrong(format!("15: the process: {other:?}")),
        }
    }
    let right: &[&str] = match kind {
        "panic" => &["failed"],
        "workflow-panic" => &["panicked"],
        // A step that kills its process again and again uses its attempts up, or its run is parked.
        "abort" => &["failed", "poison"],
        "workflow-abort" => &["poison"],
        _ => &["completed"],
    };
    let end = told.stopped.take().unwrap_or_else(|| "never".into());
    if !right.contains(&&*end) {
        told.wrong(format!("15: {kind} ended as {end:?} after {deaths} deaths"));
    }
    if told.finished.len() as u64 != OTHERS {
        told.wrong(format!(
            "15: {} of {OTHERS} others finished",
            told.finished.len()
        ));
    }
    scratch::finish(&store, &mut told);
    Case {
        violations: told.violations,
        count: deaths,
        trace: format!("{kind}: {end} after {deaths} deaths"),
        ..Case::default()
    }
}
