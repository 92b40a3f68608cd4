//! What the soaked process does: orders that use everything an engine has, started, heard and swept at full load.
//!
//! Owns the workflows and the life of the process. It says what it was told and what its steps did, in the lines of
//! `workload`; whether that is right is judged in `book`.

use std::io::BufRead as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::try_join;
use tokio::sync::{Semaphore, oneshot};
use workflow_runtime::store::ParkReason;
use workflow_runtime::{
    CatchUp, Engine, EngineBuilder, EngineError, Error, Overlap, Queue, Result, Retention,
    RunError, RunHandle, RunId, Sent, get_step_metadata, sleep, step, timeout, wait_for, workflow,
};

use super::super::workload::{Line, Transferred, World, ballast, booked, unrepeatable};

/// Orders that are under way at once.
pub(super) const AT_ONCE: usize = 64;

/// How long runs are kept after their end, and how long a key names one.
pub(super) const KEEPS: Duration = Duration::from_secs(20);

/// Keys that orders take in turn. A key whose run was deleted leaves a few bytes for ever, so that keys without end
/// would be disk without end: by design, and not what is looked for here.
const KEYS: u64 = 32_768;

/// One of so many orders has a key.
const KEYED: u64 = 4;

/// An order that nobody sends the word gives up: its process was killed before anybody was told that it had begun.
pub(super) const GIVES_UP: Duration = Duration::from_secs(40);

/// How often the schedule ticks.
const BEAT: Duration = Duration::from_millis(250);

/// How often ended runs are swept.
const SWEEP: Duration = Duration::from_millis(500);

/// How often a key that is taken is asked for again, a second after each other.
const ASKS: u32 = 100;

/// The number under which the schedule's steps act.
pub(super) const BEATS: u64 = u64::MAX;

/// The attempts that a shipment has: more than it fails and a process is killed meanwhile.
pub(super) const ATTEMPTS: u32 = 12;

/// The longest wait between two of them.
pub(super) const BACKOFF: Duration = Duration::from_millis(8);

/// What is not given back, on purpose: that the soak notices it is the proof that it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leak {
    Nothing,
    /// 32 KiB of memory an order.
    Memory,
    /// A file that stays open, every 64 orders.
    Descriptors,
    /// Ended runs stay.
    Disk,
}

impl Leak {
    /// Reads its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let all = [Self::Nothing, Self::Memory, Self::Descriptors, Self::Disk];
        all.into_iter().find(|leak| leak.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Memory => "memory",
            Self::Descriptors => "descriptors",
            Self::Disk => "disk",
        }
    }

    /// Leaks what goes with an order.
    fn leak(self, number: u64, kept: &Mutex<Kept>) {
        let mut kept = kept.lock().expect("nobody panics with it");
        match self {
            Self::Memory => kept.0.push(vec![1; 32 * 1024]),
            Self::Descriptors if number.is_multiple_of(64) => {
                kept.1.extend(std::fs::File::open("/dev/null"));
            }
            _ => {}
        }
    }
}

#[derive(Default)]
struct Kept(Vec<Vec<u8>>, Vec<std::fs::File>);

#[step]
async fn open_order(#[resource] world: &World, number: u64) -> Result<u64> {
    let nonce = unrepeatable();
    world.act(number, "draw", nonce);
    Ok(nonce)
}

#[step]
async fn enter(#[resource] world: &World, number: u64, what: &str, given: u64) -> Result<u64> {
    let value = booked(what, given);
    world.act(number, what, value);
    Ok(value)
}

#[step(durability = "buffered")]
async fn label(#[resource] world: &World, number: u64, given: u64) -> Result<String> {
    world.act(number, "label", booked("label", given));
    Ok(ballast(given, 200 + number % 8 * 700))
}

/// Fails the first time, for every fourth order.
#[step(max_attempts = 12, backoff = "1ms..8ms")]
async fn hand_over(#[resource] world: &World, number: u64, given: u64) -> Result<u64> {
    let value = booked("ship", given);
    world.act(number, "ship", value);
    match number.is_multiple_of(4) && get_step_metadata().attempt == 1 {
        true => Err(Error::new("not yet")),
        false => Ok(value),
    }
}

/// The child of every second order.
#[workflow]
pub(super) async fn shipment(number: u64, given: u64) -> Result<u64> {
    hand_over(number, given).await
}

