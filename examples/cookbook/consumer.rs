//! A consumer of a queue that delivers at least once: one run per event, however often and in whatever order it comes.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{
    Delivery, Engine, Error, Inbox, InboxError, Result, RunId, get_step_metadata, step, workflow,
};

use super::world::{DEATHS, Service, two_lives};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Event {
    id: String,
    order: u64,
}

fn event(order: u64) -> Event {
    let id = format!("evt-{order}");
    Event { id, order }
}

#[step(effect = "create", timeout = "30s")]
async fn ship(#[resource] carrier: &Service, order: u64) -> Result<usize> {
    Ok(carrier.act(get_step_metadata().step_id, format!("order {order}")))
}

#[workflow]
async fn fulfil(order: u64) -> Result<usize> {
    ship(order).await
}

/// Takes one delivery. When this has returned, the event may be acknowledged to the queue, a duplicate too.
async fn consume(inbox: &Inbox, event: &Event) -> Result<(RunId, Delivery), InboxError> {
    let event_and_run = inbox
        .accept(&event.id)
        .body(event)
        .start(fulfil(event.order));
    let accepted = event_and_run.await?; // one write for both
    Ok((accepted.run, accepted.delivery))
}

/// The order in which the queue delivers.
const DELIVERIES: [u64; 9] = [3, 1, 2, 1, 3, 3, 2, 1, 2];

/// One process: the queue delivers to it all that was not acknowledged, which may be everything once more.
async fn live(store: MemoryStore, carrier: Arc<Service>) -> Result<usize> {
    let engine = Engine::builder()
        .register::<fulfil>()
        .resource_arc(carrier)
        .open_with(store)
        .await?;
    let inbox = engine.inbox("orders");
    let mut runs = BTreeSet::new();
    for order in DELIVERIES {
        runs.insert(consume(&inbox, &event(order)).await?.0);
    }
    let batch = [event(4), event(1), event(4)];
    let accept = |event: &Event| {
        inbox
            .accept(&event.id)
            .body(event)
            .start(fulfil(event.order))
    };
    for answer in inbox.accept_all(batch.iter().map(accept)).await {
        runs.insert(answer?.run);
    }
    for run in &runs {
        engine.run::<fulfil>(*run).await?.result().await?;
    }
    engine.shutdown().await?;
    Ok(runs.len())
}

/// Delivers twelve times with a crash at every write.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<fulfil>();
    let mut crashes = 0;
    for death in DEATHS {
        for write in 0.. {
            let carrier = Arc::new(Service::default());
            let ended = two_lives(write, death, |store| live(store, carrier.clone()));
            let ended = ended.await?;
            let mut shipped = carrier.ledger();
            shipped.sort();
            let once = ["order 1", "order 2", "order 3", "order 4"];
            assert_eq!(shipped, once, "{death:?} at write {write}");
            let Some(runs) = ended else { break };
            assert_eq!(runs, 4, "one run per event");
            crashes += 1;
        }
    }
    assert!(crashes >= 16, "a crash at every write: {crashes}");
    tell_apart().await?;
    Ok(format!(
        "{crashes} crashes, 12 deliveries each, four orders shipped once"
    ))
}

/// Two events under one id are a mistake of the source, and are not taken for one.
async fn tell_apart() -> Result<()> {
    let builder = Engine::builder()
        .register::<fulfil>()
        .resource(Service::default());
    let engine = builder.open_in_memory().await?;
    let inbox = engine.inbox("orders");
    let (first, delivery) = consume(&inbox, &event(1)).await?;
    assert_eq!(delivery, Delivery::First);
    let again = consume(&inbox, &event(1)).await?;
    assert_eq!(again, (first, Delivery::Duplicate));
    let other = Event {
        order: 2,
        ..event(1)
    };
    match consume(&inbox, &other).await {
        Err(InboxError::OtherBody { run, .. }) => assert_eq!(run, Some(first)),
        other => return Err(Error::new(format!("not told apart: {other:?}"))),
    }
    engine.shutdown().await?;
    Ok(())
}
