//! What a repair does not do.

use std::fs;

use workflow_runtime::repair::repair;
use workflow_runtime::store::StoreError;
use workflow_tests::Ledger;

use super::sound::{Stop, copy_all, engine, files, sound};

#[tokio::test]
async fn a_store_that_an_engine_has_open_is_in_use() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let engine = engine(&Ledger::shared()).open(&from).await.expect("opens");
    let error = repair(&from, &to).expect_err("in use");
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(!to.exists(), "nothing was begun");
    engine.shutdown().await.expect("stops");
    repair(&from, &to).expect("free");
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    copy_all(&sound(Stop::InOrder).store, &from);
    fs::create_dir(&to).expect("made");
    fs::write(to.join("cat.jpg"), "meow").expect("written");
    let before = files(&to);
    let error = repair(&from, &to).expect_err("not empty");
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    assert_eq!(files(&to), before);
    fs::remove_file(to.join("cat.jpg")).expect("removed");
    repair(&from, &to).expect("an empty directory will do");
    let error = repair(&from, &to).expect_err("a store");
    assert!(
        error.to_string().contains("nothing is overwritten"),
        "{error}"
    );
    let error = repair(&from, &from).expect_err("itself");
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_that_is_no_store_is_refused_and_a_newer_one_too() {
    let root = tempfile::tempdir().expect("a directory");
    let (from, to) = (root.path().join("from"), root.path().join("to"));
    let error = repair(&from, &to).expect_err("missing");
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    copy_all(&sound(Stop::InOrder).store, &from);
    fs::write(from.join("FORMAT"), "workflow-runtime store, format 7\n").expect("written");
    let error = repair(&from, &to).expect_err("newer");
    assert!(matches!(error, StoreError::NewerFormat { .. }), "{error}");
    assert!(!to.exists());
}
