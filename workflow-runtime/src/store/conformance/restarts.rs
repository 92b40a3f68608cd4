//! Rules about stopping and opening again.

use super::*;
use crate::store::{Commit, NoteKey, Reopening, RunQuery, StoreError};

/// After closing, every call says so; closing again is fine.
pub async fn a_closed_store_answers_stopped(harness: &dyn Harness) {
    let store = harness.fresh().await;
    assert!(
        store.stopped_cleanly(),
        "a new store was never stopped uncleanly"
    );
    let epoch = create(&*store, 1).await;
    store.close().await.expect("closed");
    store.close().await.expect("closing twice is fine");
    let note = NoteKey::new(1, &[]);
    let reopening = Reopening {
        run: id(1),
        seq: 1,
        frame: frame(1, 1, 5),
        guards: Vec::new(),
        notes: Vec::new(),
        letters: Vec::new(),
    };
    let answers = [
        store.create(new_run(2)).await.map(|_| ()),
        store
            .append(append(1, epoch, 1, vec![frame(1, 1, 5)]))
            .await,
        store.park(id(1), epoch, None).await,
        store.claim(id(1), 0).await.map(|_| ()),
        store.unfinished().await.map(|_| ()),
        store.header(id(1)).await.map(|_| ()),
        store.frames(id(1), 0, 1).await.map(|_| ()),
        store.list(RunQuery::default()).await.map(|_| ()),
        store.commit(Commit::default()).await.map(|_| ()),
        store.put_to_sleep(id(1), epoch, None).await.map(|_| ()),
        store.asleep(None, 1).await.map(|_| ()),
        store.mail(id(1), 0).await.map(|_| ()),
        store.note(note.clone()).await.map(|_| ()),
        store.notes(note, None, 1).await.map(|_| ()),
        store.revive(reopening).await.map(|_| ()),
        store.delete(vec![id(1)]).await.map(|_| ()),
        store.check().await,
    ];
    for answer in answers {
        assert!(
            matches!(answer, Err(StoreError::Stopped { .. })),
            "{answer:?}"
        );
    }
}

/// Three runs: one going on, one parked, one ended.
async fn furnish(store: &dyn Store) {
    for n in 1..=3 {
        let epoch = create(store, n).await;
        grow(store, n, epoch, 1..6, 300).await;
    }
    let last = ending(3, Epoch::FIRST, 6, EndKind::Completed);
    store.append(last).await.expect("ended");
    store
        .park(id(2), Epoch::FIRST, Some(parking("stuck")))
        .await
        .expect("parked");
    let mut buffered = append(1, Epoch::FIRST, 6, vec![frame(1, 6, 300)]);
    buffered.durability = Durability::Buffered;
    store.append(buffered).await.expect("buffered");
}

async fn expect_furnished(store: &dyn Store) {
    store.check().await.expect("sound");
    let unfinished = store.unfinished().await.expect("readable");
    let ids: Vec<RunId> = unfinished.iter().map(|header| header.run).collect();
    assert_eq!(ids, vec![id(1), id(2)]);
    assert_eq!(state(store, 1).await, RunState::Active);
    assert_eq!(state(store, 2).await, RunState::Parked(parking("stuck")));
    assert_eq!(
        state(store, 3).await,
        RunState::Ended(end(EndKind::Completed))
    );
    for (n, count) in [(1, 7), (2, 6), (3, 7)] {
        let found = journal(store, n).await;
        assert_eq!(found.len(), count, "run {n}");
        for (seq, found) in (0..).zip(&found) {
            let len = match (n, seq) {
                (_, 0) => 40,
                (3, 6) => 30,
                _ => 300,
            };
            assert_eq!(*found, frame(n, seq, len), "run {n}, record {seq}");
        }
    }
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    let goes_on = append(1, claim.epoch, 7, vec![frame(1, 7, 300)]);
    store.append(goes_on).await.expect("the run goes on");
    let exists = store.create(new_run(3)).await.expect("an answer");
    assert!(matches!(exists, Creation::Exists(_)), "the id stays taken");
}

/// After `close` all is there, and the stop counts as clean, once.
pub async fn everything_acknowledged_is_there_after_a_clean_stop(harness: &dyn Harness) {
    let store = harness.fresh().await;
    furnish(&*store).await;
    store.close().await.expect("closed");
    let Some(store) = harness.again(store).await else {
        return;
    };
    assert!(store.stopped_cleanly());
    expect_furnished(&*store).await;
    let store = harness.again(store).await.expect("as before");
    assert!(
        !store.stopped_cleanly(),
        "the mark speaks for one stop only"
    );
}

