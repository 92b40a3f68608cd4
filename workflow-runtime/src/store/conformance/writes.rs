//! Rules about writing: creation, order, fencing, finality, parking.

use std::future::poll_fn;

use super::*;
use crate::store::{AckSlot, StoreError};

/// A created run is there, with the header and the frame it was given.
pub async fn a_created_run_has_its_header_and_first_frame(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    assert_eq!(epoch, Epoch::FIRST);
    let found = store.header(id(1)).await.expect("readable");
    assert_eq!(found, Some(header(1)));
    assert_eq!(journal(&*store, 1).await, vec![frame(1, 0, 40)]);
}

/// A run can be created with more than one frame: all of them are there, and it goes on behind them.
pub async fn a_run_can_begin_with_several_frames(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let mut run = new_run(1);
    run.rest = (1..4).map(|seq| frame(1, seq, 50)).collect();
    let mut expected = vec![run.first.clone()];
    expected.extend(run.rest.iter().cloned());
    let created = store.create(run).await.expect("created");
    assert_eq!(created, Creation::Created(Epoch::FIRST));
    assert_eq!(journal(&*store, 1).await, expected);
    let early = append(1, Epoch::FIRST, 1, vec![frame(1, 1, 50)]);
    assert!(matches!(
        store.append(early).await,
        Err(StoreError::OutOfOrder { expected: 4, .. })
    ));
    grow(&*store, 1, Epoch::FIRST, 4..6, 50).await;
    expected.extend((4..6).map(|seq| frame(1, seq, 50)));
    assert_eq!(journal(&*store, 1).await, expected);
    let Some(store) = harness.again(store).await else {
        return;
    };
    assert_eq!(journal(&*store, 1).await, expected);
}

/// Creating an id that is there returns the first run and changes nothing.
pub async fn an_id_that_exists_is_reported_and_left_unchanged(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let mut other = new_run(1);
    other.header.version = 99;
    other.header.created_at = Timestamp::from_micros(5);
    other.first = frame(9, 9, 9);
    for ended in [false, true] {
        let found = store.create(other.clone()).await.expect("an answer");
        let Creation::Exists(found) = found else {
            panic!("the id was taken: {found:?}");
        };
        assert_eq!(found.version, header(1).version);
        assert_eq!(found.created_at, header(1).created_at);
        assert_eq!(matches!(found.state, RunState::Ended(_)), ended);
        assert_eq!(journal(&*store, 1).await[0], frame(1, 0, 40));
        if !ended {
            let last = ending(1, epoch, 1, EndKind::Failed);
            store
                .append(last)
                .await
                .expect("the first owner still owns it");
        }
    }
}

/// Of racers for one id exactly one creates it; the others are told, once it is durable.
pub async fn racing_creations_of_one_id_make_one_run(harness: &dyn Harness) {
    const RACERS: u32 = 16;
    let store = harness.fresh().await;
    let mut racers = Vec::new();
    for version in 0..RACERS {
        let store = Arc::clone(&store);
        racers.push(tokio::spawn(async move {
            let mut run = new_run(1);
            run.header.version = version;
            store.create(run).await.expect("an answer")
        }));
    }
    let mut created = 0;
    let mut versions = Vec::new();
    for racer in racers {
        match racer.await.expect("no racer panics") {
            Creation::Created(_) => created += 1,
            Creation::Exists(header) => versions.push(header.version),
        }
    }
    assert_eq!(created, 1, "exactly one racer creates the run");
    let winner = store.header(id(1)).await.expect("readable").expect("there");
    assert!(versions.iter().all(|v| *v == winner.version));
    assert_eq!(journal(&*store, 1).await.len(), 1);
}

/// Frames are read back as they were appended, one or several at a time.
pub async fn appended_frames_come_back_in_order(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..5, 50).await;
    let three = (5..8).map(|seq| frame(1, seq, 60)).collect::<Vec<_>>();
    store
        .append(append(1, epoch, 5, three.clone()))
        .await
        .expect("appended");
    let mut expected = vec![frame(1, 0, 40)];
    expected.extend((1..5).map(|seq| frame(1, seq, 50)));
    expected.extend(three);
    assert_eq!(journal(&*store, 1).await, expected);
}

