//! Rules about what can still happen to a run that has ended: it is taken up again, or deleted.

use super::letters::{letter, post, posting};
use super::notes::{note, set};
use super::*;
use crate::store::{
    Committed, Guard, Letter, NoteChange, NoteKey, Reopening, RunQuery, StoreError, Unread,
};

fn reopening(n: u64, seq: u64) -> Reopening {
    Reopening {
        run: id(n),
        seq,
        frame: frame(n, seq, 25),
        guards: Vec::new(),
        notes: Vec::new(),
        letters: Vec::new(),
    }
}

async fn failed(store: &dyn Store, n: u64) {
    let epoch = create(store, n).await;
    grow(store, n, epoch, 1..4, 90).await;
    let last = ending(n, epoch, 4, EndKind::Failed);
    store.append(last).await.expect("ended");
}

/// A failed run goes on with the frame that says so, under an epoch of its own, and can end
/// again; letters keep their numbers.
pub async fn a_failed_run_is_taken_up_again(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    post(&*store, 1, 0..2).await;
    let last = ending(1, epoch, 1, EndKind::Failed);
    store.append(last).await.expect("ended");
    let mut seen = vec![epoch];
    for round in 0..6u64 {
        if round % 2 == 1 {
            // Wherever the store keeps it by then.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let seq = 2 + round * 2;
        let epoch = store.revive(reopening(1, seq)).await.expect("revived");
        assert!(seen.iter().all(|old| *old < epoch));
        seen.push(epoch);
        assert_eq!(state(&*store, 1).await, RunState::Active);
        assert_eq!(store.unfinished().await.expect("readable").len(), 1);
        let refused = store.revive(reopening(1, seq + 1)).await;
        assert!(
            matches!(refused, Err(StoreError::Ended { .. })),
            "{refused:?}"
        );
        post(&*store, 1, 2 + round..3 + round).await;
        let last = ending(1, epoch, seq + 1, EndKind::Failed);
        store.append(last).await.expect("ended");
    }
    assert_eq!(journal(&*store, 1).await.len(), 14);
}

/// Letters that wait when a run fails are in its notes, in their order and whatever their size, through restarts; those that were
/// taken are not, and with another end none are. Taken up again, it gets what it is handed, behind all that it got before.
pub async fn letters_outlive_a_failure(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for (n, kind) in [(1, EndKind::Failed), (2, EndKind::Cancelled)] {
        let epoch = create(&*store, n).await;
        post(&*store, n, 0..3).await;
        let large = Letter {
            to: id(n),
            body: frame(n, 7, NoteChange::MAX_VALUE_BYTES + 9),
        };
        let posted = store.commit(posting(vec![large])).await;
        assert_eq!(posted.expect("an answer"), Committed::Done);
        let mut last = ending(n, epoch, 1, kind);
        last.taken = 1;
        store.append(last).await.expect("ended");
    }
    for _ in 0..2 {
        let kept = |n| store.notes(Unread::prefix(id(n)), None, 100);
        let notes = kept(1).await.expect("readable");
        let large = frame(1, 7, NoteChange::MAX_VALUE_BYTES + 9);
        let expected = [letter(1, 1).body, letter(1, 2).body, large];
        assert_eq!(Unread::letters(&notes), expected);
        assert_eq!(kept(2).await.expect("readable"), []);
        assert_eq!(store.mail(id(1), 0).await.expect("readable"), []);
        store = match harness.again(store).await {
            Some(store) => store,
            None => return,
        };
    }
    let notes = store.notes(Unread::prefix(id(1)), None, 100).await;
    let gone = notes
        .expect("readable")
        .into_iter()
        .map(|(key, _)| NoteChange { key, value: None });
    let again = Reopening {
        notes: gone.collect(),
        letters: vec![letter(1, 1).body, letter(1, 2).body],
        ..reopening(1, 2)
    };
    store.revive(again).await.expect("revived");
    post(&*store, 1, 5..6).await;
    for _ in 0..2 {
        let waiting = store.mail(id(1), 0).await.expect("readable");
        let (numbers, bodies): (Vec<u64>, Vec<_>) = waiting
            .into_iter()
            .map(|mail| (mail.number, mail.body))
            .unzip();
        assert_eq!(numbers, [4, 5, 6], "four came before");
        assert_eq!(
            bodies,
            [letter(1, 1).body, letter(1, 2).body, letter(1, 5).body]
        );
        let notes = store.notes(Unread::prefix(id(1)), None, 100).await;
        assert_eq!(notes.expect("readable"), []);
        store = match harness.again(store).await {
            Some(store) => store,
            None => return,
        };
    }
}

/// Only a failed run is taken up again, and only with the next frame.
pub async fn other_ends_are_final(harness: &dyn Harness) {
    let store = harness.fresh().await;
    failed(&*store, 1).await;
    for wrong in [0, 4, 6] {
        let refused = store.revive(reopening(1, wrong)).await;
        assert!(
            matches!(refused, Err(StoreError::OutOfOrder { expected: 5, got, .. }) if got == wrong),
            "{refused:?}"
        );
    }
    for (n, kind) in [(2, EndKind::Completed), (3, EndKind::Cancelled)] {
        let epoch = create(&*store, n).await;
        let last = ending(n, epoch, 1, kind);
        store.append(last).await.expect("ended");
        let refused = store.revive(reopening(n, 2)).await;
        assert!(
            matches!(refused, Err(StoreError::Ended { .. })),
            "{refused:?}"
        );
    }
    let refused = store.revive(reopening(9, 0)).await;
    assert!(
        matches!(refused, Err(StoreError::UnknownRun { .. })),
        "{refused:?}"
    );
    let both = [store.revive(reopening(1, 5)), store.revive(reopening(1, 5))];
    let mut revived = 0;
    for one in both {
        revived += u64::from(one.await.is_ok());
    }
    assert_eq!(revived, 1);
}

/// A run is taken up again only as long as notes say what they must, and together with the notes of the same
/// write.
pub async fn a_revival_is_guarded(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    failed(&*store, 1).await;
    let key = |name: &[u8]| NoteKey::new(7, &[name]);
    set(&*store, &key(b"generation"), Some("1")).await;
    let guarded = |expected: Option<&'static [u8]>| Reopening {
        guards: vec![Guard {
            key: key(b"generation"),
            expected: expected.map(Bytes::from_static),
        }],
        notes: vec![NoteChange {
            key: key(b"retries"),
            value: Some(Bytes::from_static(b"one")),
        }],
        ..reopening(1, 5)
    };
    for wrong in [None, Some(b"2".as_slice())] {
        let refused = store.revive(guarded(wrong)).await;
        assert!(
            matches!(refused, Err(StoreError::Guarded { .. })),
            "{refused:?}"
        );
        assert!(matches!(state(&*store, 1).await, RunState::Ended(_)));
        let noted = note(&*store, &key(b"retries")).await;
        assert_eq!(noted, None, "nothing was changed");
    }
    let revived = store.revive(guarded(Some(b"1"))).await;
    revived.expect("revived");
    for _ in 0..2 {
        assert_eq!(state(&*store, 1).await, RunState::Active);
        let noted = note(&*store, &key(b"retries")).await;
        assert_eq!(noted.as_deref(), Some("one"));
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
    }
}

