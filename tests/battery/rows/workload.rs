//! What the processes of the battery do: transfers of money, each with effects outside, a signal, a timer and a result.
//!
//! Owns the workflow and the lines in which a process says what it was told and what it did. Whether that is right is
//! judged in `told`.

use std::fmt;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::try_join;
use serde::{Deserialize, Serialize};
use workflow_runtime::store::ParkReason;
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Result, RunError, RunId, Sent, StepId, get_step_metadata,
    sleep, step, wait_for, workflow,
};

use crate::chance::mix;

/// What a run gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transferred {
    /// What the first step drew: no other execution gives it again.
    pub(crate) nonce: u64,
    pub(crate) settled: u64,
}

/// What a step that books gives: its value, and ballast that makes the record large.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Booked {
    value: u64,
    ballast: String,
}

/// One line of what a process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The engine is open.
    Ready,
    /// This start was acknowledged.
    Started(u64, RunId),
    /// The signal of this transfer was acknowledged; whether as a new one.
    Sent(u64, bool),
    /// This result was acknowledged.
    Finished(u64, Transferred),
    /// This run is not in the store any more.
    Gone(u64),
    /// So many ended runs were deleted.
    Swept(u64),
    /// A step acted: its id, the transfer, what, and the value.
    Effect(StepId, u64, String, u64),
    /// The store said that it stops, and keeps to it.
    Stopped(String),
    /// Something that must not happen.
    Trouble(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "@ready"),
            Self::Started(number, run) => write!(f, "@started {number} {run}"),
            Self::Sent(number, is_new) => write!(f, "@sent {number} {is_new}"),
            Self::Finished(number, Transferred { nonce, settled }) => {
                write!(f, "@finished {number} {nonce} {settled}")
            }
            Self::Gone(number) => write!(f, "@gone {number}"),
            Self::Swept(runs) => write!(f, "@swept {runs}"),
            Self::Effect(step, number, what, value) => {
                write!(f, "@effect {step} {number} {what} {value}")
            }
            Self::Stopped(reason) => write!(f, "@stopped {}", one_line(reason)),
            Self::Trouble(what) => write!(f, "@trouble {}", one_line(what)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " / ")
}

impl Line {
    /// Reads a line; `None` if it is none of ours.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.strip_prefix('@')?.split(' ').collect();
        let rest = || words[1..].join(" ");
        Some(match words[..] {
            ["ready"] => Self::Ready,
            ["started", number, run] => Self::Started(number.parse().ok()?, run.parse().ok()?),
            ["sent", number, is_new] => Self::Sent(number.parse().ok()?, is_new.parse().ok()?),
            ["finished", number, nonce, settled] => {
                let (nonce, settled) = (nonce.parse().ok()?, settled.parse().ok()?);
                Self::Finished(number.parse().ok()?, Transferred { nonce, settled })
            }
            ["swept", runs] => Self::Swept(runs.parse().ok()?),
            ["gone", number] => Self::Gone(number.parse().ok()?),
            ["effect", step, number, what, value] => {
                let (step, number) = (step.parse().ok()?, number.parse().ok()?);
                Self::Effect(step, number, what.to_owned(), value.parse().ok()?)
            }
            ["stopped", ..] => Self::Stopped(rest()),
            ["trouble", ..] => Self::Trouble(rest()),
            _ => return None,
        })
    }

    /// Reads all whole lines of a text that are ours; one that was cut off was not said.
    pub(crate) fn all_in(text: &str) -> impl Iterator<Item = Self> {
        let whole = text.split_inclusive('\n');
        whole
            .filter_map(|line| line.strip_suffix('\n'))
            .filter_map(Self::parse)
    }

    /// Says it on standard output, in one write: what is read whole was said after what it tells of.
    pub(crate) fn say(&self) {
        let mut out = std::io::stdout().lock();
        // Whoever does not listen any more has killed this process, or is about to.
        let _ = out
            .write_all(format!("{self}\n").as_bytes())
            .and_then(|()| out.flush());
    }
}

/// The world outside: it hears of every effect.
pub(crate) enum World {
    /// Lines on standard output, for whoever started this process.
    Outside,
    /// Lines in memory, for a process that verifies.
    Here(Mutex<Vec<Line>>),
}

impl World {
    pub(crate) fn here() -> Self {
        Self::Here(Mutex::default())
    }

    pub(crate) fn say(&self, line: Line) {
        match self {
            Self::Outside => line.say(),
            Self::Here(lines) => lines.lock().expect("nobody panics with it").push(line),
        }
    }

