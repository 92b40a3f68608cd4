//! Rules about forgetting: what a store may leave out of a journal, and what never.
//!
//! A store that keeps everything passes too: it is asked to forget, not made to.

use super::*;
use crate::store::{KeptJournal, Released, StoreError};

/// Reads what is kept of a journal, and checks that every frame of it is the one that was written there. Returns how
/// many records there were and from which on they are kept.
async fn kept(store: &dyn Store, n: u64, len: usize) -> (u64, u64) {
    let kept = store.journal(id(n)).await.expect("readable");
    let KeptJournal { frames, kept_from } = kept;
    let seqs = (0..2).chain(2.max(kept_from)..);
    for (seq, found) in seqs.zip(&frames) {
        let len = if seq == 0 { 40 } else { len };
        assert_eq!(*found, frame(n, seq, len), "record {seq}");
    }
    (frames.len() as u64 + kept_from.saturating_sub(2), kept_from)
}

/// What was not forgotten is there, wherever the frames are by now: in memory, in the archive or in both, awake,
/// asleep or ended, over restarts.
pub async fn forgetting_leaves_what_was_not_forgotten(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let mut epoch = create(&*store, 1).await;
    let mut next = 1;
    for round in 0..6_u64 {
        grow(&*store, 1, epoch, next..next + 40, 700).await;
        next += 40;
        let below = next - 30 + round;
        store.forget(id(1), epoch, below).await.expect("an answer");
        grow(&*store, 1, epoch, next..next + 3, 700).await;
        next += 3;
        let (count, from) = kept(&*store, 1, 700).await;
        assert_eq!(count, next);
        assert!(from <= below, "{from} of {below}");
        let claim = store.claim(id(1), below).await;
        let claim = claim.expect("claimed").expect("there");
        assert_eq!(claim.frames.len() as u64, 1 + next - below);
        epoch = claim.epoch;
        if round % 2 == 0 {
            let asleep = store.put_to_sleep(id(1), epoch, None).await;
            assert_eq!(asleep.expect("an answer"), Released::Asleep);
        }
        store.check().await.expect("sound");
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        assert_eq!(kept(&*store, 1, 700).await.0, next, "round {round}");
        let claim = store.claim(id(1), below).await;
        epoch = claim.expect("claimed").expect("there").epoch;
    }
    let mut last = ending(1, epoch, next, EndKind::Completed);
    last.frames = frame(1, next, 700).into();
    store.append(last).await.expect("ends");
    assert_eq!(kept(&*store, 1, 700).await.0, next + 1);
    if let Some(reopened) = harness.again(store).await {
        assert_eq!(kept(&*reopened, 1, 700).await.0, next + 1);
        assert_eq!(reopened.delete(vec![id(1)]).await.expect("an answer"), 1);
        assert_eq!(kept(&*reopened, 1, 700).await.0, 0);
    }
}

/// A read that would have to hold a forgotten record says so, instead of giving others in its place.
pub async fn a_forgotten_record_is_never_read_as_another(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..20, 15).await;
    store.forget(id(1), epoch, 12).await.expect("an answer");
    let (count, from) = kept(&*store, 1, 15).await;
    assert_eq!(count, 20);
    for (first, limit) in [(0, 1), (0, 2), (1, 1), (12, 3), (19, 5), (20, 5), (5, 0)] {
        let read = store.frames(id(1), first, limit).await;
        let read = read.expect("nothing of that was forgotten");
        let len = |seq| if seq == 0 { 40 } else { 15 };
        let expected = (first..20).take(limit).map(|seq| frame(1, seq, len(seq)));
        assert_eq!(read, expected.collect::<Vec<_>>(), "{first} {limit}");
    }
    for (first, limit) in [(0, 3), (0, usize::MAX), (1, 2), (2, 1), (5, 2), (11, 9)] {
        match store.frames(id(1), first, limit).await {
            Err(StoreError::Forgotten { run, kept_from }) => {
                assert_eq!((run, kept_from), (id(1), 12), "{first} {limit}");
            }
            Ok(frames) => {
                assert!(from == 0, "{first} {limit}: {} frames", frames.len());
            }
            Err(other) => panic!("{first} {limit}: {other:?}"),
        }
    }
}

/// Only the owner of a run has it forget, and never a record that is not there yet, nor one that is not behind what it
/// forgot before.
pub async fn only_the_owner_forgets_and_only_what_is_there(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let old = create(&*store, 1).await;
    grow(&*store, 1, old, 1..20, 15).await;
    let claim = store.claim(id(1), 0).await.expect("claimed");
    let epoch = claim.expect("there").epoch;
    // A store that keeps everything need not look who asks.
    match store.forget(id(1), old, 10).await {
        Ok(()) | Err(StoreError::StaleEpoch { .. }) => {}
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(kept(&*store, 1, 15).await, (20, 0));
    for below in [0, 1, 2, 20, 21, u64::MAX] {
        store.forget(id(1), epoch, below).await.expect("an answer");
        assert_eq!(kept(&*store, 1, 15).await, (20, 0), "{below}");
    }
    store.forget(id(1), epoch, 10).await.expect("an answer");
    let (_, from) = kept(&*store, 1, 15).await;
    store.forget(id(1), epoch, 5).await.expect("an answer");
    assert_eq!(kept(&*store, 1, 15).await, (20, from));
    let next = append(1, epoch, 20, vec![frame(1, 20, 15)]);
    store.append(next).await.expect("it goes on");
}
