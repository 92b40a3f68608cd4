//! Rules about letters: numbers, taking, refusals.

use super::*;
use crate::store::{Changes, Commit, Committed, Letter, Mail, Refusal, Sleeper};

/// Returns letter `number` to run `n`.
pub(super) fn letter(n: u64, number: u64) -> Letter {
    Letter {
        to: id(n),
        body: frame(n, 1_000 + number, 20 + number as usize % 7),
    }
}

/// Returns letters as they should wait.
pub(super) fn mail(n: u64, numbers: std::ops::Range<u64>) -> Vec<Mail> {
    let mail = numbers.map(|number| Mail {
        number,
        body: letter(n, number).body,
    });
    mail.collect()
}

pub(super) fn posting(letters: Vec<Letter>) -> Commit {
    Commit {
        guards: Vec::new(),
        changes: Changes {
            post: letters,
            ..Changes::default()
        },
    }
}

pub(super) async fn post(store: &dyn Store, n: u64, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let posted = store.commit(posting(vec![letter(n, number)])).await;
        assert_eq!(posted.expect("an answer"), Committed::Done);
    }
}

async fn waiting(store: &dyn Store, n: u64) -> Vec<Mail> {
    store.mail(id(n), 0).await.expect("readable")
}

/// Letters wait in the order in which they were acknowledged, until they are taken; taking
/// changes nothing about the numbers of later ones.
pub async fn letters_are_numbered_and_kept_until_taken(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    create(&*store, 2).await;
    post(&*store, 1, 0..3).await;
    post(&*store, 2, 0..1).await;
    assert_eq!(waiting(&*store, 1).await, mail(1, 0..3));
    assert_eq!(waiting(&*store, 2).await, mail(2, 0..1));
    let from = store.mail(id(1), 2).await.expect("readable");
    assert_eq!(from, mail(1, 2..3));
    let mut taking = append(1, epoch, 1, vec![frame(1, 1, 9)]);
    taking.taken = 2;
    store.append(taking.clone()).await.expect("taken");
    assert_eq!(waiting(&*store, 1).await, mail(1, 2..3));
    taking.first_seq = 2;
    store.append(taking.clone()).await.expect("nothing more");
    assert_eq!(waiting(&*store, 1).await, mail(1, 2..3));
    post(&*store, 1, 3..4).await;
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert_eq!(claim.mail, mail(1, 2..4));
    assert_eq!(claim.next_letter, 4);
    taking.epoch = claim.epoch;
    taking.first_seq = 3;
    taking.taken = 4;
    store.append(taking).await.expect("taken");
    assert_eq!(waiting(&*store, 1).await, Vec::new());
    assert_eq!(waiting(&*store, 2).await, mail(2, 0..1), "another's");
    assert_eq!(waiting(&*store, 9).await, Vec::new(), "nobody's");
}

/// An append that is refused takes no letters.
pub async fn a_refused_append_takes_no_letters(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let old = create(&*store, 1).await;
    post(&*store, 1, 0..2).await;
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    let mut refused = append(1, old, 1, vec![frame(1, 1, 9)]);
    refused.taken = 2;
    assert!(store.append(refused.clone()).await.is_err(), "stale");
    refused.epoch = claim.epoch;
    refused.first_seq = 7;
    assert!(store.append(refused).await.is_err(), "out of order");
    assert_eq!(waiting(&*store, 1).await, mail(1, 0..2));
}

/// Letters and numbers are the same after any number of restarts.
pub async fn letters_survive_restarts(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    create(&*store, 1).await;
    create(&*store, 2).await;
    let (mut taken, mut next) = (0, 0);
    for round in 1..5 {
        post(&*store, 1, next..next + 3).await;
        next += 3;
        let claim = store
            .claim(id(1), 0)
            .await
            .expect("claimed")
            .expect("there");
        assert_eq!(claim.mail, mail(1, taken..next));
        let seq = claim.frames.len() as u64;
        // Sometimes with a frame that is large enough to be tidied away.
        let len = if round % 2 == 0 { 6_000 } else { 50 };
        let mut taking = append(1, claim.epoch, seq, vec![frame(1, seq, len)]);
        taken = next - 1;
        taking.taken = taken;
        store.append(taking).await.expect("taken");
        for n in round * 100..round * 100 + 70 {
            let epoch = create(&*store, n).await;
            let last = ending(n, epoch, 1, EndKind::Completed);
            store.append(last).await.expect("ended");
        }
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        assert_eq!(waiting(&*store, 1).await, mail(1, taken..next), "{round}");
        let claim = store
            .claim(id(1), 0)
            .await
            .expect("claimed")
            .expect("there");
        assert_eq!(claim.next_letter, next);
        assert_eq!(waiting(&*store, 2).await, Vec::new());
    }
}

