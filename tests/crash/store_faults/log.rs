//! Damage and crashes around the commit log: torn ends, lost and resurrected files, and a
//! process that dies between the log and the database.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use workflow_runtime::store::sled::SledStore;
use workflow_runtime::store::{Creation, Epoch, Store, StoreError};

use super::child;
use super::damage::{LEN, copy, files, furnish, open, refused, stories};
use super::disk::shim;
use super::said::Said;
use super::story;
use super::work::{Expected, Look, append, ending, look, new_run};

/// The frame in the last block: two of them are just not long enough to be archived.
const LAST: usize = 2_000;

/// The files of a store's log, oldest first.
fn log_files(store: &Path) -> Vec<PathBuf> {
    let found = files(&store.join("log")).into_keys();
    found
        .filter(|path| path.extension().is_some_and(|ext| ext == "log"))
        .collect()
}

/// Returns how much of a file is not zero at its end.
fn used(path: &Path) -> usize {
    let bytes = fs::read(path).expect("readable");
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1)
}

async fn expect_all(store: &SledStore, expected: &[Expected], what: &str) {
    for run in expected {
        assert_eq!(look(store, *run).await, Look::Sound, "{what}: {run:?}");
    }
    store
        .check()
        .await
        .unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// The same for the stories of a furnished store.
async fn expect_stories(store: &SledStore, what: &str) {
    for told in stories() {
        assert_eq!(
            story::look(store, told).await,
            Look::Sound,
            "{what}: {told:?}"
        );
    }
}

async fn create(store: &SledStore, n: u64, len: usize) -> Epoch {
    match store.create(new_run(n, len)).await.expect("created") {
        Creation::Created(epoch) => epoch,
        Creation::Exists(_) => panic!("{n} is taken"),
    }
}

/// A store as a killed process leaves it: the high-water mark is that of its opening, and
/// nothing that came after is archived. Returns what was acknowledged before the last
/// block, and where that block begins.
async fn killed(directory: &Path) -> (PathBuf, Vec<Expected>, usize) {
    let path = directory.join("store");
    let image = directory.join("image");
    let mut expected = furnish(&path).await;
    let store = open(&path).expect("it opens");
    let mut db = Vec::new();
    loop {
        // Until the archiver is done with what was left to it.
        std::thread::sleep(Duration::from_millis(300));
        let now = fs::read(path.join("db")).expect("readable");
        if now == db {
            break;
        }
        db = now;
    }
    copy(&path, &image);
    // None of these ends or gets long: they stay in the log.
    for n in 200..220 {
        let epoch = create(&store, n, LEN).await;
        let appended = store.append(append(n, epoch, 1, LEN)).await;
        appended.expect("appended");
        let frames = 2;
        expected.push(Expected {
            n,
            frames,
            len: LEN,
        });
    }
    let epoch = create(&store, 300, LAST).await;
    expected.push(Expected {
        n: 300,
        frames: 1,
        len: LAST,
    });
    let end = used(log_files(&path).last().expect("a file"));
    let appended = store.append(append(300, epoch, 1, LAST)).await;
    appended.expect("appended");
    copy(&path.join("log"), &image.join("log"));
    (image, expected, end)
}

#[tokio::test]
async fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (image, expected, end) = killed(directory.path()).await;
    let whole = used(log_files(&image).last().expect("a file"));
    assert!(whole > end + LAST, "the last block is at the end");
    let mut cuts: Vec<usize> = (end..whole).filter(|at| at % 256 == 0).collect();
    cuts.extend([end, end + 1, end + 3, end + 4, end + 12, whole - 1, whole]);
    for cut in cuts {
        for kind in ["short", "zeros", "stale", "late"] {
            let what = format!("{kind} from {cut}, {end} to {whole}");
            let path = directory.path().join("torn");
            copy(&image, &path);
            let file = log_files(&path).pop().expect("a file");
            let mut bytes = fs::read(&file).expect("readable");
            match kind {
                "short" => bytes.truncate(cut),
                "zeros" => bytes[cut..].fill(0),
                "stale" => bytes[cut..whole].fill(0xa5),
                // Later sectors reached the disk before the first ones.
                _ => bytes[end..cut].fill(0),
            }
            fs::write(&file, bytes).expect("written");
            let store = open(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
            expect_all(&store, &expected, &what).await;
            // Less than was torn off, and then sometimes so much that the file is changed.
            create(&store, 400, LEN).await;
            if cut == end + 1 {
                create(&store, 401, 5_000_000).await;
            }
            drop(store);
            let store = open(&path).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            expect_all(&store, &expected, &what).await;
            expect_stories(&store, &what).await;
            drop(store);
            fs::remove_dir_all(&path).expect("removed");
        }
    }
}

#[tokio::test]
async fn damage_before_a_synced_block_is_not_taken_for_a_torn_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (image, _, end) = killed(directory.path()).await;
    // Everything from the opening on is newer than the mark.
    for back in (0..5_000).step_by(97) {
        for damage in ["flip", "zeros"] {
            let place = directory.path().join("damaged");
            let path = place.join("store");
            copy(&image, &path);
            let file = log_files(&path).pop().expect("a file");
            let mut bytes = fs::read(&file).expect("readable");
            let at = end - 2_500 - back;
            match damage {
                "flip" => bytes[at] ^= 16,
                _ => bytes[at - 200..=at].fill(0),
            }
            fs::write(&file, bytes).expect("written");
            match refused(&path) {
                StoreError::Corrupt { place, .. } => {
                    assert!(place.contains("block") && place.contains(".log"), "{place}");
                }
                other => panic!("{damage} {back} bytes back: {other}"),
            }
            fs::remove_dir_all(&place).expect("removed");
        }
    }
}