/// A slot serves one append after the other: each is answered there or by a future, and is durable then.
/// One that is refused leaves the slot free.
pub async fn a_slot_serves_one_append_after_the_other(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let slot = Arc::new(AckSlot::default());
    let append_into = async |seq| {
        let append = append(1, epoch, seq, vec![frame(1, seq, 33)]);
        match store.append_into(append, &slot) {
            Some(future) => future.await,
            None => poll_fn(|cx| slot.poll(cx)).await,
        }
    };
    for seq in 1..20 {
        append_into(seq).await.expect("appended");
        assert_eq!(journal(&*store, 1).await.len() as u64, seq + 1);
        let refused = append_into(seq).await;
        assert!(matches!(refused, Err(StoreError::OutOfOrder { .. })));
    }
}

/// A gap and a repetition are both refused, and the error names both numbers.
pub async fn an_append_that_is_not_the_next_is_refused(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..3, 20).await;
    for wrong in [0, 2, 4, u64::MAX] {
        let refused = store
            .append(append(1, epoch, wrong, vec![frame(1, wrong, 20)]))
            .await;
        match refused {
            Err(StoreError::OutOfOrder { run, expected, got }) => {
                assert_eq!((run, expected, got), (id(1), 3, wrong));
            }
            other => panic!("record {wrong} was taken as record 3: {other:?}"),
        }
    }
}

/// The order of the calls decides, not the order of polling.
pub async fn appends_queued_back_to_back_are_accepted_in_call_order(harness: &dyn Harness) {
    const QUEUED: u64 = 50;
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let mut queued = Vec::new();
    for seq in 1..=QUEUED {
        queued.push(store.append(append(1, epoch, seq, vec![frame(1, seq, 33)])));
    }
    while let Some(last) = queued.pop() {
        last.await.expect("queued behind its predecessor");
    }
    let found = journal(&*store, 1).await;
    assert_eq!(found.len() as u64, QUEUED + 1);
    for seq in 1..=QUEUED {
        assert_eq!(found[seq as usize], frame(1, seq, 33));
    }
}

/// Dropping the future, polled or not, does not undo the append.
pub async fn a_dropped_append_still_counts(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    drop(store.append(append(1, epoch, 1, vec![frame(1, 1, 21)])));
    store
        .append(append(1, epoch, 2, vec![frame(1, 2, 22)]))
        .await
        .expect("record 1 is there already");
    assert_eq!(journal(&*store, 1).await[1], frame(1, 1, 21));
}

/// An owner that was superseded can neither append nor park.
pub async fn a_stale_epoch_writes_nothing(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let old = create(&*store, 1).await;
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    let stale = store.append(append(1, old, 1, vec![frame(1, 1, 5)])).await;
    assert!(
        matches!(stale, Err(StoreError::StaleEpoch { run }) if run == id(1)),
        "{stale:?}"
    );
    let stale = store.park(id(1), old, Some(parking("no"))).await;
    assert!(
        matches!(stale, Err(StoreError::StaleEpoch { .. })),
        "{stale:?}"
    );
    assert_eq!(journal(&*store, 1).await.len(), 1);
    assert_eq!(state(&*store, 1).await, RunState::Active);
    grow(&*store, 1, claim.epoch, 1..3, 10).await;
}

/// A run that was never created takes neither frames nor parking.
pub async fn an_unknown_run_takes_no_write(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let refused = store
        .append(append(1, Epoch::FIRST, 0, vec![frame(1, 0, 5)]))
        .await;
    assert!(
        matches!(refused, Err(StoreError::UnknownRun { run }) if run == id(1)),
        "{refused:?}"
    );
    let refused = store.park(id(1), Epoch::FIRST, Some(parking("no"))).await;
    assert!(
        matches!(refused, Err(StoreError::UnknownRun { .. })),
        "{refused:?}"
    );
    assert_eq!(store.header(id(1)).await.expect("readable"), None);
}

