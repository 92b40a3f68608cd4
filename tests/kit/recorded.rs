//! The workflows whose journals are in `tests/journals`, one for each thing that a journal can say.
//!
//! Their code is as frozen as the files: what is changed here no longer fits what was recorded.

use std::time::{Duration, SystemTime};

use futures::future::{Either, select};
use serde::{Deserialize, Serialize};
use workflow_runtime::testing::Replayer;
use workflow_runtime::{
    EngineBuilder, Error, Result, abort, checkpoint, continue_as_new, get_step_metadata, now,
    outbox, patched, random, sleep, start_child, step, timeout, wait_for, workflow,
};

/// What steps need and a replay is not given: a body that begins without it parks the run.
pub(crate) struct World;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer: String,
    pub(crate) email: String,
    pub(crate) card: Card,
    pub(crate) cents: u64,
    pub(crate) weight: f64,
    pub(crate) items: Vec<String>,
    pub(crate) note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Card {
    pub(crate) number: String,
    pub(crate) check: u16,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) charge: String,
    pub(crate) email: String,
    pub(crate) cents: u64,
}

/// An order that has all kinds of fields.
pub(crate) fn order() -> Order {
    Order {
        customer: "Ada".into(),
        email: "ada@example.org".into(),
        card: Card {
            number: "4111 1111 1111 1111".into(),
            check: 737,
        },
        cents: 12_345,
        weight: 0.5,
        items: vec!["book".into(), "pen".into()],
        note: None,
    }
}

#[step]
pub(crate) async fn charge(#[resource] _world: &World, card: &Card, cents: u64) -> Result<String> {
    Ok(format!("{cents} from {}", card.number))
}

#[step]
pub(crate) async fn mail(#[resource] _world: &World, to: &str, text: String) -> Result<usize> {
    let _ = to;
    Ok(text.len())
}

#[step]
pub(crate) async fn slow(#[resource] _world: &World, seconds: u64) -> Result<u64> {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok(seconds)
}

#[step(max_attempts = 3, backoff = "1h..2h")]
pub(crate) async fn flaky(#[resource] _world: &World) -> Result<u32> {
    match get_step_metadata().attempt {
        3 => Ok(3),
        attempt => Err(Error::new(format!("attempt {attempt}"))),
    }
}

#[step(undo = release)]
pub(crate) async fn reserve(#[resource] _world: &World, item: &str) -> Result<u32> {
    Ok(item.len() as u32)
}

#[step]
pub(crate) async fn release(
    #[resource] _world: &World,
    item: String,
    place: Option<u32>,
) -> Result<()> {
    let _ = (item, place);
    Ok(())
}

#[step(max_attempts = 1)]
pub(crate) async fn refused(#[resource] _world: &World) -> Result<u32> {
    Err(Error::fatal("sold out"))
}

/// Fails the first time that it is tried, and succeeds when the run is.
#[step(max_attempts = 1)]
pub(crate) async fn second_time(#[resource] world: &Tried) -> Result<u32> {
    match world.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Err(Error::new("not yet")),
        n => Ok(n),
    }
}

/// How often [`second_time`] was tried.
#[derive(Default)]
pub(crate) struct Tried(pub(crate) std::sync::atomic::AtomicU32);

#[step(intent)]
pub(crate) async fn announced(#[resource] _world: &World, text: &str) -> Result<usize> {
    Ok(text.len())
}

#[step(fresh_for = "1m", on_stale = "abort")]
pub(crate) async fn quote(#[resource] _world: &World) -> Result<u64> {
    Ok(100)
}

#[workflow]
pub(crate) async fn sequence(order: Order) -> Result<Receipt> {
    let charge = charge(&order.card, order.cents).await?;
    mail(&order.email, format!("{} items", order.items.len())).await?;
    Ok(Receipt {
        charge,
        email: order.email,
        cents: order.cents,
    })
}

#[workflow]
pub(crate) async fn joined(seconds: u64) -> Result<(u64, u64, u64)> {
    let (one, two) = futures::join!(slow(seconds), async {
        let first = slow(1).await?;
        Ok::<_, Error>((first, slow(2).await?))
    });
    let two = two?;
    Ok((one?, two.0, two.1))
}

