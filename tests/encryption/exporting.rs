//! Exports of encrypted runs: closed unless somebody opens them, and opened with the right keys only.

use workflow_runtime::encryption::Encryption;
use workflow_runtime::export::JournalFile;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::{ReplayFailureKind, Replayer, Stopped};
use workflow_runtime::{Engine, EngineError, Result, RunId, step, wait_for, workflow};

use super::places::Telling;
use super::stories::{self, everything, failing, lives, passes, secret};
use super::{encryption, key, until};

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Card {
    number: String,
    cents: u64,
}

#[step]
async fn pay(card: Card) -> Result<u64> {
    Ok(card.cents)
}

#[workflow]
async fn paying(card: Card) -> Result<u64> {
    let paid = pay(card.clone()).await?;
    wait_for::<()>("go on").await?;
    Ok(paid + pay(card).await?)
}

fn card() -> Card {
    Card {
        number: secret("card"),
        cents: 7,
    }
}

fn replayer(codec: impl Fn() -> Option<Encryption> + Send + Sync + 'static) -> Replayer {
    Replayer::new().configure(move |_| {
        let builder = stories::builder().register::<paying>();
        match codec() {
            Some(codec) => builder.payload_codec(codec),
            None => builder,
        }
    })
}

/// The key 2 writes, and the key 1 has written.
fn both() -> Encryption {
    Encryption::new(2, key(2)).also_reads(1, key(1))
}

/// A run whose first half was encrypted with one key and whose second half with another.
async fn of_two_keys(store: &MemoryStore) -> (MemoryStore, RunId) {
    let engine = Engine::builder().register::<paying>();
    let engine = engine.payload_codec(encryption()).open_with(store.clone());
    let engine = engine.await.expect("opens");
    let run = engine.start(paying(card())).await.expect("starts").id();
    until("it waits", async || {
        engine.journal(run).await.expect("reads").records().len() == 2
    })
    .await;
    engine.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::All);
    let engine = Engine::builder().register::<paying>();
    let engine = engine.payload_codec(both()).open_with(store.clone());
    let engine = engine.await.expect("opens");
    engine.signal(run, "go on", &()).await.expect("sent");
    let handle = engine.run::<paying>(run).await.expect("is there");
    assert_eq!(handle.result().await.expect("ends"), 14);
    engine.shutdown().await.expect("stops");
    (store.reopen(Surviving::All), run)
}

#[tokio::test]
async fn an_export_names_its_keys_and_opens_with_all_of_them_only() {
    let (store, run) = of_two_keys(&MemoryStore::new()).await;
    // Without any key it can be had as well: nothing in it is readable.
    let engine = Engine::builder().open_with(store).await.expect("opens");
    let file = engine.export(run).await.expect("exports");
    assert!(file.is_coded());
    assert_eq!(file.key_ids(), [1, 2]);
    assert_eq!(file.head(), file.source_head(), "as the store has it");
    let json = file.to_json();
    assert!(json.contains("\"key_ids\": [1, 2]"), "{json}");
    assert!(
        !json.contains("canary") && !json.contains("cents"),
        "{json}"
    );
    let Err(EngineError::Export { problem, .. }) = engine.export(run).opened().await else {
        panic!("it has no key");
    };
    assert!(problem.to_string().contains("keys [1, 2]"), "{problem}");
    assert!(problem.to_string().contains("payload_codec"), "{problem}");

    let wrong = Encryption::new(2, key(2)).also_reads(1, key(9));
    for (codec, record, words) in [
        (
            encryption(),
            2,
            "the key 2, which this engine does not have",
        ),
        (
            Encryption::new(2, key(2)),
            0,
            "the key 1, which this engine does not have",
        ),
        (wrong, 0, "another key 1"),
    ] {
        let closed = file
            .clone()
            .open_with(&codec)
            .expect_err("a key is missing");
        assert_eq!(closed.record(), Some(record), "{closed}");
        assert!(closed.to_string().contains(words), "{closed}");
    }
    let open = file.clone().open_with(&both()).expect("opens");
    assert!(!open.is_coded() && open.key_ids().is_empty());
    assert!(open.to_json().contains(&secret("card")));
    assert_ne!(open.head(), open.source_head());
    assert_eq!(open.clone().open_with(&both()).expect("is open"), open);
}

