//! Runs that are wanted again at the very moment in which they leave memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::bytes::mix;
use super::files::MarkFile;
use super::tests::{append, ending, header, new_run};
use super::{SledOptions, SledStore};
use crate::store::{
    Changes, Commit, Committed, Durability, EndKind, Letter, Reopening, RunEnd, Store, StoreError,
};

/// So many that enough of them are in line for an archive at any time.
const RUNS: u64 = 240;
const LETTERS: u64 = 25;

/// Waits for a moment that is not the same every time, mostly none, and otherwise about as long
/// as an archive takes.
async fn moment(seed: u64) {
    match mix(seed) % 4 {
        0 => tokio::time::sleep(Duration::from_micros(mix(!seed) % 8_000)).await,
        _ => tokio::task::yield_now().await,
    }
}

async fn own(store: Arc<SledStore>, n: u64) {
    let run = header(n).run;
    let mut frames = 1;
    let mut received = 0;
    while received < LETTERS {
        let claim = store.claim(run, 0).await.expect("claimed").expect("there");
        assert_eq!(claim.frames.len() as u64, frames, "run {n}");
        for mail in &claim.mail {
            assert_eq!(mail.number, received, "run {n}");
            received += 1;
        }
        assert_eq!(claim.next_letter, received, "run {n}");
        let mut taking = append(n, frames, 50);
        taking.epoch = claim.epoch;
        taking.taken = received;
        store.append(taking).await.expect("owned");
        frames += 1;
        store
            .put_to_sleep(run, claim.epoch, None)
            .await
            .expect("owned");
        moment(n << 32 | frames).await;
    }
}

async fn post(store: Arc<SledStore>, n: u64) {
    for number in 0..LETTERS {
        let letter = Letter {
            to: header(n).run,
            body: Bytes::from_static(b"letter"),
        };
        let changes = Changes {
            post: vec![letter],
            ..Changes::default()
        };
        let guards = Vec::new();
        let done = store.commit(Commit { guards, changes }).await;
        assert_eq!(done.expect("an answer"), Committed::Done);
        moment(n << 40 | number).await;
    }
}

async fn fail_and_go_on(store: Arc<SledStore>, n: u64) {
    let run = header(n).run;
    let mut epoch = crate::store::Epoch::FIRST;
    for round in 0..LETTERS {
        let seq = 1 + round * 2;
        let mut failed = ending(n, seq);
        failed.epoch = epoch;
        failed.end = failed.end.map(|end| RunEnd {
            kind: EndKind::Failed,
            ..end
        });
        store.append(failed).await.expect("owned");
        moment(n << 24 | round).await;
        let reopening = Reopening {
            run,
            seq: seq + 1,
            frame: Bytes::from_static(b"again"),
            guards: Vec::new(),
            notes: Vec::new(),
            letters: Vec::new(),
        };
        epoch = store.revive(reopening).await.expect("revived");
    }
    let frames = store.frames(run, 0, usize::MAX).await.expect("readable");
    assert_eq!(frames.len() as u64, 1 + LETTERS * 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_is_wanted_while_it_leaves_memory_loses_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let open = || SledStore::open(&path, SledOptions::default()).expect("it opens");
    let store = Arc::new(open());
    let mut tasks = Vec::new();
    for n in 0..RUNS {
        store.create(new_run(n)).await.expect("created");
        if n % 4 == 0 {
            tasks.push(tokio::spawn(fail_and_go_on(Arc::clone(&store), n)));
        } else {
            tasks.push(tokio::spawn(own(Arc::clone(&store), n)));
            tasks.push(tokio::spawn(post(Arc::clone(&store), n)));
        }
    }
    for task in tasks {
        task.await.expect("nothing is lost");
    }
    store.check().await.expect("sound");
    drop(store);
    let store = open();
    store.check().await.expect("sound");
    for n in 0..RUNS {
        let mail = store.mail(header(n).run, 0).await.expect("readable");
        assert_eq!(mail, Vec::new(), "run {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_append_is_answered_in_order_whoever_has_the_lock_meanwhile() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = SledStore::open(directory.path().join("store"), SledOptions::default());
    let store = Arc::new(store.expect("it opens"));
    let (runs, frames) = (64, 150);
    for n in 0..runs {
        store.create(new_run(n)).await.expect("created");
    }
    let reader = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                store.unfinished().await.expect("readable"); // has the lock for long
                tokio::task::yield_now().await;
            }
        })
    };
    let owners: Vec<_> = (0..runs)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for seq in 1..=frames {
                    store.append(append(n, seq, 20)).await.expect("owned");
                }
            })
        })
        .collect();
    for owner in owners {
        let answered = tokio::time::timeout(Duration::from_secs(120), owner).await;
        let answered = answered.expect("nobody waits in vain");
        answered.expect("each is answered");
    }
    reader.abort();
    for n in 0..runs {
        let found = store.frames(header(n).run, 0, usize::MAX).await;
        assert_eq!(found.expect("readable").len() as u64, 1 + frames);
    }
}

