//! Runs as files: what they hold, what is taken out, and what is noticed when they are read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use workflow_runtime::export::JournalFile;
use workflow_runtime::journal::Event;
use workflow_runtime::store::memory::{MemoryStore, Surviving};
use workflow_runtime::testing::{ReplayFailureKind, Stopped};
use workflow_runtime::{Engine, EngineError, PayloadCodec, RunId};
use workflow_tests::Edited;

use crate::recorded::*;
use crate::recording;
use crate::redacting::holds;

fn path(name: &str) -> std::path::PathBuf {
    let journals = Path::new(env!("CARGO_MANIFEST_DIR")).join("journals");
    journals.join(format!("{name}.journal.json"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

fn names() -> Vec<String> {
    let folder = std::fs::read_dir(path("x").parent().unwrap()).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| Some(name.strip_suffix(".journal.json")?.to_owned()));
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_file_is_read_and_written_again_without_a_change() {
    for name in names() {
        let file = JournalFile::read(path(&name)).unwrap();
        assert_eq!(file.to_json(), text(&name), "{name}");
        let bytes = file.to_binary();
        assert_eq!(
            JournalFile::from_binary(bytes.clone()).unwrap(),
            file,
            "{name}"
        );
        let len = file.to_json().len();
        assert!(
            bytes.len() * 2 < len,
            "{name}: {} of {len} bytes",
            bytes.len()
        );
    }
}

#[test]
fn the_text_is_json_for_others_too() {
    for name in names() {
        let value: serde_json::Value = serde_json::from_str(&text(&name)).unwrap();
        let file = JournalFile::read(path(&name)).unwrap();
        assert_eq!(value["run"], file.run().to_string());
        let records = value["records"].as_array().unwrap();
        assert_eq!(records.len(), file.records().len());
        for (n, record) in records.iter().enumerate() {
            assert_eq!(record["seq"], n);
        }
    }
}

#[tokio::test]
async fn a_file_says_whose_it_is_and_what_the_store_has() {
    let engine = recording::engine().await;
    let run = engine.start(parent()).key("family").await.unwrap();
    run.result().await.unwrap();
    let file = engine.export(run.id()).await.unwrap();
    let journal = engine.journal(run.id()).await.unwrap();
    assert_eq!(file.records(), journal.records());
    assert_eq!(file.head(), file.source_head());
    assert_eq!((file.workflow(), file.version()), ("parent", 1));
    assert_eq!((file.namespace(), file.key()), ("fixtures", Some("family")));
    assert_eq!(
        (file.parent(), file.cut(), file.is_redacted()),
        (None, None, false)
    );
    let child = file
        .records()
        .iter()
        .find_map(|record| match &record.event {
            Event::ChildStarted(started) => Some(started.child),
            _ => None,
        });
    let child = engine.export(child.unwrap()).await.unwrap();
    assert_eq!(child.parent().unwrap().run, run.id());
}

#[tokio::test]
async fn a_run_that_is_not_there_cannot_be_exported() {
    let engine = recording::engine().await;
    let nobody = RunId::from_bytes([1; 16]);
    let refused = engine.export(nobody).await;
    assert!(matches!(refused, Err(EngineError::UnknownRun(run)) if run == nobody));
}

#[tokio::test]
async fn a_run_on_disk_is_exported_after_a_restart_and_replays() {
    let folder = tempfile::tempdir().unwrap();
    let open = async || {
        let engine = register(Engine::builder())
            .resource(World)
            .resource(Tried::default());
        engine
            .audit_key([7; 32])
            .open(folder.path().join("db"))
            .await
            .unwrap()
    };
    let engine = open().await;
    let run = engine.start(sequence(order())).await.unwrap().id();
    let _ = engine.run::<sequence>(run).await.unwrap().result().await;
    engine.shutdown().await.unwrap();
    let engine = open().await;
    let file = engine.export(run).await.unwrap();
    engine.shutdown().await.unwrap();
    // The chain in the store has a key; that of the file must not need it.
    assert_ne!(file.head(), file.source_head());
    for name in ["run.journal.json", "run.journal"] {
        let path = folder.path().join(name);
        file.write(&path).unwrap();
        assert_eq!(JournalFile::read(&path).unwrap(), file);
        assert_eq!(replayer().file(&path).unwrap().stopped, Stopped::Ended);
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 3, "the database and two files");
}

/// A codec that turns every byte over, as long as it has its key.
#[derive(Clone, Default)]
struct Turned {
    key_is_lost: Arc<AtomicBool>,
}

impl PayloadCodec for Turned {
    fn encode(&self, plain: Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(plain.into_iter().map(|byte| !byte).collect())
    }

    fn decode(&self, coded: &[u8]) -> Result<Vec<u8>, String> {
        match self.key_is_lost.load(Ordering::Relaxed) {
            true => Err("the key is lost".into()),
            false => Ok(coded.iter().map(|byte| !byte).collect()),
        }
    }
}

#[tokio::test]
async fn payloads_leave_as_the_codec_made_them_unless_they_are_asked_for_in_clear() {
    let (store, codec) = (MemoryStore::new(), Turned::default());
    let engine = register(Engine::builder())
        .resource(World)
        .resource(Tried::default());
    let engine = engine
        .payload_codec(codec.clone())
        .open_with(store.clone())
        .await
        .unwrap();
    let run = engine.start(sequence(order())).await.unwrap();
    run.result().await.unwrap();

    let coded = engine.export(run.id()).await.unwrap();
    assert!(coded.is_coded() && coded.key_ids().is_empty());
    assert_eq!(coded.head(), coded.source_head());
    assert!(!holds(&coded, "Ada") && !holds(&coded, "customer"));
    assert!(coded.to_json().starts_with("{\n  \"journal_file\": 2,"));
    assert_eq!(JournalFile::from_json(&coded.to_json()).unwrap(), coded);
    assert_eq!(JournalFile::from_binary(coded.to_binary()).unwrap(), coded);

    let open = engine.export(run.id()).opened().await.unwrap();
    assert!(!open.is_coded());
    assert!(open.to_json().contains("\"customer\": \"Ada\""));
    assert_eq!(coded.clone().open_with(&codec).unwrap(), open);
    assert_eq!(replayer().journal(&open).unwrap().steps, 2);

    // To replay what is coded needs the codec; what is in clear is replayed with and without one.
    let failure = replayer().journal(&coded).unwrap_err();
    assert_eq!(failure.kind(), ReplayFailureKind::Undecodable, "{failure}");
    assert!(failure.to_string().contains("payload_codec"), "{failure}");
    let of_codec = codec.clone();
    let with_codec = replayer().configure(move |builder| builder.payload_codec(of_codec.clone()));
    for file in [&coded, &open] {
        let replayed = with_codec.journal(file).unwrap();
        assert_eq!((replayed.steps, replayed.stopped), (2, Stopped::Ended));
    }

    // Without its key, a file can still be had as it is, and only that.
    codec.key_is_lost.store(true, Ordering::Relaxed);
    assert_eq!(engine.export(run.id()).await.unwrap(), coded);
    let shown = engine.export(run.id()).opened().await.unwrap_err();
    let shown = shown.to_string();
    assert!(
        shown.contains("record 0: a payload does not open: the payload codec failed"),
        "{shown}"
    );
    // The codec's own words may quote what it was given.
    assert!(!shown.contains("the key is lost"), "{shown}");
}

#[tokio::test]
async fn what_a_lost_codec_made_leaves_as_bytes_that_nobody_reads() {
    let store = MemoryStore::new();
    let engine = register(Engine::builder())
        .resource(World)
        .resource(Tried::default());
    let engine = engine
        .payload_codec(Turned::default())
        .open_with(store.clone())
        .await
        .unwrap();
    let run = engine.start(sequence(order())).await.unwrap();
    run.result().await.unwrap();
    let run = run.id();
    drop(engine);
    let store = store.reopen(Surviving::All);
    let engine = register(Engine::builder()).open_with(store).await.unwrap();
    let coded = engine.export(run).await.unwrap();
    assert_eq!(coded.head(), coded.source_head());
    assert!(coded.to_json().contains("$payload"));
    assert_eq!(JournalFile::from_json(&coded.to_json()).unwrap(), coded);
    let failure = replayer().journal(&coded).unwrap_err();
    assert_eq!(failure.kind(), ReplayFailureKind::Undecodable, "{failure}");
    assert!(!coded.redact_all().to_json().contains("$payload"));
}

#[tokio::test]
async fn what_cannot_be_looked_into_is_taken_out_whole_where_a_field_is() {
    let codec = Turned::default();
    let engine = register(Engine::builder())
        .resource(World)
        .resource(Tried::default());
    let engine = engine.payload_codec(codec.clone()).open_in_memory().await;
    let engine = engine.unwrap();
    let run = engine.start(sequence(order())).await.unwrap();
    run.result().await.unwrap();
    let coded = engine.export(run.id()).await.unwrap();
    // Nobody can say that the field is not in there.
    let without = coded.clone().redact_fields(["customer"]);
    assert!(without.is_redacted() && without.is_coded());
    assert!(!without.to_json().contains("$payload"));
    for again in [
        JournalFile::from_json(&without.to_json()).unwrap(),
        JournalFile::from_binary(without.to_binary()).unwrap(),
        without.clone().redact_fields(["customer"]), // nothing is left to be taken out
    ] {
        assert_eq!(again, without);
    }
    // There is nothing in it that the codec could open any more.
    let open = without.open_with(&codec).unwrap();
    assert!(!open.is_coded() && !holds(&open, "Ada"));
    // Opened first, only the field goes.
    let open = coded.open_with(&codec).unwrap().redact_fields(["customer"]);
    assert!(!holds(&open, "Ada") && holds(&open, "customer"));
    assert_eq!(replayer().journal(&open).unwrap().steps, 2);
}

#[tokio::test]
async fn of_a_damaged_journal_the_intact_part_is_exported_on_demand() {
    let store = MemoryStore::new();
    let engine = register(Engine::builder())
        .resource(World)
        .resource(Tried::default());
    let engine = engine.open_with(store.clone()).await.unwrap();
    let run = engine.start(sequence(order())).await.unwrap();
    run.result().await.unwrap();
    let run = run.id();
    drop(engine);
    let damaged = Edited {
        store: store.reopen(Surviving::All),
        edit: |frames: &mut Vec<Bytes>| {
            if let Some(frame) = frames.get_mut(2) {
                let mut bytes = frame.to_vec();
                bytes[30] ^= 1;
                *frame = bytes.into();
            }
        },
    };
    let engine = register(Engine::builder())
        .open_with(damaged)
        .await
        .unwrap();
    let refused = engine.export(run).await;
    assert!(
        matches!(refused, Err(EngineError::Journal(_))),
        "{refused:?}"
    );
    let part = engine.export(run).intact_part().await.unwrap();
    assert_eq!(part.records().len(), 2);
    assert!(part.cut().unwrap().contains("record 2"), "{:?}", part.cut());
    let again = JournalFile::from_json(&part.to_json()).unwrap();
    assert_eq!(again, part);
    assert!(matches!(
        replayer().journal(&again).unwrap().stopped,
        Stopped::Frontier { .. }
    ));
}

/// Reads a file of this text, under a name that is the same everywhere.
fn refused(text: &str) -> String {
    let error = JournalFile::from_json(text).expect_err("it is no journal file");
    error.to_string()
}

#[test]
fn an_edit_is_noticed_and_named() {
    let good = text("sequence");
    let edits = [
        ("a value", good.replacen("12345}", "12346}", 1)),
        (
            "a name",
            good.replace("\"name\": \"mail\"", "\"name\": \"male\""),
        ),
        (
            "the key",
            good.replacen("\"key\": \"fixture\",\n", "\"key\": \"other\",\n", 1),
        ),
        (
            "a head",
            good.replacen("\"head\": \"35", "\"head\": \"36", 1),
        ),
        (
            "the source's head",
            good.replacen("_head\": \"35", "_head\": \"0\", \"x\": \"", 1),
        ),
        (
            "no check",
            good.replacen(", \"check\": \"7564f51abad017db\"", "", 1),
        ),
        (
            "a new entry",
            good.replacen("\"version\": 1,", "\"version\": 1,\n  \"x\": 2,", 1),
        ),
        ("the last record cut", without_last(&good)),
        ("numbers", good.replace("\"seq\": 2", "\"seq\": 3")),
    ];
    let said: Vec<_> = edits
        .iter()
        .map(|(what, text)| {
            assert_ne!(text, &good, "{what}");
            format!("{what}: {}", refused(text))
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

fn without_last(good: &str) -> String {
    let at = good.find(",\n    {\"seq\": 3").unwrap();
    format!("{}\n  ]\n}}\n", &good[..at])
}

#[test]
fn what_is_no_journal_file_is_refused_with_its_place() {
    let good = text("sequence");
    let bad = [
        ("nothing", String::new()),
        ("other json", "{\"a\": 1}".to_owned()),
        ("a list", "[]".to_owned()),
        (
            "a newer form",
            good.replace("\"journal_file\": 1", "\"journal_file\": 3"),
        ),
        (
            "a form that it has not",
            good.replace("\"journal_file\": 1", "\"journal_file\": 2"),
        ),
        ("cut", good[..good.len() / 2].to_owned()),
        (
            "a kind of tomorrow",
            good.replace("\"run_completed\"", "\"run_vanished\""),
        ),
        (
            "a field of tomorrow",
            good.replace("\"attempts\": 1", "\"attempts\": 1, \"mood\": 1"),
        ),
        ("a field less", good.replace("\"attempts\": 1, ", "")),
        (
            "another type",
            good.replace("\"attempts\": 1", "\"attempts\": \"1\""),
        ),
        ("an id", good.replace("step_7p9", "stop_7p9")),
        (
            "a time",
            good.replace(
                "2030-01-01T00:00:00.000000Z\", \"check\": \"7",
                "yesterday\", \"check\": \"7",
            ),
        ),
        ("a variant", good.replace("{\"ok\": 7}", "{\"fine\": 7}")),
        (
            "an escape",
            good.replace("{\"ok\": 7}", "{\"ok\": {\"$x\": 7}}"),
        ),
        (
            "no records",
            good[..good.find("\"records\"").unwrap()].to_owned() + "\"records\": []}",
        ),
        (
            "no start",
            good.replace(
                "\"seq\": 0, \"kind\": \"run_started\"",
                "\"seq\": 0, \"kind\": \"run\"",
            ),
        ),
    ];
    let said: Vec<_> = bad
        .iter()
        .map(|(what, text)| format!("{what}: {}", refused(text)))
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn every_beginning_of_a_file_is_refused() {
    let good = JournalFile::read(path("undo")).unwrap();
    let (text, bytes) = (good.to_json(), good.to_binary());
    for len in 0..text.trim_end().len() {
        assert!(JournalFile::from_json(&text[..len]).is_err(), "{len}");
    }
    for len in 0..bytes.len() {
        assert!(
            JournalFile::from_binary(bytes[..len].to_vec()).is_err(),
            "{len}"
        );
    }
}

#[test]
fn an_edit_that_is_meant_can_be_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edited.journal.json");
    std::fs::write(&file, text("sequence").replace("12345", "54321")).unwrap();
    let error = JournalFile::read(&file).unwrap_err();
    assert_eq!((error.record(), error.line()), (Some(0), Some(12)));
    assert_eq!(error.file(), Some(&*file));
    let edited = JournalFile::read_edited(&file).unwrap();
    edited.write(&file).unwrap();
    assert_eq!(JournalFile::read(&file).unwrap(), edited);
    assert_ne!(edited.head(), edited.source_head());
}

#[test]
fn names_that_are_not_of_journal_files_are_refused() {
    let file = JournalFile::read(path("sequence")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut said = vec![
        file.write(folder.path().join("run.json")).unwrap_err(),
        file.write(folder.path().join("no/run.journal"))
            .unwrap_err(),
        JournalFile::read(folder.path().join("run.txt")).unwrap_err(),
    ];
    // Text under the name of bytes, and the other way round.
    let wrong = folder.path().join("text.journal");
    std::fs::write(&wrong, file.to_json()).unwrap();
    said.push(JournalFile::read(&wrong).unwrap_err());
    let wrong = folder.path().join("bytes.journal.json");
    std::fs::write(&wrong, file.to_binary()).unwrap();
    said.push(JournalFile::read(&wrong).unwrap_err());
    let said: Vec<_> = said.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(
        said.join("\n")
            .replace(&*folder.path().to_string_lossy(), "FOLDER")
    );
}