/// Without `close` all is there too, and the stop does not count as clean.
pub async fn everything_acknowledged_is_there_after_a_drop(harness: &dyn Harness) {
    let store = harness.fresh().await;
    furnish(&*store).await;
    let Some(store) = harness.again(store).await else {
        return;
    };
    assert!(!store.stopped_cleanly());
    expect_furnished(&*store).await;
}

/// Parking and its end are still known after any number of restarts and other writes.
pub async fn parking_survives_restarts(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    create(&*store, 1).await;
    create(&*store, 2).await;
    create(&*store, 3).await;
    for n in [1, 2] {
        store
            .park(id(n), Epoch::FIRST, Some(parking("stuck")))
            .await
            .expect("parked");
    }
    store
        .park(id(2), Epoch::FIRST, None)
        .await
        .expect("unparked");
    for round in 1..4 {
        for n in round * 100..round * 100 + 60 {
            let epoch = create(&*store, n).await;
            let last = ending(n, epoch, 1, EndKind::Completed);
            store.append(last).await.expect("ended");
        }
        // Parked long ago and changed just now: the change is what counts.
        let claim = store
            .claim(id(3), 0)
            .await
            .expect("claimed")
            .expect("there");
        let last = (round != 2).then(|| parking("just now"));
        store
            .park(id(3), claim.epoch, last.clone())
            .await
            .expect("changed");
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        let expected = last.map_or(RunState::Active, RunState::Parked);
        assert_eq!(state(&*store, 3).await, expected, "round {round}");
        assert_eq!(state(&*store, 1).await, RunState::Parked(parking("stuck")));
        assert_eq!(state(&*store, 2).await, RunState::Active);
    }
}

/// No restart brings an ended run back.
pub async fn an_ended_run_stays_ended_after_a_restart(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    create(&*store, 1).await;
    let last = ending(1, Epoch::FIRST, 1, EndKind::Failed);
    store.append(last).await.expect("ended");
    for _ in 0..3 {
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        assert!(store.unfinished().await.expect("readable").is_empty());
        assert_eq!(
            state(&*store, 1).await,
            RunState::Ended(end(EndKind::Failed))
        );
        let claim = store
            .claim(id(1), 0)
            .await
            .expect("readable")
            .expect("there");
        let refused = store
            .append(append(1, claim.epoch, 2, vec![frame(1, 2, 5)]))
            .await;
        assert!(
            matches!(refused, Err(StoreError::Ended { .. })),
            "{refused:?}"
        );
    }
}

/// A journal that outgrows any buffer is whole after every restart.
pub async fn a_long_journal_survives_restarts_while_it_grows(harness: &dyn Harness) {
    const ROUND: u64 = 400;
    let mut store = harness.fresh().await;
    let mut epoch = create(&*store, 1).await;
    for round in 0..4 {
        let from = 1 + round * ROUND;
        let queued: Vec<_> = (from..from + ROUND)
            .map(|seq| store.append(append(1, epoch, seq, vec![frame(1, seq, 90)])))
            .collect();
        for one in queued {
            one.await.expect("appended");
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        let claim = store
            .claim(id(1), 0)
            .await
            .expect("claimed")
            .expect("there");
        epoch = claim.epoch;
        assert_eq!(claim.frames.len() as u64, from + ROUND);
        for (seq, found) in (1..).zip(&claim.frames[1..]) {
            assert_eq!(*found, frame(1, seq, 90), "record {seq}");
        }
    }
}

/// One long run among many short ones: whatever the store tidies away, nothing is lost.
pub async fn finished_runs_around_a_long_one_survive_restarts(harness: &dyn Harness) {
    const SHORT: u64 = 150;
    let mut store = harness.fresh().await;
    let mut epoch = create(&*store, 0).await;
    for round in 0..3 {
        for n in 1..=SHORT {
            let n = round * SHORT + n;
            let short = create(&*store, n).await;
            let last = ending(n, short, 1, EndKind::Completed);
            grow(&*store, 0, epoch, n..n + 1, 60).await;
            store.append(last).await.expect("ended");
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        epoch = store
            .claim(id(0), 0)
            .await
            .expect("claimed")
            .expect("there")
            .epoch;
        let long = journal(&*store, 0).await;
        assert_eq!(long.len() as u64, 1 + (round + 1) * SHORT);
        for n in 1..=(round + 1) * SHORT {
            assert_eq!(long[n as usize], frame(0, n, 60));
            let short = vec![frame(n, 0, 40), frame(n, 1, 30)];
            assert_eq!(journal(&*store, n).await, short, "run {n}");
        }
        let unfinished = store.unfinished().await.expect("readable");
        assert_eq!(unfinished, vec![header(0)]);
    }
}
