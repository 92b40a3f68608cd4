//! How a relay treats handlers that fail, hang, panic or are slow.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::store::{NoteKey, Store as _};
use workflow_runtime::testing::TestEngine;
use workflow_runtime::{
    Delivery, Engine, Error, MessageId, PayloadCodec, RelayOptions, Result, outbox, step, workflow,
};

use super::{Received, until_empty, until_empty_within};

#[step]
async fn say(texts: Vec<String>) -> Result<()> {
    for text in &texts {
        outbox("mail").push(text)?;
    }
    Ok(())
}

#[workflow]
async fn speech(name: String, words: u32) -> Result<()> {
    let texts: Vec<_> = (0..words).map(|n| format!("{name} {n}")).collect();
    say(texts).await
}

fn builder() -> workflow_runtime::EngineBuilder {
    Engine::builder().register::<speech>()
}

async fn speak(engine: &Engine, name: &str, words: u32) {
    let run = engine.start(speech(name.into(), words)).key(name).await;
    run.expect("starts").result().await.expect("ends");
}

#[tokio::test]
async fn a_message_that_fails_is_tried_again_and_those_behind_it_wait() {
    let (received, failures) = (Received::default(), Arc::new(AtomicU32::new(0)));
    let engine = TestEngine::builder();
    let engine = engine.register::<speech>().open().await.expect("opens");
    speak(&engine, "ada", 3).await;
    speak(&engine, "bob", 3).await;
    let (list, count) = (received.clone(), failures.clone());
    let options =
        RelayOptions::default().backoff(Duration::from_secs(60), Duration::from_secs(600));
    let relayed = engine.outbox("mail").relay_with(options, move |message| {
        let (list, count) = (list.clone(), count.clone());
        async move {
            if message.decode::<String>()? == "ada 1" && message.attempt < 4 {
                count.fetch_add(1, Ordering::SeqCst);
                match message.attempt {
                    1 => return Err(Error::retry_after("busy", Duration::from_secs(5))),
                    2 => panic!("it fell over"),
                    _ => std::future::pending::<()>().await, // until it takes too long
                }
            }
            list.take(&message)
        }
    });
    relayed.expect("is relayed");
    engine.advance(Duration::from_secs(4)).await;
    let mut texts = received.texts();
    texts.sort();
    assert_eq!(texts, ["ada 0", "bob 0", "bob 1", "bob 2"], "others go on");
    until_empty_within(&engine, "mail", Duration::from_secs(3600)).await;
    assert_eq!(failures.load(Ordering::SeqCst), 3);
    let texts = received.texts();
    let ada: Vec<_> = texts
        .iter()
        .filter(|text| text.starts_with("ada"))
        .collect();
    assert_eq!(ada, ["ada 0", "ada 1", "ada 2"]);
    let elapsed = engine.elapsed();
    assert!(
        elapsed >= Duration::from_secs(5 + 60 + 60 + 60),
        "{elapsed:?}"
    );
    assert!(
        elapsed <= Duration::from_secs(5 + 240 + 60 + 480 + 10),
        "{elapsed:?}"
    );
}

#[tokio::test]
async fn a_message_that_nobody_takes_is_set_aside_and_the_next_ones_go_on() {
    let (received, poison) = (Received::default(), Arc::new(AtomicU32::new(1)));
    let engine = TestEngine::builder();
    let engine = engine.register::<speech>().open().await.expect("opens");
    let (list, poisonous) = (received.clone(), poison.clone());
    let options = RelayOptions::default().max_attempts(5);
    let relayed = engine.outbox("mail").relay_with(options, move |message| {
        let (list, poisonous) = (list.clone(), poisonous.clone());
        async move {
            let text: String = message.decode()?;
            match (poisonous.load(Ordering::SeqCst), text.as_str()) {
                (1, "ada 1") => Err(Error::new("no such address").context("could not send")),
                (1, "bob 0") => Err(Error::fatal("refused")),
                _ => list.take(&message),
            }
        }
    });
    relayed.expect("is relayed");
    speak(&engine, "ada", 3).await;
    speak(&engine, "bob", 2).await;
    until_empty(&engine, "mail").await;
    let mut texts = received.texts();
    texts.sort();
    assert_eq!(texts, ["ada 0", "ada 2", "bob 1"]);
    let mail = engine.outbox("mail");
    let mut aside = mail.set_aside(10).await.expect("lists");
    aside.sort_by_key(|one| one.message.attempt);
    let told: Vec<_> = aside
        .iter()
        .map(|one| {
            let text: String = one.message.decode().expect("reads");
            (text, one.message.attempt, one.problem.clone())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("bob 0".to_owned(), 1, "refused".to_owned()),
            (
                "ada 1".to_owned(),
                5,
                "could not send: no such address".to_owned()
            )
        ]
    );
    mail.discard(aside[0].message.id)
        .await
        .expect("is forgotten");
    mail.discard(aside[0].message.id)
        .await
        .expect_err("is gone");
    mail.retry(aside[0].message.id).await.expect_err("is gone");
    mail.retry(aside[1].message.id)
        .await
        .expect("is tried again");
    until_empty(&engine, "mail").await;
    let again = mail.set_aside(10).await.expect("lists");
    assert_eq!(again.len(), 1, "it had all its attempts once more");
    assert_eq!(
        (again[0].message.id, again[0].message.attempt),
        (aside[1].message.id, 5)
    );
    poison.store(0, Ordering::SeqCst);
    mail.retry(aside[1].message.id)
        .await
        .expect("is tried again");
    until_empty(&engine, "mail").await;
    assert_eq!(received.list().last().expect("some").0, aside[1].message.id);
    assert!(mail.set_aside(10).await.expect("lists").is_empty());
}

