//! Notifications by an outbox: sent if and only if the step that pushed them succeeded, and once per message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::idempotency::{EngineKeys, Once};
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{
    Engine, Error, Key, Message, RelayOptions, Result, get_step_metadata, outbox, step, workflow,
};

use super::world::{DEATHS, Service, two_lives};

const DAYS: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    to: String,
    text: String,
}

#[step(effect = "update", timeout = "30s", backoff = "1ms..5ms")]
async fn ship(#[resource] outside: &Outside, order: u64) -> Result<usize> {
    let meta = get_step_metadata();
    let note = Note {
        to: "ada".into(),
        text: format!("order {order} shipped, attempt {}", meta.attempt),
    };
    outbox("mail").push(&note)?; // kept with this attempt, written with its outcome
    outbox("sms").push(&note)?;
    let parcel = outside.carrier.act(meta.step_id, format!("order {order}"));
    match meta.attempt {
        1 => Err(Error::new("the carrier did not answer")), // what this attempt pushed is dropped
        _ => Ok(parcel),
    }
}

#[workflow]
async fn fulfil(order: u64) -> Result<usize> {
    ship(order).await
}

/// The other side takes a key: it gets the message's id.
async fn send_mail(outside: Arc<Outside>, message: Message) -> Result<()> {
    let note: Note = message.decode()?;
    outside
        .mail
        .act(message.id, format!("{}: {}", note.to, note.text));
    match outside.mail_has_answered.swap(true, Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Error::new("the mail server did not answer")),
    }
}

/// The other side takes none: an "already sent" marker by recipient and message is kept here.
async fn send_sms(outside: Arc<Outside>, keys: EngineKeys, message: Message) -> Result<()> {
    let note: Note = message.decode()?;
    let marker = Once::new(&keys, Key::of((&note.to, message.id.to_string())));
    let sent = marker.ttl(90 * DAYS).run(|| async {
        outside.texts.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Error>(())
    });
    sent.await?;
    match outside.texts_have_answered.swap(true, Ordering::Relaxed) {
        true => Ok(()),
        false => Err(Error::new(
            "something else went wrong after the text was sent",
        )),
    }
}

/// Who is told. Each of them loses one answer.
#[derive(Default)]
struct Outside {
    carrier: Service,
    mail: Service,
    mail_has_answered: AtomicBool,
    texts: AtomicUsize,
    texts_have_answered: AtomicBool,
}

/// One process: it ships, and waits until everybody was told.
async fn live(store: MemoryStore, outside: Arc<Outside>) -> Result<()> {
    let quickly =
        RelayOptions::default().backoff(Duration::from_millis(1), Duration::from_millis(5));
    let mailing = outside.clone();
    let engine = Engine::builder()
        .register::<fulfil>()
        .resource_arc(outside.clone())
        .outbox_with("mail", quickly.clone(), move |message| {
            send_mail(mailing.clone(), message)
        })
        .open_with(store)
        .await?;
    let keys = engine.keys();
    let relay = move |message| send_sms(outside.clone(), keys.clone(), message);
    engine.outbox("sms").relay_with(quickly, relay)?;
    engine
        .start(fulfil(7))
        .key(Key::business("order", 7))
        .await?
        .result()
        .await?;
    for name in ["mail", "sms"] {
        while engine.outbox(name).pending().await? > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    engine.shutdown().await?;
    Ok(())
}

/// Ships with failed attempts, lost answers and a crash at every write.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<fulfil>();
    let (mut crashes, mut handed_over) = (0, 0);
    for death in DEATHS {
        for write in 0.. {
            let outside = Arc::new(Outside::default());
            let ended = two_lives(write, death, |store| live(store, outside.clone()));
            let died = ended.await?.is_some();
            let mails = outside.mail.ledger();
            assert_eq!(
                mails,
                ["ada: order 7 shipped, attempt 2"],
                "{death:?} at write {write}"
            );
            let texts = outside.texts.load(Ordering::Relaxed);
            match died {
                // A marker of our own is as good as a write after the deed: a crash in between repeats it.
                true => assert!((1..=2).contains(&texts), "{texts} texts"),
                false => assert_eq!(texts, 1, "without a crash the marker is enough"),
            }
            handed_over += outside.mail.asked();
            if !died {
                break;
            }
            crashes += 1;
        }
    }
    assert!(crashes >= 12, "a crash at every write: {crashes}");
    assert!(handed_over > crashes, "mails were handed over again");
    Ok(format!(
        "{crashes} crashes, {handed_over} times handed over, one mail each time"
    ))
}