/// A letter to a run that has ended or is not there refuses a commit as a whole, and is
/// dropped from an append; an end drops the letters that wait.
pub async fn letters_to_nobody_are_refused_or_dropped(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    create(&*store, 2).await;
    post(&*store, 1, 0..2).await;
    let last = ending(1, epoch, 1, EndKind::Failed);
    store.append(last).await.expect("ended");
    for again in [false, true] {
        if again {
            let Some(reopened) = harness.again(store).await else {
                return;
            };
            store = reopened;
        }
        assert_eq!(waiting(&*store, 1).await, Vec::new(), "dropped");
        let nobodies = [(1, Refusal::Ended(id(1))), (3, Refusal::Unknown(id(3)))];
        for (nobody, refusal) in nobodies {
            let letters = vec![letter(2, 0), letter(nobody, 2)];
            let refused = store.commit(posting(letters.clone())).await;
            assert_eq!(refused.expect("an answer"), Committed::Refused(refusal));
            assert_eq!(waiting(&*store, 2).await, Vec::new(), "as a whole");
        }
    }
    let claim = store
        .claim(id(2), 0)
        .await
        .expect("claimed")
        .expect("there");
    let mut telling = append(2, claim.epoch, 1, vec![frame(2, 1, 9)]);
    telling.changes = Some(Box::new(Changes {
        post: vec![letter(1, 2), letter(2, 0), letter(3, 0)],
        ..Changes::default()
    }));
    store.append(telling).await.expect("nothing refuses it");
    assert_eq!(waiting(&*store, 2).await, mail(2, 0..1));
    assert_eq!(waiting(&*store, 1).await, Vec::new());
    assert_eq!(waiting(&*store, 3).await, Vec::new());
}

/// A run that sleeps gets letters, and is due then; after a restart too.
pub async fn a_letter_makes_a_sleeping_run_due(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    for n in 1..=3 {
        let epoch = create(&*store, n).await;
        let wake_at = (n == 2).then(|| Timestamp::from_micros(500));
        let released = store.put_to_sleep(id(n), epoch, wake_at).await;
        released.expect("released");
    }
    for round in 0..3 {
        let numbers = round..round + 1;
        post(&*store, 1, numbers.clone()).await;
        post(&*store, 2, numbers).await;
        for n in [1, 2] {
            assert_eq!(waiting(&*store, n).await, mail(n, 0..round + 1));
            let due = Sleeper {
                wake_at: Some(Timestamp::default()),
                run: id(n),
                namespace: "default".into(),
            };
            // Sleep may be lost in a restart: then it is among those that are awake.
            match state(&*store, n).await {
                RunState::Active => assert!(round > 0),
                _ => assert!(store.asleep(None, 2).await.expect("listed").contains(&due)),
            }
        }
        let asleep = store.asleep(None, 10).await.expect("listed");
        let unfinished = store.unfinished().await.expect("readable");
        assert_eq!(asleep.len() + unfinished.len(), 3);
        let Some(reopened) = harness.again(store).await else {
            return;
        };
        store = reopened;
        store.check().await.expect("sound");
        // From here on it is on the disk that they sleep.
        for header in store.unfinished().await.expect("readable") {
            let claim = store.claim(header.run, 0).await.expect("claimed");
            let claim = claim.expect("there");
            store
                .put_to_sleep(header.run, claim.epoch, None)
                .await
                .expect("an answer");
        }
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    }
    let claim = store
        .claim(id(1), 0)
        .await
        .expect("claimed")
        .expect("there");
    assert_eq!(claim.mail, mail(1, 0..3));
    assert_eq!(claim.header.state, RunState::Active);
    let asleep = store.asleep(None, 10).await.expect("listed");
    assert!(asleep.iter().all(|sleeper| sleeper.run != id(1)));
}