#[workflow]
pub(crate) async fn raced(seconds: u64) -> Result<String> {
    let (one, other) = (Box::pin(slow(seconds)), Box::pin(sleep(DAY)));
    Ok(match select(one, other).await {
        Either::Left((slept, _)) => format!("the step, {}", slept?),
        Either::Right(_) => "the day".to_owned(),
    })
}

#[workflow]
pub(crate) async fn retried() -> Result<u32> {
    flaky().await
}

#[workflow]
pub(crate) async fn slept(days: u32) -> Result<(SystemTime, u64)> {
    sleep(DAY * days).await;
    announced("slept").await?;
    let late = timeout(DAY, wait_for::<u32>("never")).await.is_err();
    Ok((now(), random::<u64>() * u64::from(late)))
}

#[workflow]
pub(crate) async fn signalled() -> Result<Vec<String>> {
    let mut heard = Vec::new();
    while heard.len() < 2 {
        heard.push(wait_for::<String>("text").await?);
    }
    mail("ada@example.org", heard.join(" ")).await?;
    Ok(heard)
}

#[workflow]
pub(crate) async fn small(n: u64) -> Result<u64> {
    slow(n).await
}

#[workflow]
pub(crate) async fn failing() -> Result<u32> {
    refused().await
}

#[workflow]
pub(crate) async fn parent() -> Result<(u64, u64, bool)> {
    let later = start_child(small(2));
    let first = small(1).await?;
    let failed = failing().await.is_err();
    Ok((first, later.await?, failed))
}

#[workflow]
pub(crate) async fn undone() -> Result<u32> {
    reserve("book").await?;
    reserve("pen").await?;
    refused().await
}

#[workflow]
pub(crate) async fn aborted() -> Result<u32> {
    reserve("book").await?;
    abort("the edge is gone").await
}

#[workflow]
pub(crate) async fn stale() -> Result<u64> {
    let price = quote().await?;
    slow(price).await
}

#[workflow]
pub(crate) async fn counting(at: u64, until: u64) -> Result<u64> {
    slow(at).await?;
    if at == until {
        return Ok(at);
    }
    checkpoint(&(at + 1, until)).await
}

#[workflow]
pub(crate) async fn undone_passes(at: u64) -> Result<u32> {
    reserve(["book", "pen", "cup"][at as usize]).await?;
    if at == 2 {
        return refused().await;
    }
    checkpoint(&(at + 1)).await
}

#[workflow]
pub(crate) async fn patched_way() -> Result<u64> {
    let first = slow(1).await?;
    if patched("twice") {
        return Ok(first + slow(2).await?);
    }
    Ok(first)
}

#[workflow]
pub(crate) async fn keyed() -> Result<(u64, u64, u64)> {
    let one = slow(1).key("one").await?;
    let two = slow(2).idempotency_key("two").await?;
    Ok((one, two, slow(2).idempotency_key("two").await?))
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    TooMuch { cents: u64 },
}

#[workflow]
pub(crate) async fn refusing(cents: u64) -> std::result::Result<u64, Refusal> {
    match slow(cents).await {
        Ok(cents) if cents < 10 => Ok(cents),
        _ => Err(Refusal::TooMuch { cents }),
    }
}

#[workflow]
pub(crate) async fn tried_again() -> Result<u32> {
    slow(1).await?;
    second_time().await
}

#[workflow]
pub(crate) async fn living(at: u64) -> Result<u64> {
    slow(at).await?;
    match at {
        2 => Ok(at),
        _ => continue_as_new(living(at + 1)).await,
    }
}

#[workflow]
pub(crate) async fn pushing() -> Result<u64> {
    outbox("mail").push("begun")?;
    slow(1).await
}

/// Registers all of them.
pub(crate) fn register(engine: EngineBuilder) -> EngineBuilder {
    engine
        .register::<sequence>()
        .register::<joined>()
        .register::<raced>()
        .register::<retried>()
        .register::<slept>()
        .register::<signalled>()
        .register::<small>()
        .register::<failing>()
        .register::<parent>()
        .register::<undone>()
        .register::<aborted>()
        .register::<stale>()
        .register::<counting>()
        .register::<undone_passes>()
        .register::<patched_way>()
        .register::<keyed>()
        .register::<refusing>()
        .register::<tried_again>()
        .register::<living>()
        .register::<pushing>()
        .namespace("fixtures")
}

/// Replays journals of all of them.
pub(crate) fn replayer() -> Replayer {
    Replayer::new().configure(register)
}