/// A run that was taken up again is as it was after restarts, and in no list of failed ones.
pub async fn revival_survives_restarts(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for n in 0..80 {
        failed(&*store, n).await;
    }
    for round in 0..3u64 {
        for n in [3, 70] {
            let seq = 5 + round * 2;
            let epoch = store.revive(reopening(n, seq)).await.expect("revived");
            if round < 2 {
                let last = ending(n, epoch, seq + 1, EndKind::Failed);
                store.append(last).await.expect("ended");
            }
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        for n in [3, 70] {
            let frames = journal(&*store, n).await.len() as u64;
            assert_eq!(frames, 5 + (round + 1) * 2 - u64::from(round == 2));
        }
        let query = RunQuery {
            states: vec![crate::store::StateKind::Ended(EndKind::Failed)],
            limit: 1_000,
            ..RunQuery::default()
        };
        let listed = store.list(query).await.expect("listed").len();
        assert_eq!(listed, if round == 2 { 78 } else { 80 });
    }
    assert_eq!(store.unfinished().await.expect("readable").len(), 2);
}

async fn expect_gone(store: &dyn Store, n: u64) {
    assert_eq!(
        store.header(id(n)).await.expect("readable"),
        None,
        "run {n}"
    );
    assert_eq!(journal(store, n).await, Vec::<Bytes>::new());
    assert!(store.claim(id(n), 0).await.expect("an answer").is_none());
    let prefix = NoteKey::of_run(id(n), &[]);
    let notes = store.notes(prefix, None, 10).await.expect("listed");
    assert_eq!(notes, Vec::new(), "notes of run {n}");
}

/// Ended runs are deleted with their notes; others are left out and left alone. No restart
/// brings them back.
pub async fn deleted_runs_are_gone_with_their_notes(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for n in 0..100 {
        let epoch = create(&*store, n).await;
        let own = NoteKey::of_run(id(n), &[b"progress"]);
        if n % 3 == 0 {
            set(&*store, &own, Some("half")).await;
        }
        // One journal is long enough for anything.
        let frames = if n == 10 { 90 } else { 3 };
        grow(
            &*store,
            n,
            epoch,
            1..frames,
            if n == 10 { 4_500 } else { 90 },
        )
        .await;
        if n % 2 == 0 {
            let last = ending(n, epoch, frames, EndKind::Completed);
            store.append(last).await.expect("ended");
        }
    }
    let other = NoteKey::new(3, &[id(0).as_bytes()]);
    set(&*store, &other, Some("stays")).await;
    let asked: Vec<RunId> = [0, 0, 1, 2, 10, 30, 31, 98, 500].map(id).into();
    assert_eq!(store.delete(asked.clone()).await.expect("an answer"), 5);
    assert_eq!(store.delete(asked).await.expect("an answer"), 0);
    assert_eq!(store.delete(Vec::new()).await.expect("an answer"), 0);
    for _ in 0..3 {
        for n in [0, 2, 10, 30, 98] {
            expect_gone(&*store, n).await;
        }
        for n in [1, 3, 4, 12, 31, 99] {
            assert_eq!(
                journal(&*store, n).await.len(),
                3 + usize::from(n % 2 == 0),
                "run {n}"
            );
        }
        let kept = NoteKey::of_run(id(12), &[b"progress"]);
        assert_eq!(note(&*store, &kept).await.as_deref(), Some("half"));
        assert_eq!(note(&*store, &other).await.as_deref(), Some("stays"));
        let query = RunQuery {
            limit: 1_000,
            ..RunQuery::default()
        };
        assert_eq!(store.list(query).await.expect("listed").len(), 95);
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
    }
}

/// The id of a deleted run can be used again, any number of times, over restarts; the new run
/// has nothing of the old one.
pub async fn a_deleted_id_can_be_used_again(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for round in 0..6u64 {
        let own = NoteKey::of_run(id(1), &[b"progress"]);
        assert_eq!(note(&*store, &own).await, None, "round {round}");
        let mut run = new_run(1);
        run.first = frame(1, 100 + round, 40);
        let created = store.create(run).await.expect("an answer");
        assert_eq!(created, Creation::Created(Epoch::FIRST), "round {round}");
        assert_eq!(journal(&*store, 1).await, vec![frame(1, 100 + round, 40)]);
        assert_eq!(store.mail(id(1), 0).await.expect("readable"), Vec::new());
        post(&*store, 1, 0..1).await;
        let text = format!("round {round}");
        set(&*store, &own, Some(&text)).await;
        if round % 2 == 0 {
            let Some(reopened) = harness.again(store).await else {
                return;
            };
            store = reopened;
            assert_eq!(note(&*store, &own).await, Some(text), "of the new run");
        }
        let claim = store
            .claim(id(1), 0)
            .await
            .expect("claimed")
            .expect("there");
        let frames = 2 + round * 40;
        grow(&*store, 1, claim.epoch, 1..frames, 400).await;
        let last = ending(1, claim.epoch, frames, EndKind::Completed);
        store.append(last).await.expect("ended");
        assert_eq!(store.delete(vec![id(1)]).await.expect("an answer"), 1);
        expect_gone(&*store, 1).await;
        if round % 3 > 0 {
            let Some(reopened) = harness.again(store).await else {
                return;
            };
            store = reopened;
            expect_gone(&*store, 1).await;
        }
        store.check().await.expect("sound");
    }
}