/// Draws, books twice at once, waits for the word and for a moment, ships, settles.
#[workflow]
pub(super) async fn order(number: u64) -> Result<Transferred> {
    let nonce = open_order(number).await?;
    let (debit, credit, _label) = try_join!(
        enter(number, "debit", nonce),
        enter(number, "credit", nonce),
        label(number, nonce)
    )?;
    let word = match timeout(GIVES_UP, wait_for::<u64>("go")).await {
        Ok(word) => word?,
        Err(_elapsed) => 0,
    };
    sleep(Duration::from_millis(number % 7)).await;
    let given = debit ^ credit ^ word;
    let shipped = match number % 2 {
        0 => shipment(number, given).await?,
        _ => hand_over(number, given).await?,
    };
    let settled = enter(number, "settle", shipped).await?;
    Ok(Transferred { nonce, settled })
}

/// The effects of an order with this nonce that heard a word, which is its number, and its result. One that gave up heard 0.
pub(super) fn expected(word: u64, nonce: u64) -> ([(&'static str, u64); 5], Transferred) {
    let (debit, credit) = (booked("debit", nonce), booked("credit", nonce));
    let shipped = booked("ship", debit ^ credit ^ word);
    let settled = booked("settle", shipped);
    let effects = [
        ("debit", debit),
        ("credit", credit),
        ("label", booked("label", nonce)),
        ("ship", shipped),
        ("settle", settled),
    ];
    (effects, Transferred { nonce, settled })
}

/// What a schedule starts.
#[workflow]
pub(super) async fn beat() -> Result<u64> {
    enter(BEATS, "beat", 0).await
}

/// The key of an order, if it has one.
pub(super) fn key(number: u64) -> Option<String> {
    let is_keyed = number.is_multiple_of(KEYED);
    is_keyed.then(|| format!("order-{}", number / KEYED % KEYS))
}

/// An engine for orders.
pub(super) fn engine(leak: Leak) -> EngineBuilder {
    let keeps = match leak {
        Leak::Disk => Retention::forever(),
        _ => Retention::of(KEEPS),
    };
    engine_that_keeps(keeps)
}

/// One that deletes runs after this time.
pub(super) fn engine_that_keeps(keeps: Retention) -> EngineBuilder {
    Engine::builder()
        .register::<order>()
        .register::<shipment>()
        .register::<beat>()
        .queue(Queue::named("desk").concurrency(16).per_key(4))
        .retention(keeps)
        .key_ttl(KEEPS)
        .evict_after(Duration::from_secs(2))
}

/// What a process is asked to take up: orders of which somebody was told, and that have not been told to have ended.
pub(super) type Open = Vec<(u64, RunId)>;

/// Lives: takes up what was open, and does new orders from a number on until it is told to stop or killed.
pub(crate) fn live(dir: &Path, first: u64, rate: u32, leak: &str) {
    let leak = Leak::named(leak).expect("the parent names a leak");
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime can be made");
    let lines = std::io::stdin().lock().lines();
    let open: Open = lines
        .map_while(|line| line.ok())
        .take_while(|line| line != "begin")
        .filter_map(|line| {
            let (number, run) = line.split_once(' ')?;
            Some((number.parse().ok()?, run.parse().ok()?))
        })
        .collect();
    let (stop, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines();
        // Whatever comes, also the end of the parent: stop.
        let _ = lines.next();
        STOPPING.store(true, Ordering::SeqCst);
        let _ = stop.send(());
    });
    let load = Load { first, rate, leak };
    runtime.block_on(work(dir, load, open, stopped));
}

/// What a process is given to do.
#[derive(Clone, Copy)]
struct Load {
    first: u64,
    /// Orders a second at most; 0: as many as it can.
    rate: u32,
    leak: Leak,
}

async fn work(dir: &Path, load: Load, open: Open, stop: oneshot::Receiver<()>) {
    let opened = engine(load.leak).resource(World::Outside).open(dir).await;
    let engine = match opened {
        Ok(engine) => engine,
        Err(error) => return Line::Stopped(error.to_string()).say(),
    };
    Line::Ready.say();
    let beats = engine.schedule("beat", beat()).every(BEAT);
    let beats = beats.overlap(Overlap::Allow);
    if let Err(error) = beats.catch_up(CatchUp::All { at_most: 4 }).await {
        Line::Trouble(format!("14: the schedule: {error}")).say();
    }
    let sweeper = tokio::spawn(sweep(engine.clone()));
    for (number, run) in open {
        let engine = engine.clone();
        tokio::spawn(async move {
            let again = match engine.run::<order>(run).await {
                Ok(run) => finish(&engine, number, &run).await,
                Err(EngineError::UnknownRun(_)) => {
                    Line::Gone(number).say();
                    Ok(())
                }
                Err(error) => Err(error),
            };
            complain(&engine, number, again);
        });
    }
    let source = tokio::spawn(take_orders(engine.clone(), load));
    let _ = stop.await;
    source.abort();
    sweeper.abort();
    match engine.shutdown().await {
        Ok(()) => Line::Stopped("in order".into()).say(),
        Err(error) => Line::Trouble(format!("16: shutdown: {error}")).say(),
    }
}

/// Keeps as many orders under way as there may be, at the rate that is asked for.
async fn take_orders(engine: Engine, load: Load) {
    let Load { first, rate, leak } = load;
    let began = tokio::time::Instant::now();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let kept = Arc::new(Mutex::new(Kept::default()));
    for number in first.. {
        if rate > 0 {
            let due = Duration::from_secs_f64((number - first) as f64 / f64::from(rate));
            tokio::time::sleep_until(began + due).await;
        }
        let slot = slots.clone().acquire_owned().await.expect("never closed");
        // Orders that are refused while the engine stops free their places unheard: what is started beyond
        // those that were under way may have a number that the next process uses again.
        if STOPPING.load(Ordering::SeqCst) {
            return;
        }
        let (engine, kept) = (engine.clone(), kept.clone());
        tokio::spawn(async move {
            let done = one(&engine, number).await;
            complain(&engine, number, done);
            leak.leak(number, &kept);
            drop(slot);
        });
    }
}

async fn sweep(engine: Engine) {
    loop {
        match engine.sweep().await {
            Ok(0) => {}
            Ok(runs) => Line::Swept(runs).say(),
            Err(error) => complain(&engine, BEATS, Err(error)),
        }
        tokio::time::sleep(SWEEP).await;
    }
}

/// Whether this process was told to stop.
static STOPPING: AtomicBool = AtomicBool::new(false);

/// What is refused while the engine goes on is a violation; what is refused while it stops is not.
fn complain(engine: &Engine, number: u64, done: std::result::Result<(), EngineError>) {
    match done {
        Err(error) if !STOPPING.load(Ordering::SeqCst) => {
            let failure = engine.failure();
            Line::Trouble(format!("1: order {number}: {error}; {failure:?}")).say();
        }
        _ => {}
    }
}

async fn one(engine: &Engine, number: u64) -> std::result::Result<(), EngineError> {
    let mut asked = 0;
    let run = loop {
        let mut start = engine.start(order(number));
        if let Some(key) = key(number) {
            start = start.key(key);
        }
        if number.is_multiple_of(5) {
            start = start.queue("desk").queue_key(number % 8);
        }
        match start.await {
            // The run that had this key before has not ended for long enough.
            Err(EngineError::Conflict { .. }) if asked < ASKS => {
                asked += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            answer => break answer?,
        }
    };
    Line::Started(number, run.id()).say();
    finish(engine, number, &run).await
}

/// Sends the word, and waits for the end.
pub(super) async fn finish(
    engine: &Engine,
    number: u64,
    run: &RunHandle<order>,
) -> std::result::Result<(), EngineError> {
    match run.signal("go", &number).key("go").await {
        Ok(sent) => Line::Sent(number, sent == Sent::Accepted).say(),
        Err(EngineError::Ended(_)) => {}
        Err(error) => return Err(error),
    }
    let mut result = run.result().await;
    if let Err(RunError::Parked(parking)) = &result
        && parking.reason == ParkReason::Poison
    {
        engine.resume(run.id()).await?;
        result = run.result().await;
    }
    match result {
        Ok(result) => Line::Finished(number, result).say(),
        Err(RunError::Engine(error)) => return Err(error),
        Err(error) => Line::Trouble(format!("1: order {number}: {error}")).say(),
    }
    Ok(())
}
