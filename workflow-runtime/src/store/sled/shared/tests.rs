//! The shared state without its threads: who is told what, what is done next, and who is woken for it.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::super::database::{Settings, corrupt};
use super::super::files;
use super::super::open::make_files;
use super::super::tests::{append, header};
use super::*;
use crate::store::{AckSlot, NoteKey};

/// More changed notes than commits go on with.
const TOO_MANY_NOTES: u64 = 16_385;

/// A store of which nobody takes care: no committer, no archiver.
fn quiet() -> (tempfile::TempDir, Shared) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    files::make_directory(&path).expect("made");
    let settings = Settings {
        cache_bytes: 1 << 20,
        skip_fdatasync: false,
        log_file_bytes: super::super::log::FILE_SIZE,
        write_again: false,
    };
    let (database, made, log) = make_files(&path, &settings).expect("made");
    let log_file = log.file().clone();
    let shared = Shared::new(path, true, (made.table, made.ledger), log_file, database, 0);
    (directory, shared)
}

fn barrier(shared: &Shared) -> oneshot::Receiver<StoreResult<()>> {
    let (reply, answer) = oneshot::channel();
    shared.push(shared.lock(), Op::Barrier(reply), 0);
    answer
}

fn deletion(shared: &Shared) -> oneshot::Receiver<StoreResult<u64>> {
    let (reply, answer) = oneshot::channel();
    shared.push_deletion(&mut shared.lock(), vec![header(1).run], reply);
    answer
}

/// An append to a run that nobody knows, and where its answer goes.
fn arrival() -> (Arrival, Arc<AckSlot>) {
    let (append, slot) = (append(1, 1, 10), Arc::new(AckSlot::default()));
    let arrival = Arrival {
        epoch: append.epoch,
        append: append.into(),
        slot: slot.clone(),
        bytes: 10,
    };
    (arrival, slot)
}

fn change_notes(state: &mut State, count: u64) {
    for n in 0..count {
        let key = NoteKey::new(1, &[&n.to_be_bytes()]);
        state.ledger.note(key, Some(Bytes::from_static(b"x")), 0);
    }
}

fn io() -> StoreError {
    StoreError::Io {
        operation: "syncing".into(),
        message: "no more".into(),
    }
}

fn is_failure<T: std::fmt::Debug>(answer: &StoreResult<T>) -> bool {
    matches!(answer, Err(StoreError::Failed { error }) if error == "syncing failed: no more")
}

#[tokio::test]
async fn whoever_waits_for_a_store_that_fails_hears_why() {
    let (_directory, shared) = quiet();
    let (mut queued, mut deleted) = (barrier(&shared), deletion(&shared));
    let (stray, stray_slot) = arrival();
    shared.inbox.put(stray).expect("somebody looks");
    drop(shared.lock()); // it is a stray now
    let (late, late_slot) = arrival();
    shared.inbox.put(late).expect("somebody looks");
    shared.fail(&io());
    assert!(is_failure(&queued.try_recv().expect("an answer")));
    assert!(is_failure(&deleted.try_recv().expect("an answer")));
    for slot in [stray_slot, late_slot] {
        let answer = std::future::poll_fn(|cx| slot.poll(cx)).await;
        assert!(is_failure(&answer), "{answer:?}");
    }
    assert!(is_failure(&shared.read(|_| Ok(()))));
    let (after, _) = arrival();
    assert!(shared.inbox.put(after).is_err(), "nobody would look");
    let work = shared.next_work(None, &mut Vec::new());
    assert!(matches!(work, Work::Stop { clean: false }), "{work:?}");
    assert!(matches!(shared.next_chore(), Chore::Stop));
}

#[test]
fn a_store_ends_when_sled_panics_or_the_disk_fails_and_not_because_of_one_damaged_record() {
    let damaged = |_: &Database| -> StoreResult<()> { Err(corrupt("a record".into(), "bits")) };
    let (_directory, shared) = quiet();
    let found = shared.read(damaged);
    assert!(matches!(found, Err(StoreError::Corrupt { .. })));
    shared.lock().open().expect("it goes on");
    let found = shared
        .read(|database| database.call("a page", || -> sled::Result<()> { panic!("on purpose") }));
    for stopped in [found, shared.lock().open()] {
        assert!(
            matches!(&stopped, Err(StoreError::Failed { error }) if error.contains("on purpose")),
            "{stopped:?}"
        );
    }
    let (_directory, shared) = quiet();
    assert!(is_failure(
        &shared.read(|_| -> StoreResult<()> { Err(io()) })
    ));
    assert!(is_failure(&shared.lock().open()));
}

#[test]
fn the_committer_takes_what_is_queued_then_idles_and_at_last_stops() {
    let (_directory, shared) = quiet();
    let mut ops = Vec::new();
    let past = Some(Instant::now());
    assert!(matches!(shared.next_work(past, &mut ops), Work::Idle));
    let soon = Instant::now() + Duration::from_millis(30);
    assert!(matches!(shared.next_work(Some(soon), &mut ops), Work::Idle));
    assert!(Instant::now() >= soon, "not before its time");
    let _answer = barrier(&shared);
    shared.begin_close(true);
    assert!(matches!(shared.next_work(past, &mut ops), Work::Commit));
    assert_eq!(ops.len(), 1);
    let work = shared.next_work(None, &mut Vec::new());
    assert!(matches!(work, Work::Stop { clean: true }), "{work:?}");
    let (late, _) = arrival();
    assert!(shared.inbox.put(late).is_err(), "nobody would look");
}

