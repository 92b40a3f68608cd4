//! Rules about reading: claims, frames, unfinished runs, listings.

use super::*;
use crate::store::{Released, RunQuery, StateKind};

/// A claim is ownership and knowledge in one.
pub async fn a_claim_returns_the_whole_journal_and_a_higher_epoch(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let first = create(&*store, 1).await;
    grow(&*store, 1, first, 1..4, 15).await;
    drop(store.append(append(1, first, 4, vec![frame(1, 4, 15)])));
    let second = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert!(second.epoch > first);
    assert_eq!(second.header, header(1));
    assert_eq!(
        second.frames.len(),
        5,
        "what was queued before the claim is part of it"
    );
    assert_eq!(second.frames, journal(&*store, 1).await);
    let third = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert!(third.epoch > second.epoch);
}

/// Whoever resumes from a checkpoint asks for the journal from there on, and the first frame: wherever
/// the frames are by now, in memory, in the archive or in both, awake, asleep or ended.
pub async fn a_claim_gives_the_first_frame_and_those_from_a_number_on(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let mut epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..6, 5_000).await;
    grow(&*store, 1, epoch, 6..10, 15).await;
    for round in 0..4_usize {
        let whole = journal(&*store, 1).await;
        assert_eq!(whole.len(), 10 + round);
        for from in [0, 1, 2, 5, 6, 9, 10 + round as u64, 1_000, u64::MAX] {
            let claim = store.claim(id(1), from).await;
            let claim = claim.expect("claimed").expect("there");
            let mut expected = vec![whole[0].clone()];
            let from_there = usize::try_from(from).unwrap_or(usize::MAX).max(1);
            expected.extend(whole.iter().skip(from_there).cloned());
            assert!(
                claim.frames == expected,
                "round {round}, from {from}: {} frames instead of {}",
                claim.frames.len(),
                expected.len()
            );
            epoch = claim.epoch;
        }
        // Every claim took ownership, and what is written next goes behind all that is there.
        let next = 10 + round as u64;
        match round {
            0 | 1 => grow(&*store, 1, epoch, next..next + 1, 5_000).await,
            2 => {
                let last = ending(1, epoch, next, EndKind::Completed);
                store.append(last).await.expect("ends");
            }
            _ => {}
        }
        if round == 0 {
            let asleep = store.put_to_sleep(id(1), epoch, None).await;
            assert_eq!(asleep.expect("an answer"), Released::Asleep);
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
    }
}

/// There is nothing to claim.
pub async fn claiming_an_unknown_run_gives_nothing(harness: &dyn Harness) {
    let store = harness.fresh().await;
    create(&*store, 1).await;
    assert!(store.claim(id(2), 0).await.expect("an answer").is_none());
}

/// Past the end, of an unknown run, or with limit 0: no frames, no error. Otherwise exactly
/// the part that was asked for.
pub async fn reading_past_the_end_gives_nothing(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    grow(&*store, 1, epoch, 1..10, 700).await;
    for (run, from, limit) in [(1, 10, 5), (1, u64::MAX, 5), (1, 3, 0), (2, 0, 5)] {
        let none = store.frames(id(run), from, limit).await.expect("an answer");
        assert!(none.is_empty(), "{run} {from} {limit}");
    }
    for (from, limit, count) in [(0, 3, 3), (4, 3, 3), (8, 3, 2), (9, usize::MAX, 1)] {
        let part = store.frames(id(1), from, limit).await.expect("an answer");
        assert_eq!(part.len(), count);
        let all = journal(&*store, 1).await;
        assert_eq!(part[..], all[from as usize..from as usize + count]);
    }
}

/// Unfinished means active or parked; the oldest comes first.
pub async fn unfinished_runs_come_oldest_first(harness: &dyn Harness) {
    let store = harness.fresh().await;
    for n in [5, 1, 4, 2, 3] {
        create(&*store, n).await;
    }
    store
        .append(ending(4, Epoch::FIRST, 1, EndKind::Cancelled))
        .await
        .expect("ended");
    store
        .park(id(2), Epoch::FIRST, Some(parking("stuck")))
        .await
        .expect("parked");
    let found = store.unfinished().await.expect("readable");
    let mut parked = header(2);
    parked.state = RunState::Parked(parking("stuck"));
    assert_eq!(found, vec![header(1), parked, header(3), header(5)]);
}

