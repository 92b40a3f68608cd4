//! A webhook that wakes a workflow: the token leads to the run, the event's id keeps it from being heard twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{
    Delivery, Engine, EngineError, InboxError, Key, Result, get_step_metadata, hook, step, workflow,
};

use super::world::{DEATHS, Service, two_lives};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Paid {
    cents: u64,
}

/// What the payment service posts to us.
#[derive(Debug, Clone)]
struct Event {
    id: String,
    token: String,
    paid: Paid,
}

#[step(effect = "create", timeout = "30s")]
async fn ask_to_pay(#[resource] shop: &Shop, token: &str) -> Result<()> {
    shop.requests.act(get_step_metadata().step_id, token);
    Ok(())
}

#[step(effect = "create", timeout = "30s")]
async fn ship(#[resource] shop: &Shop, order: u64, cents: u64) -> Result<usize> {
    let what = format!("order {order} for {cents}");
    Ok(shop.parcels.act(get_step_metadata().step_id, what))
}

#[workflow]
async fn checkout(order: u64) -> Result<usize> {
    let token = format!("payment-{order}");
    let mut payments = hook::<Paid>(&token).await?; // held before it is given away
    ask_to_pay(&token).await?;
    let paid = payments.next().await?;
    ship(order, paid.cents).await
}

/// What a webhook answers with.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    /// 200: do not send it again.
    Thanks(Delivery),
    /// 404, or 503 if the sender gives up on a 404: nobody holds the token (yet), and the event is not accepted.
    NotNow,
}

/// The handler of the webhook, behind the check of the sender's signature: a token is no password.
async fn webhook(engine: &Engine, event: &Event) -> Result<Answer> {
    let inbox = engine.inbox("payments");
    let heard = inbox
        .accept(&event.id)
        .body(&event.paid)
        .signal_token(&event.token, &event.paid);
    match heard.await {
        Ok(accepted) => Ok(Answer::Thanks(accepted.delivery)),
        Err(InboxError::Engine(EngineError::NoHook { .. })) => Ok(Answer::NotNow),
        Err(error) => Err(error.into()),
    }
}

/// The outside of a shop, and every answer that its webhook gave.
#[derive(Default)]
struct Shop {
    requests: Service,
    parcels: Service,
    answers: Mutex<Vec<Answer>>,
}

fn event() -> Event {
    Event {
        id: "evt-1".into(),
        token: "payment-7".into(),
        paid: Paid { cents: 500 },
    }
}

/// One process: the event comes too early, then three times, and once more when the run has ended.
async fn live(store: MemoryStore, shop: Arc<Shop>) -> Result<usize> {
    let engine = Engine::builder()
        .register::<checkout>()
        .resource_arc(shop.clone())
        .open_with(store)
        .await?;
    let post = || async {
        let answer = webhook(&engine, &event()).await?;
        let mut answers = shop.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(answer);
        Ok::<_, workflow_runtime::Error>(answer)
    };
    post().await?;
    let run = engine
        .start(checkout(7))
        .key(Key::business("order", 7))
        .await?;
    while shop.requests.ledger().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await; // they do not know the token yet
    }
    for _ in 0..3 {
        assert_ne!(post().await?, Answer::NotNow, "the token was held before");
    }
    let parcel = run.result().await?;
    assert_eq!(
        post().await?,
        Answer::Thanks(Delivery::Duplicate),
        "late, and known"
    );
    // A signal with a key, and no inbox, would not be known any more.
    let event = event();
    let late = engine
        .signal_token(&event.token, &event.paid)
        .key(&event.id);
    assert!(matches!(late.await, Err(EngineError::NoHook { .. })));
    engine.shutdown().await?;
    Ok(parcel)
}

/// Delivers the event early, thrice and late, with a crash at every write.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<checkout>();
    let (mut crashes, mut posts) = (0, 0);
    for death in DEATHS {
        for write in 0.. {
            let shop = Arc::new(Shop::default());
            let ended = two_lives(write, death, |store| live(store, shop.clone()));
            let ended = ended.await?;
            assert_eq!(
                shop.parcels.ledger(),
                ["order 7 for 500"],
                "{death:?} at write {write}"
            );
            let answers = shop.answers.lock().unwrap_or_else(PoisonError::into_inner);
            let heard = answers
                .iter()
                .filter(|a| **a == Answer::Thanks(Delivery::First));
            assert!(heard.count() <= 1, "{answers:?}");
            assert_eq!(answers[0], Answer::NotNow, "nobody held the token");
            posts += answers.len();
            if ended.is_none() {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes >= 12, "a crash at every write: {crashes}");
    Ok(format!(
        "{crashes} crashes, {posts} deliveries, one parcel each time"
    ))
}