#[tokio::test]
async fn attempts_are_counted_across_processes() {
    let (seen, mut store) = (Arc::new(Mutex::new(Vec::new())), MemoryStore::new());
    for life in 1..=3u32 {
        let enough = Arc::new(Notify::new());
        let (list, told) = (seen.clone(), enough.clone());
        let options = RelayOptions::default()
            .max_attempts(6)
            .backoff(Duration::from_millis(1), Duration::from_millis(1));
        let engine = builder().outbox_with("mail", options, move |message| {
            let (list, told) = (list.clone(), told.clone());
            async move {
                list.lock().expect("no panic").push(message.attempt);
                match message.attempt >= 2 * life {
                    true => {
                        told.notify_one();
                        std::future::pending().await // its process dies
                    }
                    false => Err(Error::new("not now")),
                }
            }
        });
        let engine = engine.open_with(store.clone()).await.expect("opens");
        speak(&engine, "ada", 1).await;
        tokio::time::timeout(Duration::from_secs(30), enough.notified())
            .await
            .expect("is tried");
        drop(engine);
        store = store.reopen(Surviving::Synced);
    }
    // An attempt that was under way when the process died has no record: it is made again.
    assert_eq!(*seen.lock().expect("no panic"), [1, 2, 2, 3, 4, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn so_many_messages_are_on_their_way_at_once_each_of_another_run() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let of_run: Arc<Mutex<HashMap<_, usize>>> = Arc::default();
    let received = Received::default();
    let (flying, highest, list, runs) =
        (now.clone(), most.clone(), received.clone(), of_run.clone());
    let options = RelayOptions::default().concurrency(3);
    let engine = builder().outbox_with("mail", options, move |message| {
        let (flying, highest, list, runs) =
            (flying.clone(), highest.clone(), list.clone(), runs.clone());
        async move {
            let count = flying.fetch_add(1, Ordering::SeqCst) + 1;
            highest.fetch_max(count, Ordering::SeqCst);
            let alone = runs
                .lock()
                .expect("no panic")
                .insert(message.run, 1)
                .unwrap_or(0)
                == 0;
            tokio::time::sleep(Duration::from_millis(2)).await;
            runs.lock().expect("no panic").insert(message.run, 0);
            flying.fetch_sub(1, Ordering::SeqCst);
            assert!(alone, "two messages of one run at once");
            list.take(&message)
        }
    });
    let engine = engine.open_in_memory().await.expect("opens");
    for n in 0..20 {
        speak(&engine, &format!("run{n}"), 5).await;
    }
    until_empty(&engine, "mail").await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let texts = received.texts();
    assert_eq!(texts.len(), 100);
    for n in 0..20 {
        let name = format!("run{n} ");
        let of: Vec<_> = texts
            .iter()
            .filter(|text| text.starts_with(&name))
            .cloned()
            .collect();
        let expected: Vec<_> = (0..5).map(|word| format!("{name}{word}")).collect();
        assert_eq!(of, expected);
    }
    assert!(
        engine
            .outbox("mail")
            .set_aside(1)
            .await
            .expect("lists")
            .is_empty()
    );
}

#[tokio::test]
async fn a_shutdown_waits_for_handlers_and_hands_nothing_over_any_more() {
    let (received, begun, go) = (
        Received::default(),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let (list, told, wait) = (received.clone(), begun.clone(), go.clone());
    let store = MemoryStore::new();
    let engine = builder().outbox("mail", move |message| {
        let (list, told, wait) = (list.clone(), told.clone(), wait.clone());
        async move {
            told.notify_one();
            wait.notified().await;
            list.take(&message)
        }
    });
    let engine = engine.open_with(store.clone()).await.expect("opens");
    speak(&engine, "ada", 2).await;
    begun.notified().await;
    let stopping = tokio::spawn(engine.shutdown().into_future());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!stopping.is_finished(), "a handler has a message");
    go.notify_one();
    stopping.await.expect("no panic").expect("stops");
    assert_eq!(received.texts(), ["ada 0"]);
    let engine = builder()
        .open_with(store.reopen(Surviving::Synced))
        .await
        .expect("opens");
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 1);
}

#[tokio::test]
async fn with_the_guard_a_message_that_is_relayed_again_is_sent_once() {
    let store = MemoryStore::new();
    let sent: Arc<Mutex<Vec<MessageId>>> = Arc::default();
    let options =
        RelayOptions::default().backoff(Duration::from_millis(1), Duration::from_millis(1));
    let engine = builder().open_with(store.clone()).await.expect("opens");
    let (guard, list) = (engine.clone(), sent.clone());
    let relayed = engine.outbox("mail").relay_with(options, move |message| {
        let (guard, list) = (guard.clone(), list.clone());
        async move {
            let sending = async || {
                list.lock().expect("no panic").push(message.id);
                Ok::<_, Error>(())
            };
            guard.once(message.id).run(sending).await?;
            match message.attempt {
                1..3 => Err(Error::new("the receipt was lost")),
                _ => Ok(()),
            }
        }
    });
    relayed.expect("is relayed");
    speak(&engine, "ada", 2).await;
    until_empty(&engine, "mail").await;
    assert_eq!(sent.lock().expect("no panic").len(), 2);
    engine.shutdown().await.expect("stops");
}

#[tokio::test]
async fn runs_with_a_long_tail_do_not_keep_others_from_their_turn() {
    let received = Received::default();
    let list = received.clone();
    let options = RelayOptions::default().concurrency(1);
    let engine = builder().open_in_memory().await.expect("opens");
    speak(&engine, "long", 300).await;
    for n in 0..10 {
        speak(&engine, &format!("short{n}"), 1).await;
    }
    let relayed = engine.outbox("mail").relay_with(options, move |message| {
        let list = list.clone();
        async move { list.take(&message) }
    });
    relayed.expect("is relayed");
    until_empty(&engine, "mail").await;
    let texts = received.texts();
    assert_eq!(texts.len(), 310);
    let last = texts
        .iter()
        .rposition(|text| text.starts_with("short"))
        .expect("some");
    assert!(last < 100, "the last short one was number {last}");
}

/// Hides payloads from whoever looks at the disk.
struct Xor;

impl PayloadCodec for Xor {
    fn encode(&self, plain: Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(plain.into_iter().map(|byte| byte ^ 0x5a).collect())
    }

    fn decode(&self, coded: &[u8]) -> Result<Vec<u8>, String> {
        self.encode(coded.to_vec())
    }
}

#[tokio::test]
async fn messages_problems_and_events_go_through_the_payload_codec() {
    let store = MemoryStore::new();
    let open = async |store: &MemoryStore| {
        let engine = builder().payload_codec(Xor).open_with(store.clone()).await;
        engine.expect("opens")
    };
    let engine = open(&store).await;
    let inbox = engine.inbox("source");
    let first = inbox.accept("evt").start(speech("ada".into(), 2)).await;
    let first = first.expect("accepted");
    let run = engine.run::<speech>(first.run).await.expect("is there");
    run.result().await.expect("ends");
    let relayed = engine.outbox("mail").relay(|message| async move {
        let text: String = message.decode()?;
        Err(Error::fatal(format!("nobody wants {text:?}")))
    });
    relayed.expect("is relayed");
    until_empty(&engine, "mail").await;
    let aside = engine.outbox("mail").set_aside(9).await.expect("lists");
    let mut problems: Vec<_> = aside.iter().map(|one| one.problem.as_str()).collect();
    problems.sort_unstable();
    assert_eq!(
        problems,
        ["nobody wants \"ada 0\"", "nobody wants \"ada 1\""]
    );
    for space in [0x70, 0x82] {
        let notes = store.notes(NoteKey::new(space, &[]), None, 9).await;
        for (_, value) in notes.expect("lists") {
            let hidden = |text: &[u8]| !value.windows(text.len()).any(|part| part == text);
            assert!(hidden(b"ada") && hidden(b"nobody"), "{space:x}");
            assert!(space == 0x82 || hidden(first.run.as_bytes()));
        }
    }
    drop(engine);
    let engine = open(&store.reopen(Surviving::Synced)).await;
    let again = engine.inbox("source").accept("evt");
    let again = again.start(speech("ada".into(), 2)).await.expect("known");
    assert_eq!(
        (again.run, again.delivery),
        (first.run, Delivery::Duplicate)
    );
}