/// Newest first, equal times by descending id, whatever has ended; pages join seamlessly.
pub async fn runs_are_listed_newest_first_in_pages(harness: &dyn Harness) {
    const RUNS: u64 = 23;
    let store = harness.fresh().await;
    for n in 0..RUNS {
        let mut run = new_run(n);
        run.header.created_at = Timestamp::from_micros(1_000 + n / 3);
        store.create(run).await.expect("created");
        if n % 2 == 0 {
            let last = ending(n, Epoch::FIRST, 1, EndKind::Completed);
            store.append(last).await.expect("ended");
        }
    }
    let all = store.list(page(None, usize::MAX)).await.expect("listed");
    assert_eq!(all.len() as u64, RUNS);
    assert!(
        all.windows(2)
            .all(|two| two[0].position() > two[1].position())
    );
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map(RunHeader::position);
        let next = store.list(page(after, 4)).await.expect("listed");
        if next.is_empty() {
            break;
        }
        assert!(next.len() <= 4);
        paged.extend(next);
    }
    assert_eq!(paged, all);
    assert!(store.list(page(None, 0)).await.expect("listed").is_empty());
}

fn page(after: Option<crate::store::RunPosition>, limit: usize) -> RunQuery {
    RunQuery {
        after,
        limit,
        ..RunQuery::default()
    }
}

/// Filters combine; an empty list of states means any.
pub async fn a_listing_filters_by_namespace_workflow_and_state(harness: &dyn Harness) {
    let store = harness.fresh().await;
    for n in 0..12 {
        let mut run = new_run(n);
        run.header.namespace = if n % 2 == 0 { "a" } else { "b" }.into();
        run.header.workflow = if n % 3 == 0 { "x" } else { "y" }.into();
        store.create(run).await.expect("created");
        match n % 4 {
            0 => store
                .append(ending(n, Epoch::FIRST, 1, EndKind::Failed))
                .await
                .expect("ended"),
            1 => store
                .park(id(n), Epoch::FIRST, Some(parking("p")))
                .await
                .expect("parked"),
            _ => {}
        }
    }
    let count = |namespace: Option<&str>, workflow: Option<&str>, states: &[StateKind]| {
        let query = RunQuery {
            namespace: namespace.map(Into::into),
            workflow: workflow.map(Into::into),
            states: states.to_vec(),
            limit: 100,
            ..RunQuery::default()
        };
        let listed = store.list(query);
        async move { listed.await.expect("listed").len() }
    };
    let failed = StateKind::Ended(EndKind::Failed);
    assert_eq!(count(None, None, &[]).await, 12);
    assert_eq!(count(Some("a"), None, &[]).await, 6);
    assert_eq!(count(Some("c"), None, &[]).await, 0);
    assert_eq!(count(None, Some("x"), &[]).await, 4);
    assert_eq!(count(Some("a"), Some("x"), &[]).await, 2);
    assert_eq!(count(None, None, &[failed]).await, 3);
    assert_eq!(count(None, None, &[StateKind::Parked]).await, 3);
    assert_eq!(count(None, None, &[StateKind::Active]).await, 6);
    assert_eq!(
        count(Some("b"), None, &[failed, StateKind::Parked]).await,
        3
    );
    assert_eq!(
        count(None, None, &[StateKind::Ended(EndKind::Completed)]).await,
        0
    );
}

/// A store that only its own code wrote to is sound.
pub async fn a_sound_store_passes_its_own_check(harness: &dyn Harness) {
    let store = harness.fresh().await;
    store.check().await.expect("an empty store is sound");
    for n in 0..20 {
        let epoch = create(&*store, n).await;
        grow(&*store, n, epoch, 1..4, 500).await;
        if n % 2 == 0 {
            let last = ending(n, epoch, 4, EndKind::Completed);
            store.append(last).await.expect("ended");
        }
    }
    store.check().await.expect("a used store is sound");
    assert_eq!(store.failure(), None);
}
