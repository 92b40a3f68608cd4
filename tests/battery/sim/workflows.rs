//! The workflows that run a [`Program`]: the product's own macros on the product's own engine.
//!
//! Owns the translation of each part into calls. Never decides anything by chance: what a program does follows from
//! itself, the outcomes and their order.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all, select_all};
use futures::stream::{FuturesUnordered, StreamExt as _, TryStreamExt as _};
use workflow_runtime::{
    Error, Message, Result, abort, checkpoint, continue_as_new, get_step_metadata, outbox, signals,
    sleep, start_child, step, timeout, wait_for, workflow,
};

use super::program::{Ending, Program, branch, broken_value, fold, step_value};
use super::world::{Kind, World};
use crate::chance::mix;

/// What the steps below allow: attempts, and milliseconds between two.
pub(crate) const LIMITS: [(&str, u32, u64); 6] = [
    ("work", 12, 100),
    ("breaks", 2, 30_000),
    ("shaky", 2, 30_000),
    ("keep", 12, 30_000),
    ("take_back", 12, 30_000),
    ("post", 12, 30_000),
];

/// The outbox that messages go to.
pub(crate) const OUTBOX: &str = "post";

/// More attempts than a step ever fails and a case ever crashes.
#[step(max_attempts = 12, backoff = "5ms..100ms")]
async fn work(#[resource] world: &World, tag: u64, failures: u32, given: u64) -> Result<u64> {
    world.act(Kind::Done, tag, given);
    if get_step_metadata().attempt <= failures {
        return Err(Error::new("not yet"));
    }
    // Some take their time, so that outcomes come in another order than calls.
    if tag.is_multiple_of(3) {
        tokio::time::sleep(Duration::from_millis(mix(tag, given) % 30)).await;
    }
    Ok(step_value(tag, given))
}

#[step(max_attempts = 2, backoff = "5ms")]
async fn breaks(#[resource] world: &World, tag: u64, given: u64) -> Result<u64> {
    world.act(Kind::Done, tag, given);
    Err(Error::new("broken"))
}

/// Fails until the world was mended so often.
#[step(max_attempts = 2, backoff = "5ms")]
async fn shaky(#[resource] world: &World, tag: u64, mends: u64, given: u64) -> Result<u64> {
    world.act(Kind::Done, tag, given);
    match world.times_mended() < mends {
        true => Err(Error::new("the world is broken")),
        false => Ok(step_value(tag, given)),
    }
}

#[step(max_attempts = 12, backoff = "5ms", undo = take_back)]
async fn keep(#[resource] world: &World, tag: u64, given: u64) -> Result<u64> {
    world.act(Kind::Done, tag, given);
    Ok(step_value(tag, given))
}

#[step(max_attempts = 12, backoff = "5ms")]
async fn take_back(
    #[resource] world: &World,
    tag: u64,
    given: u64,
    _gave: Option<u64>,
) -> Result<()> {
    world.act(Kind::Undone, tag, given);
    Ok(())
}

/// Leaves a message in the outbox, with its outcome or not at all.
#[step(max_attempts = 12, backoff = "5ms")]
async fn post(#[resource] world: &World, tag: u64, given: u64) -> Result<u64> {
    world.act(Kind::Done, tag, given);
    outbox(OUTBOX).push(&step_value(tag, given))?;
    Ok(step_value(tag, given))
}

/// Takes a message out of the outbox: some not before the second time.
pub(crate) async fn deliver(world: Arc<World>, message: Message) -> Result<()> {
    let value: u64 = message.decode()?;
    world.receive(message.run, message.id, value);
    match message.attempt == 1 && value.is_multiple_of(2) {
        true => Err(Error::new("not now")),
        false => Ok(()),
    }
}