/// Terminal is final: whatever the epoch, and also for the queue behind the end.
pub async fn an_ended_run_takes_no_write(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let last = store.append(ending(1, epoch, 1, EndKind::Completed));
    let behind = store.append(append(1, epoch, 2, vec![frame(1, 2, 5)]));
    last.await.expect("ended");
    assert!(matches!(behind.await, Err(StoreError::Ended { run }) if run == id(1)));
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("readable")
        .expect("there");
    for epoch in [epoch, claim.epoch] {
        let refused = store
            .append(append(1, epoch, 2, vec![frame(1, 2, 5)]))
            .await;
        assert!(
            matches!(refused, Err(StoreError::Ended { .. })),
            "{refused:?}"
        );
        let refused = store.park(id(1), epoch, Some(parking("no"))).await;
        assert!(
            matches!(refused, Err(StoreError::Ended { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(journal(&*store, 1).await.len(), 2);
    assert_eq!(
        state(&*store, 1).await,
        RunState::Ended(end(EndKind::Completed))
    );
}

/// The journal of a run that has ended stays readable.
pub async fn an_ended_run_can_be_read_and_claimed(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..4, 25).await;
    store
        .append(ending(1, epoch, 4, EndKind::Aborted))
        .await
        .expect("ended");
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("readable")
        .expect("there");
    assert_eq!(claim.header.state, RunState::Ended(end(EndKind::Aborted)));
    assert_eq!(claim.frames, journal(&*store, 1).await);
    assert_eq!(claim.frames.len(), 5);
    assert_eq!(claim.frames[4], frame(1, 4, 30));
}

/// Parking and its end are seen in the header; the journal is untouched and goes on.
pub async fn parking_changes_the_header_and_not_the_journal(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..3, 25).await;
    let before = journal(&*store, 1).await;
    for report in ["first", "second"] {
        store
            .park(id(1), epoch, Some(parking(report)))
            .await
            .expect("parked");
        assert_eq!(state(&*store, 1).await, RunState::Parked(parking(report)));
    }
    assert_eq!(journal(&*store, 1).await, before);
    store.park(id(1), epoch, None).await.expect("unparked");
    assert_eq!(state(&*store, 1).await, RunState::Active);
    grow(&*store, 1, epoch, 3..5, 25).await;
    assert_eq!(journal(&*store, 1).await.len(), 5);
}

/// After any refusal the run is as it was and goes on.
pub async fn a_refused_append_changes_nothing(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let several = vec![frame(1, 7, 10), frame(1, 8, 10)];
    let mut refused = append(1, epoch, 7, several);
    refused.end = Some(end(EndKind::Failed));
    assert!(store.append(refused).await.is_err());
    assert_eq!(journal(&*store, 1).await.len(), 1);
    assert_eq!(state(&*store, 1).await, RunState::Active);
    grow(&*store, 1, epoch, 1..2, 10).await;
}

/// Frames of no byte, of one, around likely borders and of a mebibyte come back.
pub async fn frames_of_every_size_come_back(harness: &dyn Harness) {
    const SIZES: [usize; 12] = [
        0, 1, 31, 1_000, 3_900, 4_000, 4_095, 4_096, 4_097, 8_192, 65_536, 1_048_576,
    ];
    let mut store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let frames: Vec<Bytes> = (1..)
        .zip(SIZES)
        .map(|(seq, len)| frame(1, seq, len))
        .collect();
    for (seq, frame) in (1..).zip(&frames) {
        let one = append(1, epoch, seq, vec![frame.clone()]);
        store.append(one).await.expect("any size is taken");
    }
    let mut all = append(1, epoch, 13, frames.clone());
    all.end = Some(end(EndKind::Completed));
    store
        .append(all)
        .await
        .expect("all sizes at once are taken");
    let mut expected = vec![frame(1, 0, 40)];
    expected.extend(frames.iter().chain(&frames).cloned());
    assert!(journal(&*store, 1).await == expected, "before a restart");
    store.check().await.expect("sound");
    if let Some(reopened) = harness.again(store).await {
        store = reopened;
        assert!(journal(&*store, 1).await == expected, "after a restart");
    }
}

/// Interleaved runs keep their own frames.
pub async fn many_runs_do_not_mix(harness: &dyn Harness) {
    const RUNS: u64 = 40;
    let store = harness.fresh().await;
    let mut epochs = Vec::new();
    for n in 0..RUNS {
        epochs.push(create(&*store, n).await);
    }
    for seq in 1..6 {
        let queued: Vec<_> = (0..RUNS)
            .map(|n| {
                let frames = vec![frame(n, seq, 20 + n as usize)];
                store.append(append(n, epochs[n as usize], seq, frames))
            })
            .collect();
        for one in queued {
            one.await.expect("appended");
        }
    }
    for n in 0..RUNS {
        let found = journal(&*store, n).await;
        let expected = (1..6).map(|seq| frame(n, seq, 20 + n as usize));
        assert_eq!(found[1..], expected.collect::<Vec<_>>());
    }
}
