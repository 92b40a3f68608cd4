//! What the committer writes beside what it was asked for, what it takes along, and what it says at the end.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::block::{Block, Facts, Item};
use super::tests::{append, ending, header, new_run};
use super::{SledOptions, SledStore, log};
use crate::clock::Timestamp;
use crate::store::{
    Commit, Committed, Durability, EndKind, Epoch, Letter, NewRun, NoteChange, NoteKey, ParkReason,
    Parking, Refusal, Reopening, RunEnd, Store, StoreError, StoreResult,
};

fn store() -> (tempfile::TempDir, SledStore) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = SledStore::open(path, SledOptions::default()).expect("it opens");
    (directory, store)
}

/// The number, the facts and the items of the newest block, if the log has one file.
fn newest_block(store: &SledStore) -> (u64, Facts, Vec<Item>) {
    let file = log::file_path(&log::directory(&store.shared.directory), 0);
    let bytes = std::fs::read(file).expect("readable");
    let (mut at, mut newest) = (0, None);
    while let Some(block) = Block::read(&bytes[at..]).expect("sound") {
        let items = block.items().expect("sound");
        at += block.len;
        newest = Some((block.commit, block.facts, items));
    }
    newest.expect("there always is a block")
}

async fn note(store: &SledStore, value: &'static str) {
    let mut commit = Commit::default();
    commit.changes.notes.push(NoteChange {
        key: NoteKey::new(2, &[b"x"]),
        value: Some(Bytes::from_static(value.as_bytes())),
    });
    store.commit(commit).await.expect("an answer");
}

#[tokio::test]
async fn a_block_says_up_to_where_the_log_and_the_archives_are_on_the_disk() {
    let (_directory, store) = store();
    store.create(new_run(1)).await.expect("created");
    let (first, facts, _) = newest_block(&store);
    assert_eq!((first, facts.synced), (1, 0));
    store.append(ending(1, 1)).await.expect("ended");
    store.settled();
    let archived = store.shared.archived.load(Ordering::Acquire);
    assert!(archived > 0, "a run that ended leaves memory");
    for (value, synced) in [("a", 2), ("b", 3)] {
        note(&store, value).await;
        let (commit, facts, _) = newest_block(&store);
        assert_eq!(
            (commit, facts),
            (
                synced + 1,
                Facts {
                    archive: archived,
                    synced
                }
            )
        );
    }
    store.create(new_run(2)).await.expect("created");
    let mut buffered = append(2, 1, 10);
    buffered.durability = Durability::Buffered;
    store.append(buffered).await.expect("owned");
    store.append(append(2, 2, 10)).await.expect("owned");
    let (commit, facts, _) = newest_block(&store);
    assert_eq!((commit, facts.synced), (7, 5), "nobody had synced 6");
}

#[tokio::test]
async fn only_who_takes_letters_says_so_in_the_log() {
    let (_directory, store) = store();
    store.create(new_run(1)).await.expect("created");
    store.append(append(1, 1, 10)).await.expect("owned");
    let (_, _, items) = newest_block(&store);
    assert!(matches!(&items[..], [Item::Appended { .. }]), "{items:?}");
}

