//! Rules about runs that sleep.

use super::letters::post;
use super::*;
use crate::store::{Released, RunPosition, RunQuery, Sleeper, StoreError};

fn time(micros: u64) -> Option<Timestamp> {
    Some(Timestamp::from_micros(micros))
}

async fn put_to_sleep(store: &dyn Store, n: u64, epoch: Epoch, wake_at: Option<Timestamp>) {
    let released = store.put_to_sleep(id(n), epoch, wake_at).await;
    assert_eq!(released.expect("an answer"), Released::Asleep);
}

pub(super) async fn asleep(store: &dyn Store, limit: usize) -> Vec<Sleeper> {
    let mut all: Vec<Sleeper> = Vec::new();
    loop {
        let page = store.asleep(all.last().cloned(), limit).await;
        let page = page.expect("listed");
        assert!(page.len() <= limit);
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

async fn unfinished(store: &dyn Store) -> Vec<RunId> {
    let headers = store.unfinished().await.expect("readable");
    headers.into_iter().map(|header| header.run).collect()
}

/// A sleeping run is not among the unfinished ones, and is found by its id and in listings,
/// with its whole journal; a claim wakes it.
pub async fn a_sleeping_run_is_found_and_woken(harness: &dyn Harness) {
    let store = harness.fresh().await;
    for n in 1..=2 {
        let epoch = create(&*store, n).await;
        grow(&*store, n, epoch, 1..5, 700).await;
    }
    put_to_sleep(&*store, 1, Epoch::FIRST, time(5)).await;
    let sleeping = RunState::Asleep { wake_at: time(5) };
    for _ in 0..50 {
        // Wherever the store keeps it by then.
        assert_eq!(state(&*store, 1).await, sleeping);
        assert_eq!(journal(&*store, 1).await.len(), 5);
        assert_eq!(unfinished(&*store).await, vec![id(2)]);
        let sleeper = Sleeper {
            wake_at: time(5),
            run: id(1),
            namespace: "default".into(),
        };
        assert_eq!(asleep(&*store, 10).await, vec![sleeper]);
        let query = RunQuery {
            limit: 10,
            ..RunQuery::default()
        };
        assert_eq!(store.list(query).await.expect("listed").len(), 2);
        let exists = store.create(new_run(1)).await.expect("an answer");
        assert!(matches!(exists, Creation::Exists(_)));
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert_eq!(claim.header.state, RunState::Active);
    assert_eq!(claim.frames.len(), 5);
    assert_eq!(unfinished(&*store).await, vec![id(1), id(2)]);
    assert_eq!(asleep(&*store, 10).await, Vec::new());
    grow(&*store, 1, claim.epoch, 5..7, 700).await;
    assert_eq!(journal(&*store, 1).await.len(), 7);
}

/// Who let a run sleep owns it no more, and no epoch of a run is given twice.
pub async fn no_epoch_is_given_twice_over_sleep(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let mut epoch = create(&*store, 1).await;
    let mut seen = vec![epoch];
    for round in 0..20u64 {
        put_to_sleep(&*store, 1, epoch, None).await;
        for stale in &seen {
            let seq = 1 + round;
            let refused = store
                .append(append(1, *stale, seq, vec![frame(1, seq, 9)]))
                .await;
            assert!(
                matches!(refused, Err(StoreError::StaleEpoch { .. })),
                "{refused:?}"
            );
            let refused = store.put_to_sleep(id(1), *stale, None).await;
            assert!(
                matches!(refused, Err(StoreError::StaleEpoch { .. })),
                "{refused:?}"
            );
        }
        if round % 3 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
        let claim = store
            .claim(id(1), 0)
            .await
            .expect("claimed")
            .expect("there");
        assert!(seen.iter().all(|old| *old < claim.epoch));
        epoch = claim.epoch;
        seen.push(epoch);
        let seq = 1 + round;
        grow(&*store, 1, epoch, seq..seq + 1, 9).await;
    }
}

/// A run for which letters wait, or are on their way, does not fall asleep, and stays owned.
pub async fn a_run_with_letters_stays_awake(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    let posted = store.commit(super::letters::posting(vec![super::letters::letter(1, 0)]));
    let released = store.put_to_sleep(id(1), epoch, None).await;
    assert_eq!(released.expect("an answer"), Released::HasMail);
    posted.await.expect("posted");
    assert_eq!(state(&*store, 1).await, RunState::Active);
    let mut taking = append(1, epoch, 1, vec![frame(1, 1, 9)]);
    taking.taken = 1;
    store.append(taking).await.expect("owned as before");
    put_to_sleep(&*store, 1, epoch, None).await;
    post(&*store, 1, 1..2).await;
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert_eq!((claim.mail.len(), claim.next_letter), (1, 2));
}

/// A release behind a claim is refused: the run belongs to somebody else.
pub async fn a_stale_owner_puts_nobody_to_sleep(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let old = create(&*store, 1).await;
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    let refused = store.put_to_sleep(id(1), old, None).await;
    assert!(
        matches!(refused, Err(StoreError::StaleEpoch { .. })),
        "{refused:?}"
    );
    grow(&*store, 1, claim.epoch, 1..2, 9).await;
    let last = ending(1, claim.epoch, 2, EndKind::Completed);
    store.append(last).await.expect("ended");
    let refused = store.put_to_sleep(id(1), claim.epoch, None).await;
    assert!(
        matches!(refused, Err(StoreError::Ended { .. })),
        "{refused:?}"
    );
    let refused = store.put_to_sleep(id(9), old, None).await;
    assert!(
        matches!(refused, Err(StoreError::UnknownRun { .. })),
        "{refused:?}"
    );
}

/// Those with a time come first, soonest first; then the others by id; pages join.
pub async fn sleepers_are_listed_soonest_first_in_pages(harness: &dyn Harness) {
    const RUNS: u64 = 150;
    let mut store = harness.fresh().await;
    let mut expected = Vec::new();
    for n in 0..RUNS {
        let epoch = create(&*store, n).await;
        let wake_at = match n % 5 {
            0 => None,
            _ => time(n * 7_919 % 40),
        };
        put_to_sleep(&*store, n, epoch, wake_at).await;
        expected.push(Sleeper {
            wake_at,
            run: id(n),
            namespace: "default".into(),
        });
    }
    expected.sort_by_key(|sleeper| {
        let wake_at = sleeper.wake_at;
        (wake_at.is_none(), wake_at.unwrap_or_default(), sleeper.run)
    });
    assert_eq!(asleep(&*store, 7).await, expected);
    assert_eq!(asleep(&*store, 1_000).await, expected);
    assert!(store.asleep(None, 0).await.expect("listed").is_empty());
    for _ in 0..2 {
        // What is asleep may be awake after a crash; here it was long enough.
        store.close().await.expect("closed");
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        let mut all = asleep(&*store, 7).await;
        for header in store.unfinished().await.expect("readable") {
            assert_eq!(header.state, RunState::Active);
            let sleeper = expected.iter().find(|one| one.run == header.run);
            all.push(sleeper.expect("one of them").clone());
        }
        all.sort_by_key(|sleeper| {
            let wake_at = sleeper.wake_at;
            (wake_at.is_none(), wake_at.unwrap_or_default(), sleeper.run)
        });
        assert_eq!(all, expected, "each is asleep or awake");
    }
}

/// A run that slept, woke and went on is whole after restarts, and as awake as it was.
pub async fn waking_survives_restarts(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for n in 0..4 {
        create(&*store, n).await;
    }
    for round in 0..6u64 {
        for n in 0..4 {
            let claim = store
                .claim(id(n), 0)
                .await
                .expect("claimed")
                .expect("there");
            let seq = claim.frames.len() as u64;
            assert_eq!(seq, round + 1, "run {n}");
            let len = if n == 3 { 5_000 } else { 60 };
            grow(&*store, n, claim.epoch, seq..seq + 1, len).await;
            put_to_sleep(&*store, n, claim.epoch, time(n)).await;
        }
        if round % 2 == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        }
        // Two are awake when the process dies: one of them did nothing yet.
        let claim = store
            .claim(id(0), 0)
            .await
            .expect("claimed")
            .expect("there");
        drop(claim);
        store
            .claim(id(1), 0)
            .await
            .expect("claimed")
            .expect("there");
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        let awake = unfinished(&*store).await;
        assert!(
            awake.contains(&id(0)) && awake.contains(&id(1)),
            "{awake:?}"
        );
        for n in 0..4 {
            let found = journal(&*store, n).await;
            assert_eq!(found.len() as u64, round + 2, "run {n}");
        }
    }
}

/// A run that is created asleep belongs to nobody until it is claimed, and sleeps on over
/// restarts.
pub async fn a_run_can_be_created_asleep(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for n in 1..=2 {
        let mut run = new_run(n);
        run.header.state = RunState::Asleep { wake_at: time(9) };
        store.create(run).await.expect("created");
    }
    let refused = store
        .append(append(1, Epoch::FIRST, 1, vec![frame(1, 1, 9)]))
        .await;
    assert!(
        matches!(refused, Err(StoreError::StaleEpoch { .. })),
        "{refused:?}"
    );
    for _ in 0..3 {
        assert_eq!(unfinished(&*store).await, Vec::new());
        assert_eq!(asleep(&*store, 1).await.len(), 2);
        assert_eq!(
            state(&*store, 1).await,
            RunState::Asleep { wake_at: time(9) }
        );
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
    }
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert_eq!(claim.frames, vec![frame(1, 0, 40)]);
    grow(&*store, 1, claim.epoch, 1..3, 9).await;
    assert_eq!(unfinished(&*store).await, vec![id(1)]);
    assert_eq!(asleep(&*store, 5).await.len(), 1);
}

/// The other order is the same list backwards, sleeping and ended runs included, and pages
/// join; a listing can ask for what came from one run.
pub async fn runs_are_listed_oldest_first_and_by_origin(harness: &dyn Harness) {
    const RUNS: u64 = 90;
    let store = harness.fresh().await;
    for n in 0..RUNS {
        let mut run = new_run(n);
        run.header.created_at = Timestamp::from_micros(1_000 + n / 3);
        if n % 4 == 1 {
            run.header.origin = Some(crate::store::Origin::Child(id(n % 8)));
        }
        store.create(run).await.expect("created");
        match n % 3 {
            0 => {
                let last = ending(n, Epoch::FIRST, 1, EndKind::Completed);
                store.append(last).await.expect("ended");
            }
            1 => put_to_sleep(&*store, n, Epoch::FIRST, None).await,
            _ => {}
        }
    }
    let query = |order, after, limit| RunQuery {
        order,
        after,
        limit,
        ..RunQuery::default()
    };
    let newest = crate::store::RunOrder::NewestFirst;
    let oldest = crate::store::RunOrder::OldestFirst;
    let all = store
        .list(query(newest, None, 1_000))
        .await
        .expect("listed");
    assert_eq!(all.len() as u64, RUNS);
    let mut paged: Vec<RunHeader> = Vec::new();
    loop {
        let after: Option<RunPosition> = paged.last().map(RunHeader::position);
        let page = store.list(query(oldest, after, 7)).await.expect("listed");
        if page.is_empty() {
            break;
        }
        assert!(page.len() == 7 || paged.len() + page.len() == all.len());
        paged.extend(page);
    }
    paged.reverse();
    assert_eq!(paged, all);
    let mut children = query(oldest, None, 1_000);
    children.origin = Some(id(5));
    let found = store.list(children).await.expect("listed");
    assert_eq!(found.len(), (0..RUNS).filter(|n| n % 8 == 5).count());
    assert!(
        found
            .iter()
            .all(|header| header.origin.is_some_and(|from| from.run() == id(5)))
    );
}