#[tokio::test]
async fn who_has_the_keys_replays_an_encrypted_export_and_nobody_else() {
    let (store, run) = of_two_keys(&MemoryStore::new()).await;
    let engine = Engine::builder().payload_codec(both()).open_with(store);
    let engine = engine.await.expect("opens");
    let closed = engine.export(run).await.expect("exports");
    let open = engine.export(run).opened().await.expect("opens");
    for file in [&closed, &open] {
        let replayed = replayer(|| Some(both())).journal(file).expect("fits");
        assert_eq!((replayed.steps, replayed.stopped), (2, Stopped::Ended));
    }
    assert_eq!(replayer(|| None).journal(&open).expect("fits").steps, 2);
    let none = replayer(|| None).journal(&closed).expect_err("no key");
    let old = replayer(|| Some(encryption())).journal(&closed);
    let old = old.expect_err("one key is missing");
    for (failure, words) in [(none, "keys [1, 2]"), (old, "the key 2")] {
        assert_eq!(failure.kind(), ReplayFailureKind::Undecodable, "{failure}");
        assert!(failure.to_string().contains(words), "{failure}");
        assert!(!format!("{failure} {failure:?}").contains("canary"));
    }
    // Fields are taken out of what was opened; the code still fits what is left.
    let without = open.redact_fields(["number"]);
    assert!(!without.to_json().contains("canary"));
    assert!(without.to_json().contains("\"cents\": 7"));
    assert_eq!(replayer(|| None).journal(&without).expect("fits").steps, 2);
    // Of what is closed nobody can say where they are.
    let without = closed.redact_fields(["number"]);
    assert!(!without.to_json().contains("$payload"));
    assert_eq!(without.key_ids(), [0; 0]);
    let open = without.open_with(&both()).expect("nothing is left to open");
    assert!(!open.to_json().contains("canary") && !open.to_json().contains("cents"));
}

#[tokio::test]
async fn a_payload_that_was_moved_within_a_file_does_not_open() {
    let engine = Engine::builder().register::<paying>();
    let engine = engine.payload_codec(encryption()).open_in_memory().await;
    let engine = engine.expect("opens");
    let mut inputs = Vec::new();
    for _ in 0..2 {
        let run = engine.start(paying(card())).await.expect("starts").id();
        let file = engine.export(run).await.expect("exports");
        let json = file.to_json();
        let at = json.find("\"$payload\": \"c101").expect("is there");
        let end = at + json[at..].find('}').expect("ends");
        inputs.push((json[at..end].to_owned(), file));
    }
    let [(one, file), (other, _)] = &inputs[..] else {
        unreachable!("two were made");
    };
    assert_eq!(one.len(), other.len());
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("forged.journal.json");
    std::fs::write(&path, file.to_json().replace(one, other)).expect("writes");
    JournalFile::read(&path).expect_err("it was edited");
    let forged = JournalFile::read_edited(&path).expect("that is meant");
    let closed = forged.open_with(&encryption()).expect_err("it was moved");
    assert_eq!(closed.record(), Some(0), "{closed}");
    assert!(closed.to_string().contains("moved"), "{closed}");
    file.clone().open_with(&encryption()).expect("opens");
}

/// Exports runs of every kind: forks, forks of forks, lines and forks of them, with checkpoints, children, undoing.
#[tokio::test]
async fn exports_of_forks_lines_and_passes_open_too() {
    let builder = stories::builder().payload_codec(Telling(encryption()));
    let engine = builder.open_in_memory().await.expect("opens");
    let run = engine.start(everything(secret("run-input"))).await;
    let run = run.expect("starts");
    for (name, way) in [("word", "signal"), ("event", "inbox-signal")] {
        run.signal(name, &secret(way)).await.expect("sent");
    }
    until("the token is held", async || {
        let sent = engine.signal_token("token", &secret("hook")).await;
        sent.is_ok()
    })
    .await;
    run.result().await.expect("ends");
    let fork = run.fork().await.expect("forks");
    fork.result().await.expect("ends");
    fork.fork()
        .await
        .expect("forks")
        .result()
        .await
        .expect("ends");
    let line = engine.start(lives(secret("continued"), 0)).await;
    let line = line.expect("starts");
    let word = secret("line-signal");
    line.signal("word", &word).await.expect("sent");
    line.signal("begin", &()).await.expect("sent");
    line.result().await.expect("ends");
    let newest = engine.lineage(line.id()).await.expect("is there").newest;
    let newest = engine.run::<lives>(newest).await.expect("is there");
    newest
        .fork()
        .await
        .expect("forks")
        .result()
        .await
        .expect("ends");
    let run = engine.start(passes(secret("checkpoint"), 0)).await;
    let run = run.expect("starts");
    let word = secret("checkpoint-signal");
    run.signal("word", &word).await.expect("sent");
    run.result().await.expect_err("fails");
    let fork = run.fork().at(2).await.expect("forks");
    fork.signal("word", &word).await.expect("sent");
    fork.result().await.expect_err("fails");
    let run = engine.start(failing()).await.expect("starts");
    run.result().await.expect_err("fails");

    let runs = engine.runs().limit(100).await.expect("lists").runs;
    assert!(runs.len() > 10, "{}", runs.len());
    for header in runs {
        let file = engine.export(header.run).await.expect("exports");
        assert_eq!(file.key_ids(), [1], "{header:?}");
        let open = engine.export(header.run).opened().await;
        let open = open.unwrap_or_else(|error| panic!("{error} {header:?}"));
        assert!(!open.to_json().contains("$payload"), "{header:?}");
        let replayed = replayer(|| Some(encryption())).journal(&file);
        replayed.unwrap_or_else(|failure| panic!("{failure} {header:?}"));
    }
}
