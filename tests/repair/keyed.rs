//! Stores whose journals have a key.

use std::path::Path;
use std::time::Duration;

use workflow_runtime::RunStatus;
use workflow_runtime::repair::{Fate, RepairOptions, repair, repair_with};
use workflow_runtime::store::{ParkReason, StoreError};
use workflow_tests::Ledger;

use super::sound::{Stop, copy_all, engine, files, pay, sound, tip};

const KEY: [u8; 32] = [7; 32];

/// A run that waits, and one that has ended.
async fn make(store: &Path) {
    let ledger = Ledger::shared();
    let engine = engine(&ledger).audit_key(KEY).open(store).await;
    let engine = engine.expect("opens");
    engine
        .start(pay(1, 100))
        .key("waits")
        .await
        .expect("starts");
    let ended = engine.start(tip(2)).key("ends").await.expect("starts");
    ended.result().await.expect("ends");
    while ledger.effects().len() < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let stopping = engine.shutdown().grace(Duration::from_millis(100));
    stopping.await.expect("stops");
}

#[tokio::test]
async fn without_the_key_of_its_journals_nothing_goes_on_in_the_new_store() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    make(&from).await;
    let repaired = repair(&from, &to).expect("repaired");
    assert_eq!(repaired.runs.len(), 2, "{repaired}");
    for run in &repaired.runs {
        assert!(run.unchecked && run.fate == Fate::AsFarAsSeen, "{run}");
    }
    let ledger = Ledger::shared();
    let engine = engine(&ledger).audit_key(KEY).open(&to).await;
    let engine = engine.expect("opens");
    for run in &repaired.runs {
        match &*run.workflow {
            "pay" => {
                let handle = engine.run::<pay>(run.run).await.expect("there");
                let status = handle.status().await.expect("reads");
                assert!(
                    matches!(&status, RunStatus::Parked(by) if by.reason == ParkReason::Salvaged),
                    "{status:?}"
                );
            }
            _ => {
                let handle = engine.run::<tip>(run.run).await.expect("there");
                assert_eq!(handle.result().await.expect("its result"), 2);
            }
        }
    }
    assert_eq!(ledger.asked(), 0, "nothing ran");
    engine.shutdown().await.expect("stops");
}

#[tokio::test]
async fn with_the_key_of_its_journals_a_sound_store_goes_on() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    make(&from).await;
    let options = RepairOptions::default().audit_key(KEY);
    let repaired = repair_with(&from, &to, &options).expect("repaired");
    assert!(repaired.is_whole(), "{repaired}");
    let ledger = Ledger::shared();
    let engine = engine(&ledger).audit_key(KEY).open(&to).await;
    let engine = engine.expect("opens");
    let waits = repaired.runs.iter().find(|run| &*run.workflow == "pay");
    let waits = engine.run::<pay>(waits.expect("there").run).await;
    let waits = waits.expect("there");
    waits.signal("go", &4_u64).await.expect("takes it");
    assert_eq!(waits.result().await.expect("ends"), 5);
    assert_eq!(ledger.effects(), ["settle 1"]);
    engine.shutdown().await.expect("stops");
}

#[tokio::test]
async fn a_key_that_fits_no_journal_is_refused_and_nothing_is_left_of_it() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    make(&from).await;
    let before = files(&from);
    let options = RepairOptions::default().audit_key([8; 32]);
    let error = repair_with(&from, &to, &options).expect_err("another key");
    assert!(matches!(error, StoreError::WrongAuditKey { .. }), "{error}");
    assert!(error.to_string().contains("fits none of the 2"), "{error}");
    assert!(!to.exists(), "nothing was begun");
    std::fs::create_dir(&to).expect("made");
    repair_with(&from, &to, &options).expect_err("another key");
    assert_eq!(files(&to).len(), 0, "an empty directory is empty again");
    assert!(files(&from) == before, "the store was not changed");
    let options = RepairOptions::default().audit_key(KEY);
    let repaired = repair_with(&from, &to, &options).expect("its own key");
    assert!(repaired.is_whole(), "{repaired}");
}

#[tokio::test]
async fn a_key_for_journals_that_have_none_is_refused_by_that_name() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    copy_all(&sound(Stop::InOrder).store, &from);
    let options = RepairOptions::default().audit_key(KEY);
    let error = repair_with(&from, &to, &options).expect_err("no key");
    assert!(error.to_string().contains("have no audit key"), "{error}");
    assert!(!to.exists(), "nothing was begun");
    repair(&from, &to).expect("without a key");
}