#[test]
fn the_committer_goes_on_when_the_archiver_has_caught_up() {
    let (_directory, shared) = quiet();
    let shared = Arc::new(shared);
    let caught_up = {
        let mut state = shared.lock();
        let mut ledger = Ledger::new(0);
        ledger.enter_block(0, 0, 1);
        change_notes(&mut state, TOO_MANY_NOTES);
        assert!(state.ledger.is_behind());
        ledger
    };
    let _answer = barrier(&shared);
    let (committer, (worked, works)) = (shared.clone(), mpsc::channel());
    let thread = std::thread::spawn(move || {
        let _ = worked.send(committer.next_work(None, &mut Vec::new()));
    });
    while !shared.lock().sleeping {
        std::thread::sleep(Duration::from_millis(1));
    }
    shared.made_room();
    let early = works.recv_timeout(Duration::from_millis(50));
    assert!(matches!(early, Err(RecvTimeoutError::Timeout)), "{early:?}");
    shared.lock().ledger = caught_up;
    shared.made_room();
    let work = works.recv_timeout(Duration::from_secs(60));
    assert!(matches!(work, Ok(Work::Commit)), "{work:?}");
    thread.join().expect("it ended");
}

#[test]
fn commits_do_not_wait_for_deletions_and_a_file_is_prepared_when_nothing_else_is_due() {
    let (_directory, shared) = quiet();
    assert!(shared.archiver_may_tidy());
    shared.lock().spare = Spare::Wanted;
    assert!(!shared.archiver_may_tidy());
    let _answer = deletion(&shared);
    assert!(matches!(shared.next_chore(), Chore::Delete));
    shared.lock().deletions.clear();
    assert!(matches!(shared.next_chore(), Chore::PrepareFile));
    assert!(matches!(shared.lock().spare, Spare::InTheMaking));
    assert!(shared.archiver_may_tidy());
    let _answer = deletion(&shared);
    assert!(!shared.archiver_may_tidy());
    change_notes(&mut shared.lock(), TOO_MANY_NOTES);
    assert!(matches!(shared.next_chore(), Chore::Archive));
    shared.lock().deletions.clear();
    assert!(!shared.archiver_may_tidy());
}

#[tokio::test]
async fn the_archiver_stops_at_once_unless_it_is_to_finish() {
    let (_directory, shared) = quiet();
    let left = deletion(&shared);
    change_notes(&mut shared.lock(), 1);
    shared.stop_archiver();
    assert!(matches!(shared.next_chore(), Chore::Stop));
    assert!(!shared.archiver_may_tidy());
    assert!(left.await.is_err(), "it stays undone");
    shared.have_archiver_finish();
    assert!(matches!(shared.next_chore(), Chore::Archive));
    let (_directory, shared) = quiet();
    shared.have_archiver_finish();
    shared.stop_archiver();
    assert!(matches!(shared.next_chore(), Chore::Stop), "nothing to do");
}

#[test]
fn the_archiver_is_woken_for_what_is_due_before_it_would_look_by_itself() {
    let (_directory, shared) = quiet();
    let mut state = shared.lock();
    let has_work = |state: &mut State, resting| {
        state.archiver = resting;
        state.archiver_has_work()
    };
    let later = Instant::now() + Duration::from_secs(3_600);
    for resting in [Resting::No, Resting::ForWork, Resting::Until(later)] {
        assert!(!has_work(&mut state, resting), "{resting:?}");
    }
    state.spare = Spare::Wanted;
    assert!(!has_work(&mut state, Resting::No), "it looks by itself");
    assert!(has_work(&mut state, Resting::ForWork));
    assert!(has_work(&mut state, Resting::Until(later)));
    state.spare = Spare::InTheMaking;
    change_notes(&mut state, 1);
    let Due::At(at) = state.ledger.due() else {
        panic!("one note waits for others");
    };
    assert!(has_work(&mut state, Resting::ForWork));
    assert!(has_work(&mut state, Resting::Until(later)));
    assert!(!has_work(&mut state, Resting::Until(at)), "it is known");
    change_notes(&mut state, TOO_MANY_NOTES);
    let now = Instant::now();
    assert!(has_work(&mut state, Resting::Until(now)), "due at once");
    assert!(!has_work(&mut state, Resting::No), "it looks by itself");
}

#[test]
fn nothing_lies_in_the_inbox_while_nobody_looks() {
    let inbox = Inbox::default();
    inbox.put(arrival().0).expect("the committer is awake");
    assert!(!inbox.leave_unattended(), "something lies there");
    inbox.put(arrival().0).expect("so it did not fall asleep");
    let mut arrivals = Vec::new();
    inbox.take(&mut arrivals);
    assert_eq!(arrivals.len(), 2);
    assert!(inbox.leave_unattended());
    assert!(inbox.put(arrival().0).is_err(), "it sleeps");
    inbox.attend();
    inbox.put(arrival().0).expect("it is awake again");
    inbox.close();
    assert!(inbox.put(arrival().0).is_err(), "it is closed");
}