#[tokio::test]
async fn what_came_while_the_lock_was_taken_is_judged_as_if_it_had_not_been() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = SledStore::open(directory.path().join("store"), SledOptions::default());
    let store = store.expect("it opens");
    store.create(new_run(1)).await.expect("created");
    let mut stale = append(1, 2, 20);
    stale.epoch = stale.epoch.next();
    let taken = store.shared.lock();
    store.shared.inbox.attend(); // as if the committer were about to look
    let first = store.append(append(1, 1, 20));
    let second = store.append(append(1, 2, 20));
    let stale = store.append(stale);
    let gap = store.append(append(1, 9, 20));
    let unknown = store.append(append(2, 1, 20));
    drop(taken);
    store.create(new_run(3)).await.expect("created");
    first.await.expect("owned");
    second.await.expect("behind the first");
    let refused = [stale.await, gap.await, unknown.await].map(|refused| refused.expect_err("no"));
    assert!(matches!(refused[0], StoreError::StaleEpoch { .. }));
    assert!(matches!(
        refused[1],
        StoreError::OutOfOrder { expected: 3, .. }
    ));
    assert!(matches!(refused[2], StoreError::UnknownRun { .. }));
    store.close().await.expect("closed");
    let late = store.append(append(1, 4, 20)).await;
    assert!(matches!(late, Err(StoreError::Stopped { .. })));
}

#[tokio::test]
async fn an_append_that_comes_while_the_committer_sleeps_and_another_has_the_lock_is_not_left_lying()
 {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = SledStore::open(directory.path().join("store"), SledOptions::default());
    let store = store.expect("it opens");
    store.create(new_run(1)).await.expect("created");
    // Until its mark is written, after which nothing wakes it but work.
    tokio::time::sleep(super::committer::MARK_EVERY + Duration::from_millis(500)).await;
    let (shared, (has_it, taken)) = (Arc::clone(&store.shared), std::sync::mpsc::channel());
    let other = std::thread::spawn(move || {
        let guard = shared.lock();
        has_it.send(()).expect("somebody listens");
        std::thread::sleep(Duration::from_millis(100));
        drop(guard);
    });
    taken.recv().expect("it has the lock");
    let answered = tokio::time::timeout(Duration::from_secs(20), store.append(append(1, 1, 20)));
    let answered = answered.await.expect("somebody looks");
    answered.expect("owned");
    other.join().expect("it lets go");
}

#[tokio::test]
async fn what_a_commit_without_a_block_of_its_own_made_durable_is_in_the_mark() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let store = SledStore::open(&path, SledOptions::default()).expect("it opens");
    store.create(new_run(1)).await.expect("created");
    let marked = || MarkFile::read(&path).expect("readable").expect("there");
    let a_while = super::committer::MARK_EVERY + Duration::from_millis(500);
    tokio::time::sleep(a_while).await;
    let before = marked().commit;
    let mut buffered = append(1, 1, 20);
    buffered.durability = Durability::Buffered;
    store.append(buffered).await.expect("owned");
    tokio::time::sleep(a_while).await;
    assert_eq!(marked().commit, before, "nothing has synced it");
    store
        .commit(Commit::default())
        .await
        .expect("nothing to do");
    tokio::time::sleep(a_while).await;
    assert_eq!(marked().commit, before + 1);
}