#[tokio::test]
async fn the_next_file_of_the_log_is_prepared_after_some_blocks_and_not_before() {
    let (_directory, store) = store();
    let spare = log::directory(&store.shared.directory).join("next");
    store.create(new_run(1)).await.expect("created");
    for seq in 1..63 {
        store.append(append(1, seq, 10)).await.expect("owned");
    }
    store.settled();
    assert!(!spare.exists(), "63 blocks");
    store.append(append(1, 63, 10)).await.expect("owned");
    let begun = Instant::now();
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    while length(&spare) < log::FILE_SIZE {
        assert!(begun.elapsed().as_secs() < 60, "it never comes");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[tokio::test]
async fn closing_a_store_that_failed_says_so() {
    let (_directory, store) = store();
    store.create(new_run(1)).await.expect("created");
    store.shared.fail(&StoreError::Io {
        operation: "syncing".into(),
        message: "no more".into(),
    });
    let closed = store.close().await;
    assert!(
        matches!(&closed, Err(StoreError::Failed { error }) if error == "syncing failed: no more"),
        "{closed:?}"
    );
}

#[tokio::test]
async fn a_run_that_is_deleted_while_it_is_looked_up_is_not_taken_up_again() {
    let (_directory, store) = store();
    create_failed(&store, 1).await;
    store.settled();
    let run = header(1).run;
    let reopening = Reopening {
        run,
        seq: 2,
        frame: Bytes::from_static(b"again"),
        guards: Vec::new(),
        notes: Vec::new(),
        letters: Vec::new(),
    };
    let revived = {
        let guard = store.shared.database();
        let database = guard.as_ref().expect("open");
        let still = database.still.write().expect("no panic");
        let revived = store.revive(reopening.clone());
        // The committer has seen that it is in no memory, and waits for the database.
        std::thread::sleep(Duration::from_millis(100));
        let marked = store.shared.lock().mark_deleting(vec![run]);
        assert_eq!(marked, [run]);
        drop(still);
        revived
    };
    let refused = revived.await;
    assert!(
        matches!(refused, Err(StoreError::UnknownRun { .. })),
        "{refused:?}"
    );
    store.shared.lock().unmark_deleting(&[run]);
    store.revive(reopening).await.expect("it was not deleted");
}

/// Ends a run badly, so that it can be taken up again.
async fn create_failed(store: &SledStore, n: u64) {
    store.create(new_run(n)).await.expect("created");
    let mut failed = ending(n, 1);
    failed.end = failed.end.map(|end| RunEnd {
        kind: EndKind::Failed,
        ..end
    });
    store.append(failed).await.expect("failed");
}

/// Asks for a write that needs the next file of the log, and gives its answer.
async fn write_much(store: &SledStore, how: &str) -> StoreResult<()> {
    let run = header(1).run;
    let much = || Bytes::from(vec![3; 5 << 20]);
    match how {
        "append" => store.append(append(1, 2, 5 << 20)).await,
        "create" => {
            let first = much();
            store
                .create(NewRun {
                    first,
                    ..new_run(3)
                })
                .await
                .map(drop)
        }
        "letter" => {
            let mut commit = Commit::default();
            let body = much();
            commit.changes.post.push(Letter { to: run, body });
            store.commit(commit).await.map(drop)
        }
        "park" => {
            let parking = Parking {
                reason: ParkReason::Diverged,
                at: Timestamp::from_micros(1),
                report: "stuck".into(),
                detail: Some(much()),
            };
            store.park(run, Epoch::FIRST, Some(parking)).await
        }
        _ => {
            let reopening = Reopening {
                run: header(2).run,
                seq: 2,
                frame: much(),
                guards: Vec::new(),
                notes: Vec::new(),
                letters: Vec::new(),
            };
            store.revive(reopening).await.map(drop)
        }
    }
}

#[tokio::test]
async fn whoever_is_in_a_group_that_cannot_be_written_hears_why_and_nothing_is_taken_after_it() {
    for how in ["append", "create", "letter", "park", "revive"] {
        let (directory, store) = store();
        store.create(new_run(1)).await.expect("created");
        store.append(append(1, 1, 10)).await.expect("owned");
        create_failed(&store, 2).await;
        // A directory lies where the next file of the log is to be.
        let next = newest_block(&store).0 + 1;
        let obstacle = log::file_path(&log::directory(&store.shared.directory), next);
        std::fs::create_dir(&obstacle).expect("made");
        let answers = [
            write_much(&store, how).await,
            store.append(append(1, 2, 10)).await,
            store.close().await,
        ];
        for answer in answers {
            assert!(
                matches!(&answer, Err(StoreError::Failed { error }) if error.contains("making")),
                "{how}: {answer:?}"
            );
        }
        drop(store);
        std::fs::remove_dir(&obstacle).expect("removed");
        let path = directory.path().join("store");
        let store = SledStore::open(path, SledOptions::default()).expect("it opens");
        let frames = |n| store.frames(header(n).run, 0, 10);
        let counts = [1, 2, 3].map(frames);
        for (frames, expected) in counts.into_iter().zip([2, 2, 0]) {
            assert_eq!(frames.await.expect("readable").len(), expected, "{how}");
        }
    }
}

#[tokio::test]
async fn a_letter_that_comes_with_a_new_run_needs_somebody_who_takes_it() {
    let (_directory, store) = store();
    let commit = |new: u64, to: u64| {
        let mut commit = Commit::default();
        commit.changes.create.push(new_run(new));
        commit.changes.post.push(Letter {
            to: header(to).run,
            body: Bytes::from_static(b"hello"),
        });
        store.commit(commit)
    };
    assert_eq!(commit(1, 1).await.expect("an answer"), Committed::Done);
    assert_eq!(commit(2, 1).await.expect("an answer"), Committed::Done);
    let mail = store.mail(header(1).run, 0).await.expect("readable");
    assert_eq!(mail.len(), 2);
    let refused = commit(3, 4).await.expect("an answer");
    let unknown = Refusal::Unknown(header(4).run);
    assert_eq!(refused, Committed::Refused(unknown));
    let created = store.header(header(3).run).await.expect("readable");
    assert_eq!(created, None, "all of it or nothing");
}

#[tokio::test]
async fn a_write_to_a_run_that_left_memory_is_refused_by_how_it_left() {
    let (_directory, store) = store();
    for n in [1, 2] {
        store.create(new_run(n)).await.expect("created");
    }
    store.append(ending(1, 1)).await.expect("ended");
    let asleep = store.put_to_sleep(header(2).run, Epoch::FIRST, None).await;
    asleep.expect("an answer");
    store.settled();
    assert_eq!(store.shared.lock().table.runs.len(), 0);
    let refused = [append(1, 2, 10), append(2, 1, 10), append(3, 1, 10)];
    let [ended, sleeps, unknown] = refused.map(|one| store.append(one));
    let (ended, sleeps, unknown) = (ended.await, sleeps.await, unknown.await);
    assert!(matches!(ended, Err(StoreError::Ended { .. })), "{ended:?}");
    let stale = matches!(sleeps, Err(StoreError::StaleEpoch { .. }));
    assert!(stale, "nobody owns it: {sleeps:?}");
    let nobody = matches!(unknown, Err(StoreError::UnknownRun { .. }));
    assert!(nobody, "{unknown:?}");
}