#[tokio::test]
async fn a_cut_zeroed_or_missing_log_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sound = directory.path().join("sound");
    furnish(&sound).await;
    let count = log_files(&sound).len();
    for which in 0..count {
        let len = used(&log_files(&sound)[which]);
        for part in 0..9 {
            for damage in ["cut", "zeros", "missing"] {
                let place = directory.path().join("damaged");
                let path = place.join("store");
                copy(&sound, &path);
                let file = &log_files(&path)[which];
                let mut bytes = fs::read(file).expect("readable");
                let at = (len - 1) * part / 8;
                match damage {
                    "cut" => bytes.truncate(at),
                    _ => bytes[at..len.min(at + 512)].fill(0),
                }
                fs::write(file, bytes).expect("written");
                if damage == "missing" {
                    fs::remove_file(file).expect("removed");
                }
                match refused(&path) {
                    StoreError::Corrupt { .. } => {}
                    StoreError::LostCommits {
                        found, expected, ..
                    } => assert!(found < expected, "{found} of {expected}"),
                    other => panic!("{damage} at {at} of file {which}: {other}"),
                }
                fs::remove_dir_all(&place).expect("removed");
            }
        }
    }
    fs::remove_dir_all(sound.join("log")).expect("removed");
    let error = refused(&sound);
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn a_log_file_that_comes_back_after_its_removal_is_harmless() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let mut expected = furnish(&path).await;
    let early = files(&path.join("log"));
    let store = open(&path).expect("it opens");
    for n in 500..540 {
        let epoch = create(&store, n, 200_000).await;
        let ended = store.append(ending(n, epoch, 1, 200_000)).await;
        ended.expect("ended");
        expected.push(Expected {
            n,
            frames: 2,
            len: 200_000,
        });
    }
    let first = early.keys().next().expect("a file").clone();
    let begun = Instant::now();
    while first.exists() {
        // The first file goes once all of it is archived: its live runs are not, until the
        // log gets long.
        let n = 540 + expected.len() as u64;
        let epoch = create(&store, n, 200_000).await;
        store
            .append(ending(n, epoch, 1, 200_000))
            .await
            .expect("ended");
        expected.push(Expected {
            n,
            frames: 2,
            len: 200_000,
        });
        assert!(begun.elapsed() < Duration::from_secs(60), "it never goes");
    }
    drop(store);
    for (name, bytes) in &early {
        fs::write(name, bytes).expect("written");
    }
    let store = open(&path).expect("it opens");
    expect_all(&store, &expected, "after the return").await;
    expect_stories(&store, "after the return").await;
    assert!(!first.exists(), "it is removed again");
    create(&store, 10_000, LEN).await;
    store.close().await.expect("closed");
    let store = open(&path).expect("it opens again");
    expect_all(&store, &expected, "after that").await;
    expect_stories(&store, "after that").await;
}

/// What the child does that dies at a certain moment: long journals,
const GROW: &str = "grow 1 2000 30000 sync";

/// or stories.
const TELL: &str = "tell 1 2000 30000";

/// or runs that forget, in a process that closes the store and goes on with it.
const FORGET: &str = "forget 2 16 300";

/// Lets a child die at a certain moment, and looks at what it leaves.
async fn die(task: &str, variable: &str, file: &str, at: u32) {
    let what = format!("{variable}={at} of {file}");
    let said = dies(task, variable, file, at).await;
    let said = said.unwrap_or_else(|| panic!("{what}: it was not killed"));
    assert!(said.contains("ack"), "{what}: it got to do something");
}

/// The same, with what it said, unless that moment never comes.
async fn dies(task: &str, variable: &str, file: &str, at: u32) -> Option<String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let output = child::command(task, &path)
        .env("LD_PRELOAD", shim(directory.path()))
        .env("SHIM_LOG", directory.path().join("record"))
        .env("FAIL_FILE", file)
        .env(variable, at.to_string())
        .output()
        .expect("the child starts");
    let what = format!("{variable}={at} of {file}");
    let said = String::from_utf8_lossy(&output.stdout);
    let heard = Said::of(&said);
    let store = open(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
    expect_all(&store, &heard.acknowledged, &what).await;
    for told in heard.told {
        assert_eq!(
            story::look(&store, told).await,
            Look::Sound,
            "{what}: {told:?}"
        );
    }
    store.check().await.expect("sound");
    (!output.status.success()).then(|| said.into_owned())
}

#[tokio::test]
async fn a_process_killed_between_archive_and_removal_of_the_log_loses_nothing() {
    for at in [0, 1, 3] {
        die(GROW, "KILL_BEFORE_UNLINK", ".log", at).await;
        die(TELL, "KILL_BEFORE_UNLINK", ".log", at).await;
    }
}

#[tokio::test]
async fn a_process_killed_between_commit_and_archive_loses_nothing() {
    for at in [8, 9, 10, 11, 15, 24] {
        die(GROW, "KILL_BEFORE_WRITE", "/db", at).await;
        die(TELL, "KILL_BEFORE_WRITE", "/db", at).await;
    }
}

/// Runs that forget, in a log of small files: killed at every write to the log and to the database, and before every
/// file of the log goes.
#[tokio::test]
async fn a_process_that_forgets_can_be_killed_at_any_write() {
    let moments = [
        ("KILL_BEFORE_WRITE", "/db"),
        ("KILL_BEFORE_WRITE", ".log"),
        ("KILL_BEFORE_UNLINK", ".log"),
    ];
    for ((variable, file), at_least) in moments.into_iter().zip([5, 20, 1]) {
        let mut deaths = 0;
        while dies(FORGET, variable, file, deaths).await.is_some() {
            deaths += 1;
        }
        assert!(deaths >= at_least, "{variable} of {file}: {deaths} times");
    }
}