/// Runs a program in the run that calls it.
fn run(program: Program, given: u64) -> BoxFuture<'static, Result<u64>> {
    async move {
        let branches = |programs: Vec<Program>| {
            programs
                .into_iter()
                .enumerate()
                .map(move |(n, program)| run(program, branch(given, n)))
        };
        Ok(match program {
            Program::Step { tag, failures } => work(tag, failures, given).await?,
            Program::Broken { tag } => match breaks(tag, given).await {
                Ok(value) => value,
                Err(_) => broken_value(tag, given),
            },
            Program::Shaky { tag, mends } => shaky(tag, mends, given).await?,
            Program::Kept { tag } => keep(tag, given).await?,
            Program::Nap { ms } => {
                sleep(Duration::from_millis(ms)).await;
                given
            }
            Program::Hear { name, count } => {
                let count = usize::try_from(count).expect("a few");
                let heard = signals::<u64>(&name.to_string()).take(count);
                fold(heard.try_collect::<Vec<_>>().await?)
            }
            Program::Chain(programs) => {
                let mut value = given;
                for program in programs {
                    value = run(program, value).await?;
                }
                value
            }
            Program::Loop { times, body } => {
                let mut value = given;
                for _ in 0..times {
                    value = run((*body).clone(), value).await?;
                }
                value
            }
            Program::Join(programs) => {
                let values = join_all(branches(programs)).await;
                fold(values.into_iter().collect::<Result<Vec<_>>>()?)
            }
            Program::Race(programs) => {
                let (value, winner, _losers) = select_all(branches(programs)).await;
                mix(value?, winner as u64)
            }
            Program::Unordered(programs) => {
                let branches: FuturesUnordered<_> = branches(programs).collect();
                fold(branches.try_collect::<Vec<_>>().await?)
            }
            Program::Limited { ms, body } => {
                match timeout(Duration::from_millis(ms), run(*body, given)).await {
                    Ok(value) => value?,
                    Err(_elapsed) => mix(given, 5),
                }
            }
            Program::Passes { tag, times } => passes(tag, given, times).await?,
            Program::Onward { tag, times } => onward(tag, given, times).await?,
            Program::Post { tag } => post(tag, given).await?,
            Program::Child(body) => interpret(*body, given, Ending::Value).await?,
            Program::Started { child, meanwhile } => {
                let child = start_child(interpret(*child, given, Ending::Value));
                let value = run(*meanwhile, given).await?;
                fold([value, child.await?])
            }
        })
    }
    .boxed()
}

/// A program as a run. Its key outlives every outage of a case.
#[workflow(key_ttl = "36500d")]
pub(crate) async fn interpret(program: Program, given: u64, ending: Ending) -> Result<u64> {
    let value = run(program, given).await?;
    match ending {
        Ending::Value => Ok(value),
        Ending::Failure => Err(Error::new("meant to fail")),
        Ending::Abort => abort("meant to end").await,
    }
}

/// One step in each pass.
#[workflow]
pub(crate) async fn passes(tag: u64, given: u64, left: u64) -> Result<u64> {
    let value = work(tag, 0, given).await?;
    match left {
        0 => Ok(value),
        _ => checkpoint(&(tag, value, left - 1)).await,
    }
}

/// One step in each run of a line.
#[workflow]
pub(crate) async fn onward(tag: u64, given: u64, left: u64) -> Result<u64> {
    let value = work(tag, 0, given).await?;
    match left {
        0 => Ok(value),
        _ => continue_as_new(onward(tag, value, left - 1)).await,
    }
}

/// What a workflow that cannot go on says.
pub(crate) const POISON: &str = "a workflow that panics on purpose";

/// A run that cannot go on, and must not stop the others.
#[workflow(key_ttl = "36500d")]
pub(crate) async fn poison() -> Result<u64> {
    panic!("{POISON}")
}

/// A short run whose key expires and which is removed when its time is over; one that waits does not end before it is told to.
#[workflow(key_ttl = "1h")]
pub(crate) async fn brief(waits: bool) -> Result<u64> {
    match waits {
        true => Ok(wait_for::<u64>("go").await?),
        false => work(7, 0, 1).await,
    }
}

/// What a tick of a schedule starts.
#[workflow]
pub(crate) async fn tick(naps: u64) -> Result<u64> {
    let value = work(9, 0, 1).await?;
    if naps > 0 {
        sleep(Duration::from_millis(naps)).await;
    }
    Ok(value)
}