    /// Takes what was said here.
    pub(crate) fn take(&self) -> Vec<Line> {
        match self {
            Self::Outside => Vec::new(),
            Self::Here(lines) => std::mem::take(&mut lines.lock().expect("nobody panics with it")),
        }
    }

    pub(crate) fn act(&self, number: u64, what: &str, value: u64) {
        let step = get_step_metadata().step_id;
        self.say(Line::Effect(step, number, what.to_owned(), value));
    }
}

static DRAWN: AtomicU64 = AtomicU64::new(0);

pub(crate) fn unrepeatable() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos() as u64);
    let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
    mix(nanos ^ drawn << 48, u64::from(std::process::id()))
}

/// What a booking makes of a value.
pub(crate) fn booked(what: &str, value: u64) -> u64 {
    what.bytes()
        .fold(value, |sum, byte| mix(sum, u64::from(byte)))
}

/// Gives another value at every execution: if the workflow went on with one and another one were replayed later, later
/// steps would do two things under one id.
#[step]
async fn draw(#[resource] world: &World, number: u64) -> Result<u64> {
    let nonce = unrepeatable();
    world.act(number, "draw", nonce);
    tokio::time::sleep(Duration::from_micros(nonce % 1500)).await;
    Ok(nonce)
}

/// The same, with an outcome that a power cut may take: it is synced before anything is done with it.
#[step(durability = "buffered")]
async fn draw_lightly(#[resource] world: &World, number: u64) -> Result<u64> {
    let nonce = unrepeatable();
    world.act(number, "draw", nonce);
    Ok(nonce)
}

#[step]
async fn book(
    #[resource] world: &World,
    number: u64,
    what: &str,
    value: u64,
    size: u64,
) -> Result<Booked> {
    let value = booked(what, value);
    world.act(number, what, value);
    let ballast = ballast(value, size);
    Ok(Booked { value, ballast })
}

pub(crate) fn ballast(value: u64, size: u64) -> String {
    let letter = |at: u64| char::from(b'a' + (mix(value, at / 16) >> (at % 16)) as u8 % 26);
    (0..size).map(letter).collect()
}

/// Books on both sides, waits for the word and for a moment, and settles.
#[workflow]
pub(crate) async fn transfer(number: u64, size: u64) -> Result<Transferred> {
    let nonce = match number % 3 {
        1 => draw_lightly(number).await?,
        _ => draw(number).await?,
    };
    let (debit, credit) = try_join!(
        book(number, "debit", nonce, size),
        book(number, "credit", nonce, 0)
    )?;
    let word: u64 = wait_for("go").await?;
    sleep(Duration::from_millis(number % 4)).await;
    let given = debit.value ^ credit.value ^ word;
    let settled = book(number, "settle", given, 0).await?.value;
    Ok(Transferred { nonce, settled })
}

/// The effects of a transfer with this nonce, and its result.
pub(crate) fn expected(number: u64, nonce: u64) -> ([(&'static str, u64); 3], Transferred) {
    let (debit, credit) = (booked("debit", nonce), booked("credit", nonce));
    let settled = booked("settle", debit ^ credit ^ number);
    let effects = [("debit", debit), ("credit", credit), ("settle", settled)];
    (effects, Transferred { nonce, settled })
}

/// An engine that knows transfers.
pub(crate) fn engine() -> EngineBuilder {
    Engine::builder().register::<transfer>()
}

/// Does one transfer, and says what is acknowledged.
///
/// # Errors
///
/// What the engine refuses.
pub(crate) async fn one(
    engine: &Engine,
    number: u64,
    size: u64,
    say: &(dyn Fn(Line) + Sync),
) -> std::result::Result<(), EngineError> {
    let key = format!("transfer-{number}");
    let run = engine.start(transfer(number, size)).key(key).await?;
    say(Line::Started(number, run.id()));
    match run.signal("go", &number).key("go").await {
        Ok(sent) => say(Line::Sent(number, sent == Sent::Accepted)),
        Err(EngineError::Ended(_)) => {}
        Err(error) => return Err(error),
    }
    let mut result = run.result().await;
    // Killed again and again while it was alone, it is under suspicion: somebody resumes it, as the book says.
    if matches!(&result, Err(RunError::Parked(by)) if by.reason == ParkReason::Poison) {
        engine.resume(run.id()).await?;
        result = run.result().await;
    }
    match result {
        Ok(result) => say(Line::Finished(number, result)),
        Err(RunError::Engine(error)) => return Err(error),
        Err(error) => say(Line::Trouble(format!("transfer {number}: {error}"))),
    }
    Ok(())
}
