//! The process that is killed: it starts runs, many at once, and says what it was told.

use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::try_join;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use workflow_runtime::{Engine, Error, Result, RunId, get_step_metadata, sleep, step, workflow};

use crate::errands;
use crate::ledger::Ledger;

/// Runs that are unfinished at any moment.
const AT_ONCE: usize = 32;

/// Every this many runs, the first attempt of one step fails.
const FLAKY: u64 = 3;

/// The ledger of transfers.
pub(crate) const LEDGER: &str = "ledger";

/// What a run gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transferred {
    /// What the first step drew: no other execution gives it again.
    pub(crate) nonce: u64,
    pub(crate) settled: u64,
}

/// The effects of a run with this nonce, and its result.
pub(crate) fn expected(nonce: u64) -> ([(&'static str, u64); 4], Transferred) {
    let hold = mix("hold", nonce);
    let debit = mix("debit", hold);
    let credit = mix("credit", nonce);
    let settled = mix("settle", debit ^ credit);
    let effects = [
        ("hold", hold),
        ("debit", debit),
        ("credit", credit),
        ("settle", settled),
    ];
    (effects, Transferred { nonce, settled })
}

/// A value that depends on all of its input.
fn mix(what: &str, value: u64) -> u64 {
    let fold = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let bytes = what.bytes().chain(value.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Every step takes a moment before its effect and one after it, so that kills find both.
async fn moment(salt: &str) {
    let nanos = now_nanos();
    tokio::time::sleep(Duration::from_micros(mix(salt, nanos) % 3000)).await;
}

fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_nanos()).expect("before 2554")
}

/// Gives another value at every execution. If the workflow went on with one and another one were
/// replayed later, later steps would write two values under one id.
#[step]
async fn draw(#[resource] ledger: &Ledger, number: u64) -> Result<u64> {
    let nonce = mix(&std::process::id().to_string(), now_nanos() ^ number << 48);
    ledger.write(get_step_metadata().step_id, number, "draw", nonce);
    moment("draw").await;
    Ok(nonce)
}

#[step]
async fn book(#[resource] ledger: &Ledger, number: u64, what: &str, value: u64) -> Result<u64> {
    moment("before").await;
    let value = mix(what, value);
    ledger.write(get_step_metadata().step_id, number, what, value);
    moment("after").await;
    Ok(value)
}

#[step(max_attempts = 3, backoff = "1ms..5ms")]
async fn book_flaky(
    #[resource] ledger: &Ledger,
    number: u64,
    what: &str,
    value: u64,
) -> Result<u64> {
    let step = get_step_metadata();
    let value = mix(what, value);
    ledger.write(step.step_id, number, what, value);
    if step.attempt == 1 && number.is_multiple_of(FLAKY) {
        return Err(Error::new("the answer was lost on the way"));
    }
    Ok(value)
}

#[workflow]
async fn transfer(number: u64) -> Result<Transferred> {
    let nonce = draw(number).await?;
    let (debit, credit) = try_join!(
        async {
            let held = book(number, "hold", nonce).await?;
            book(number, "debit", held).await
        },
        book_flaky(number, "credit", nonce),
    )?;
    sleep(Duration::from_millis(number % 10)).await;
    let settled = book(number, "settle", debit ^ credit).await?;
    Ok(Transferred { nonce, settled })
}

/// Opens the engine on the store that all processes share, one after the other.
pub(crate) async fn open(dir: &Path) -> Result<Engine> {
    let engine = Engine::builder()
        .register::<transfer>()
        .resource(Ledger::open(dir, LEDGER)?);
    let engine = errands::register(engine, dir)?
        .open(dir.join("store"))
        .await?;
    Ok(engine)
}

/// Returns what a run gave.
pub(crate) async fn result(engine: &Engine, run: RunId) -> Result<Transferred> {
    Ok(engine.run::<transfer>(run).await?.result().await?)
}

/// What a child says: one line each.
#[derive(Debug)]
pub(crate) enum Line {
    /// The engine is open.
    Ready,
    /// This start was acknowledged.
    Started(u64, RunId),
    /// This result was acknowledged.
    Finished(u64, Transferred),
    /// This parcel of an errand was acknowledged; whether it was a new one.
    Sent(u64, u64, bool),
    /// This errand was done, and as it should be.
    Delivered(u64),
    /// Something failed that should not.
    Trouble(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Started(number, run) => write!(f, "started {number} {run}"),
            Self::Finished(number, Transferred { nonce, settled }) => {
                write!(f, "finished {number} {nonce} {settled}")
            }
            Self::Sent(number, parcel, new) => write!(f, "sent {number} {parcel} {new}"),
            Self::Delivered(number) => write!(f, "delivered {number}"),
            Self::Trouble(trouble) => write!(f, "trouble {trouble}"),
        }
    }
}

impl Line {
    /// Begins a line, so that what the test harness prints is told apart.
    const MARK: char = '@';

    pub(crate) fn say(&self) {
        // In one write: a line is said whole or not at all.
        let line = format!("{}{self}\n", Self::MARK);
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).expect("the parent listens");
        out.flush().expect("the parent listens");
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (_, line) = line.split_once(Self::MARK)?;
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words[..] {
            ["ready"] => Self::Ready,
            ["started", number, run] => Self::Started(number.parse().ok()?, run.parse().ok()?),
            ["finished", number, nonce, settled] => Self::Finished(
                number.parse().ok()?,
                Transferred {
                    nonce: nonce.parse().ok()?,
                    settled: settled.parse().ok()?,
                },
            ),
            ["sent", number, parcel, new] => Self::Sent(
                number.parse().ok()?,
                parcel.parse().ok()?,
                new.parse().ok()?,
            ),
            ["delivered", number] => Self::Delivered(number.parse().ok()?),
            _ => Self::Trouble(line.to_owned()),
        })
    }
}

/// Starts runs from `first` on, up to `until` or until it is killed.
pub(crate) fn work(dir: &Path, first: u64, until: Option<u64>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let done: Result<()> = runtime.block_on(async {
        let engine = open(dir).await?;
        Line::Ready.say();
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        for number in first..until.unwrap_or(u64::MAX) {
            let slot = slots.clone().acquire_owned().await?;
            let engine = engine.clone();
            tasks.spawn(async move {
                if let Err(error) = one(&engine, number).await {
                    Line::Trouble(format!("with {number}: {error:#}")).say();
                }
                drop(slot);
            });
        }
        tasks.join_all().await;
        engine.shutdown().await?;
        Ok(())
    });
    if let Err(error) = done {
        Line::Trouble(format!("{error:#}")).say();
    }
}

async fn one(engine: &Engine, number: u64) -> Result<()> {
    let key = format!("transfer-{number}");
    let run = engine.start(transfer(number)).key(key).await?;
    Line::Started(number, run.id()).say();
    errands::run(engine, number).await?;
    let result = run.result().await?;
    Line::Finished(number, result).say();
    Ok(())
}
