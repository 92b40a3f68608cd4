//! Journals of runs that talk (signals, hooks, children, cancels) and the letters between them, as
//! they lie on disks.

use std::time::Duration;

use bytes::Bytes;
use workflow_runtime::journal::Journal;
use workflow_runtime::store::memory::MemoryStore;
use workflow_runtime::store::{NoteKey, Store};
use workflow_runtime::{Engine, EngineError, RunHandle, RunId, RunStatus, StepId};
use workflow_tests::frames;

use super::journal::{load, show, timeless};
use super::talk::{child, endless, notes, parked, talk, waiting};

async fn open(store: &MemoryStore) -> Engine {
    Engine::builder()
        .namespace("fixtures")
        .register::<talk>()
        .register::<child>()
        .register::<waiting>()
        .register::<endless>()
        .register::<parked>()
        .register::<notes>()
        .open_with(store.clone())
        .await
        .expect("opens")
}

/// The journals of a talk and of one of its children: records 7, 8, 9, and a parent.
async fn record_talk() -> [(Journal, Vec<Bytes>); 2] {
    let store = MemoryStore::new();
    let engine = open(&store).await;
    let run = engine.start(talk()).key("story").await.expect("starts");
    run.signal("start", &3).key("first").await.expect("sends");
    while let Err(EngineError::NoHook { .. }) = engine.signal_token("callback-7", &4).await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(run.result().await.expect("ends well"), 14);
    let children = engine.runs().workflow("format child").await.expect("lists");
    let failed = children.runs.iter().find(|one| one.key.is_some());
    let failed = failed.expect("has a key").run;
    [
        read(&engine, &store, run.id()).await,
        read(&engine, &store, failed).await,
    ]
}

/// The journal of a run that was cancelled: records 10 and 23.
async fn record_cancel() -> (Journal, Vec<Bytes>) {
    let store = MemoryStore::new();
    let engine = open(&store).await;
    let run = engine.start(waiting()).key("story").await.expect("starts");
    while engine.runs().await.expect("lists").runs.len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run.cancel().reason("changed my mind").await.expect("asks");
    run.result().await.expect_err("is cancelled");
    read(&engine, &store, run.id()).await
}

async fn read(engine: &Engine, store: &MemoryStore, run: RunId) -> (Journal, Vec<Bytes>) {
    let journal = engine.journal(run).await.expect("reads");
    (journal, frames(store, run).await)
}

#[tokio::test]
async fn journals_of_runs_that_talk_are_read_and_written_the_same() {
    let [talk, child] = record_talk().await;
    let cases = [
        ("talk-1", talk),
        ("talk-child-1", child),
        ("cancelled-1", record_cancel().await),
    ];
    for (name, today) in cases {
        let fixture = load(name, &today);
        let engine = fixture.reader(None).await;
        let journal = engine.journal(fixture.run).await.expect("reads");
        assert_eq!(show(journal.records()), fixture.expected, "{name}");
        assert_eq!(fixture.run, today.0.header().run, "ids are derived");
        let then = timeless(&fixture.frames, journal.records());
        let now = timeless(&today.1, today.0.records());
        assert_eq!(then, now, "{name}");
    }
}

/// Letters that wait for a run that is parked.
async fn letters(send: impl AsyncFnOnce(&RunHandle<parked>)) -> Vec<Bytes> {
    let store = MemoryStore::new();
    let engine = open(&store).await;
    let run = engine.start(parked()).await.expect("starts");
    while !matches!(run.status().await.expect("reads"), RunStatus::Parked(_)) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    send(&run).await;
    let mail = store.mail(run.id(), 0).await.expect("reads");
    mail.into_iter().map(|mail| mail.body).collect()
}

#[tokio::test]
async fn a_letter_is_a_records_tag_and_fields_without_its_time() {
    let letters = letters(async |run| {
        run.signal("start", &3).key("k").await.expect("sends");
        run.signal("start", &"x").await.expect("sends");
        run.cancel().reason("late").await.expect("asks");
    })
    .await;
    let timeless: Vec<Vec<u8>> = letters
        .iter()
        .map(|letter| {
            let at = letter
                .iter()
                .position(|byte| *byte == 0xfd)
                .expect("a time");
            [&letter[..at], b"<time>", &letter[at + 9..]].concat()
        })
        .collect();
    let expected: [&[u8]; 3] = [
        b"\x07\x05start\x01\x01k<time>\x01\x03",
        b"\x07\x05start\x00<time>\x02\xa1x",
        b"\x0a\x04late<time>",
    ];
    assert_eq!(timeless, expected);
}

#[tokio::test]
async fn notes_of_runs_that_talk_are_what_the_documentation_says() {
    let store = MemoryStore::new();
    let engine = open(&store).await;
    let run = engine.start(notes()).key("story").await.expect("starts");
    run.signal("seen", &()).key("once").await.expect("sends");
    let progress = run.watch::<u32>("progress").changed().await;
    assert_eq!(progress.expect("reads"), Some(3));
    let id = run.id();
    let mut own_key = vec![0];
    for byte in id.as_bytes() {
        own_key.push(*byte);
        if *byte == 0 {
            own_key.push(0xff);
        }
    }
    own_key.extend([0, 1]);
    let own = |parts: &[u8]| [&own_key, parts].concat();
    // The digest of what was sent.
    let body = [
        45, 58, 222, 223, 241, 27, 97, 241, 76, 136, 110, 53, 175, 160, 54, 115,
    ];
    let expected: [(Vec<u8>, &[u8]); 3] = [
        (own(b"published\x00\x01progress\x00\x01"), b"\x03"),
        (own(b"signal\x00\x01seen\x00\x01once\x00\x01"), &body),
        (
            b"\x01fixtures\x00\x01callback-8\x00\x01".to_vec(),
            id.as_bytes(),
        ),
    ];
    for (key, value) in expected {
        let found = store.note(NoteKey::from_bytes(key.clone().into())).await;
        let found = found.expect("reads");
        assert_eq!(found.as_deref(), Some(value), "{}", key.escape_ascii());
    }
}

/// BLAKE3 in derive-key mode over fields that are each prefixed with their length.
fn hash(context: &str, fields: &[&[u8]]) -> [u8; 16] {
    let mut hash = blake3::Hasher::new_derive_key(context);
    for field in fields {
        hash.update(&(field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    hash.finalize().as_bytes()[..16]
        .try_into()
        .expect("16 bytes")
}

#[tokio::test]
async fn ids_of_children_are_what_the_documentation_says() {
    let [(talk, _), (child, _)] = record_talk().await;
    let version = 1u16.to_le_bytes();
    let fields: [&[u8]; 7] = [
        &version,
        talk.header().run.as_bytes(),
        b"a0",
        b"child",
        b"format child",
        b"key",
        b"nothing",
    ];
    let call = StepId::from_bytes(hash("workflow-runtime 2026-11 step id", &fields));
    let fields: [&[u8]; 2] = [&version, call.as_bytes()];
    let run = RunId::from_bytes(hash("workflow-runtime 2026-11 child run id", &fields));
    assert_eq!(child.header().run, run);
}
