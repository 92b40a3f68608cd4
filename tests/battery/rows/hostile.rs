//! Huge and hostile input: payloads from one byte to 256 MiB, nested 10,000 deep, lengths that claim 2^60. A typed error at
//! the limit, and memory that is bounded.
//!
//! Each case is a child, because a stack that overflows takes its process with it.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use workflow_runtime::export::JournalFile;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::{
    Changes, Commit, Durability, Letter, NewRun, RunHeader, RunState, Store as _,
};
use workflow_runtime::{
    Engine, EngineError, PayloadError, Result, RunError, step, wait_for, workflow,
};

use super::Case;
use super::child::{self, PATIENCE, Process};
use super::frames::{FORMAT, body, chained, long};
use super::sized::peak_kib;
use super::workload::Line;

/// Sizes are powers of two up to this one: 256 MiB.
const LARGEST: u64 = 28;

/// The first power of two that does not go into a payload by default.
const LIMIT: u64 = 21;

/// What is nested how deep.
const DEPTHS: [u64; 8] = [10_000, 10, 100, 250, 300, 1_000, 3_000, 30_000];

/// Ways in: the input of a run, the output of a step, a signal.
const ROUTES: u64 = 3;

/// Cases at scale 1: every size and every depth by every route, and as many damaged records.
pub(super) const FULL: u64 = 4 * ROUTES * (LARGEST + 1);

/// What may be needed beside the value itself, in KiB: several copies at the limit, and the engine.
const ROOM: u64 = 48 * 1024;

/// The same for numbers: two digests, each of up to twenty bytes a number, in buffers that doubled, and the places of all numbers to
/// sort them by. It does not grow with what is above the limit.
const ROOM_FOR_NUMBERS: u64 = 192 * 1024;

/// A length that nothing has.
const CLAIMED: u64 = 1 << 60;

/// A run that has not ended after so long never will.
const HANGS_AFTER: Duration = Duration::from_secs(60);

/// Something in something in something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Nest(Vec<Nest>);

impl Nest {
    fn deep(depth: u64) -> Self {
        (1..depth).fold(Self(Vec::new()), |inner, _| Self(vec![inner]))
    }

    /// How deep it is; without recursion, as it was made.
    fn depth(&self) -> u64 {
        let (mut depth, mut at) = (1, self);
        while let Some(inner) = at.0.first() {
            (depth, at) = (depth + 1, inner);
        }
        depth
    }
}

impl Drop for Nest {
    /// Without recursion: what the test itself does must not overflow.
    fn drop(&mut self) {
        let mut inner = std::mem::take(&mut self.0);
        while let Some(mut next) = inner.pop() {
            inner.append(&mut next.0);
        }
    }
}

/// A value of any kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Value {
    Text(String),
    /// Each byte a number of its own.
    Numbers(Vec<u8>),
    Nested(Nest),
}

impl Value {
    fn made(kind: &str, size: u64) -> Self {
        match kind {
            "text" => Self::Text("x".repeat(usize::try_from(size).expect("it fits"))),
            "numbers" => Self::Numbers(vec![7; usize::try_from(size).expect("it fits")]),
            _ => Self::Nested(Nest::deep(size)),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Numbers(numbers) => numbers.len() as u64,
            Self::Nested(nest) => nest.depth(),
        }
    }
}

#[step]
async fn make(kind: &str, size: u64) -> Result<Value> {
    Ok(Value::made(kind, size))
}

#[workflow]
async fn taken(value: Value) -> Result<u64> {
    Ok(value.size())
}

#[workflow]
async fn made(kind: String, size: u64) -> Result<u64> {
    Ok(make(&kind, size).await?.size())
}

#[workflow]
async fn heard() -> Result<u64> {
    let value: Value = wait_for("value").await?;
    Ok(value.size())
}

