//! A payment under the id of its step: charged once, however often it is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{Engine, Key, Result, ResultExt, StepId, get_step_metadata, step, workflow};

use super::world::{DEATHS, Service, two_lives};

/// Why the bank gave no receipt.
#[derive(Debug, Serialize, Deserialize)]
enum Refused {
    /// The key is known: this is the receipt of the first request (an HTTP 409, say).
    Known { first: usize },
    /// Nobody knows what came of the request.
    NoAnswer,
    /// There is no money. To ask again does not help.
    Declined,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Known { .. } => "the bank knows that key",
            Self::NoAnswer => "the bank did not answer",
            Self::Declined => "the card was declined",
        })
    }
}

impl std::error::Error for Refused {}

fn may_be_asked_again(refused: &Refused) -> bool {
    matches!(refused, Refused::NoAnswer)
}

#[step(
    effect = "payment",
    timeout = "30s",
    backoff = "1ms..5ms",
    retry_if = may_be_asked_again
)]
async fn charge(#[resource] bank: &Bank, customer: &str, cents: u64) -> Result<usize, Refused> {
    // The same in every attempt, process and machine; so no time, no attempt and no random number is in the key.
    let key = get_step_metadata().step_id;
    let answer = bank.charge(key, customer, cents);
    answer.or_already_done(|refused| match refused {
        Refused::Known { first } => Some(*first), // an earlier attempt had worked
        Refused::NoAnswer | Refused::Declined => None,
    })
}

#[workflow(key_ttl = "90d")]
async fn pay(customer: String, cents: u64) -> Result<usize, Refused> {
    charge(&customer, cents).await
}

/// A bank that charges, and whose first answer is lost.
#[derive(Default)]
struct Bank {
    service: Service,
    has_answered: AtomicBool,
    declined: AtomicUsize,
}

impl Bank {
    fn charge(&self, key: StepId, customer: &str, cents: u64) -> Result<usize, Refused> {
        if customer == "nobody" {
            self.declined.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Declined);
        }
        let first = self.service.find(key);
        let receipt = self.service.act(key, format!("{customer} {cents}"));
        if let Some(first) = first {
            return Err(Refused::Known { first });
        }
        match self.has_answered.swap(true, Ordering::Relaxed) {
            true => Ok(receipt),
            false => Err(Refused::NoAnswer),
        }
    }
}

/// One process: it starts the payment, perhaps not for the first time, and waits for it.
async fn live(store: MemoryStore, bank: Arc<Bank>) -> Result<usize> {
    let engine = Engine::builder()
        .register::<pay>()
        .resource_arc(bank)
        .open_with(store)
        .await?;
    let start = || {
        engine
            .start(pay("ada".into(), 500))
            .key(Key::business("payment", 7))
    };
    start().await?;
    let run = start().await?; // the client repeats its request
    let receipt = run.result().await?;
    engine.shutdown().await?;
    Ok(receipt)
}

/// Charges through a lost answer and a crash at every write, and finds one charge each time.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<pay>();
    let (mut crashes, mut requests) = (0, 0);
    for death in DEATHS {
        for write in 0.. {
            let bank = Arc::new(Bank::default());
            let ended = two_lives(write, death, |store| live(store, bank.clone())).await?;
            assert_eq!(
                bank.service.ledger(),
                ["ada 500"],
                "{death:?} at write {write}"
            );
            requests += bank.service.asked();
            let Some(receipt) = ended else { break };
            assert_eq!(receipt, 1, "every process gets the first receipt");
            crashes += 1;
        }
    }
    assert!(crashes >= 8, "a crash at every write: {crashes}");
    assert!(requests > 2 * crashes, "the bank was asked again each time");

    let bank = Arc::new(Bank::default());
    let builder = Engine::builder()
        .register::<pay>()
        .resource_arc(bank.clone());
    let engine = builder.open_in_memory().await?;
    let run = engine.start(pay("nobody".into(), 500)).await?;
    let declined = run.result().await;
    assert!(declined.is_err_and(|error| error.to_string().contains("declined")));
    assert_eq!(bank.declined.load(Ordering::Relaxed), 1, "not asked again");
    engine.shutdown().await?;
    Ok(format!(
        "{crashes} crashes, {requests} requests, one charge each time"
    ))
}