/// What is tried under a seed.
enum Trial {
    Value(&'static str, u64, u64),
    Record(u64),
}

impl Trial {
    fn of(seed: u64) -> Self {
        let (kind, at) = (seed % 4, seed / 4);
        // Large and small ones in turns.
        let size = 1 << (at * 11 % (LARGEST + 1));
        let route = at / (LARGEST + 1) % ROUTES;
        match kind {
            0 => Self::Value("text", size, route),
            1 => Self::Value("numbers", size, route),
            2 => {
                let depth = DEPTHS[usize::try_from(at).expect("small") % DEPTHS.len()];
                Self::Value("nested", depth, at / DEPTHS.len() as u64 % ROUTES)
            }
            _ => Self::Record(at),
        }
    }
}

/// Does the work of a child.
pub(super) fn live(seed: u64) {
    std::panic::set_hook(Box::new(|panic| {
        Line::Trouble(format!("18: a panic: {panic}")).say();
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime can be made");
    let end = runtime.block_on(async {
        // On a thread of the runtime, whose stack is what users have.
        let tried = tokio::spawn(async move {
            match Trial::of(seed) {
                Trial::Value(kind, size, route) => value(kind, size, route).await,
                Trial::Record(at) => record(at).await,
            }
        });
        match tokio::time::timeout(HANGS_AFTER, tried).await {
            Ok(Ok(end)) => end,
            other => format!("wrong: it hangs or panics: {other:?}"),
        }
    });
    Line::Stopped(end).say();
}

fn engine() -> workflow_runtime::EngineBuilder {
    Engine::builder()
        .register::<taken>()
        .register::<made>()
        .register::<heard>()
}

/// How a value came through.
enum Through {
    As(u64),
    Refused(String),
    /// Not by what it should be.
    Otherwise(String),
}

async fn value(kind: &'static str, size: u64, route: u64) -> String {
    let engine = engine().open_with(MemoryStore::new()).await;
    let engine = engine.expect("memory opens");
    let value = (route != 1).then(|| Value::made(kind, size));
    let before = peak_kib();
    let through = match (route, value) {
        (0, Some(value)) => input(&engine, value).await,
        (2, Some(value)) => signal(&engine, value).await,
        _ => output(&engine, kind, size).await,
    };
    let grown = peak_kib().saturating_sub(before);
    // A step makes its own value, and it is moved once.
    let is_flat = kind != "nested";
    let own = if route == 1 && is_flat {
        2 * size / 1024
    } else {
        0
    };
    let room = match kind {
        "numbers" => ROOM_FOR_NUMBERS,
        _ => ROOM,
    };
    if grown > room + own {
        return format!("wrong: {size} by route {route} took {grown} KiB more");
    }
    let must_pass = if is_flat {
        size < 1 << LIMIT
    } else {
        size <= 100
    };
    let must_fail = if is_flat { !must_pass } else { size >= 10_000 };
    match through {
        Through::As(found) if found == size && !must_fail => "passed".into(),
        Through::Refused(how) if !must_pass => format!("refused {how}"),
        Through::As(found) => format!("wrong: {kind} {size} by route {route} came as {found}"),
        Through::Refused(how) => format!("wrong: {kind} {size} by route {route}: {how}"),
        Through::Otherwise(how) => format!("wrong: {kind} {size} by route {route}: {how}"),
    }
}

fn is_named(problem: &PayloadError) -> bool {
    matches!(
        problem,
        PayloadError::TooLarge { .. }
            | PayloadError::Serialize(_)
            | PayloadError::Deserialize { .. }
    )
}

async fn input(engine: &Engine, value: Value) -> Through {
    match engine.start(taken(value)).await {
        Err(EngineError::Input { problem, .. }) if is_named(&problem) => {
            Through::Refused(problem.to_string())
        }
        Err(error) => Through::Otherwise(error.to_string()),
        Ok(run) => ended(run.result().await),
    }
}

async fn output(engine: &Engine, kind: &str, size: u64) -> Through {
    match engine.start(made(kind.to_owned(), size)).await {
        Err(error) => Through::Otherwise(error.to_string()),
        Ok(run) => ended(run.result().await),
    }
}

async fn signal(engine: &Engine, value: Value) -> Through {
    let run = engine.start(heard()).await.expect("memory works");
    match run.signal("value", &value).await {
        Err(EngineError::Signal { problem, .. }) if is_named(&problem) => {
            Through::Refused(problem.to_string())
        }
        Err(error) => Through::Otherwise(error.to_string()),
        Ok(_) => ended(run.result().await),
    }
}

fn ended(result: std::result::Result<u64, RunError<workflow_runtime::Error>>) -> Through {
    match result {
        Ok(size) => Through::As(size),
        Err(RunError::Failed(error)) => Through::Refused(format!("{error:#}")),
        Err(RunError::Broken(error)) => Through::Refused(format!("{error:#}")),
        Err(RunError::Parked(parking)) => Through::Refused(parking.report.to_string()),
        Err(other) => Through::Otherwise(other.to_string()),
    }
}

/// One record of a journal with a length of 2^60 at each of its places, under a chain that verifies; then the same as a
/// letter and in a journal file.
async fn record(at: u64) -> String {
    let store = MemoryStore::new();
    let first = engine()
        .open_with(store.clone())
        .await
        .expect("memory opens");
    let run = first.start(made("text".into(), 40)).key("one").await;
    let run = run.expect("memory works");
    run.result().await.expect("it ends well");
    let header = store.header(run.id()).await.expect("reads").expect("there");
    let frames = store.frames(run.id(), 0, usize::MAX).await.expect("reads");
    let file = first.export(run.id()).await.expect("exported").to_binary();
    let before = peak_kib();
    let bodies: Vec<Vec<u8>> = frames.iter().map(|frame| body(frame).to_vec()).collect();
    let which = usize::try_from(at).expect("small") % bodies.len();
    let (mut refused, mut wrong) = (0, Vec::new());
    for place in 0..bodies[which].len() {
        let mut damaged = bodies.clone();
        damaged[which].splice(place..=place, long(CLAIMED));
        let frames = chained(run.id(), FORMAT, &damaged);
        match look(&header, &frames).await {
            Ok(is_refused) => refused += u64::from(is_refused),
            Err(what) => wrong.push(format!("record {which} at {place}: {what}")),
        }
    }
    // A part of the file each time: all of it would be the same once more.
    for place in (usize::try_from(at).expect("small") % 7..file.len()).step_by(7) {
        let mut damaged = file.clone();
        damaged.splice(place..=place, long(CLAIMED));
        refused += u64::from(JournalFile::from_binary(damaged).is_err());
    }
    let grown = peak_kib().saturating_sub(before);
    if grown > ROOM {
        wrong.push(format!("it took {grown} KiB more"));
    }
    match wrong.first() {
        None if refused > 0 => format!("refused {refused} times"),
        None => "wrong: nothing was refused".into(),
        Some(what) => format!("wrong: {what}"),
    }
}

/// Lets an engine have a journal. Says whether it was refused, or how it went wrong.
async fn look(header: &RunHeader, frames: &[Bytes]) -> std::result::Result<bool, String> {
    let store = MemoryStore::new();
    let new = NewRun {
        header: RunHeader {
            state: RunState::Active,
            ..header.clone()
        },
        first: frames[0].clone(),
        rest: frames[1..].to_vec(),
        durability: Durability::Synced,
    };
    store.create(new).await.map_err(|error| error.to_string())?;
    let letter = [vec![7], long(CLAIMED), vec![0; 8]].concat();
    let changes = Changes {
        post: vec![Letter {
            to: header.run,
            body: letter.into(),
        }],
        ..Changes::default()
    };
    let commit = Commit {
        guards: Vec::new(),
        changes,
    };
    store
        .commit(commit)
        .await
        .map_err(|error| error.to_string())?;
    let engine = engine().open_with(store).await;
    let engine = engine.map_err(|error| error.to_string())?;
    let is_refused = match engine.journal(header.run).await {
        Ok(_) => false,
        Err(EngineError::Journal(_)) => true,
        Err(error) => return Err(error.to_string()),
    };
    // Another run goes on beside it.
    let other = engine.start(taken(Value::Text("x".into()))).await;
    let other = other.map_err(|error| error.to_string())?;
    match tokio::time::timeout(HANGS_AFTER / 4, other.result()).await {
        Ok(Ok(1)) => Ok(is_refused),
        other => Err(format!("15: another run: {other:?}")),
    }
}

pub(super) fn case(seed: u64) -> Case {
    let mut case = Case::default();
    let command = child::command(&["hostile", &seed.to_string()]);
    let (said, status) = Process::start(command).hear_out(PATIENCE);
    let end = said.lines().find_map(|line| line.strip_prefix("@stopped "));
    let trouble = said.lines().find(|line| line.starts_with("@trouble"));
    match (end, trouble) {
        (Some(end), None) if !end.starts_with("wrong") => {
            case.count = u64::from(end.starts_with("refused"));
        }
        (end, trouble) => case.wrong(format!("18: {end:?}, {trouble:?}, {status:?}")),
    }
    case.trace = end.unwrap_or_default().to_owned();
    case
}
