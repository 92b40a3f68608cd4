//! Rules about lines: letters follow a run that went on as a new one.

use super::letters::{letter, mail, post, posting};
use super::*;
use crate::store::{Changes, Committed, Letter, Mail, Newest, NoteChange, Origin, Refusal};

/// The append that ends run `n` of the line of run 1 and creates the next one.
fn continuing(n: u64, epoch: Epoch, seq: u64) -> Append {
    let mut next = new_run(n + 1);
    next.header.origin = Some(Origin::Continued(id(1)));
    next.rest.push(frame(n + 1, 1, 30));
    let newest = Newest {
        run: id(n + 1),
        ordinal: n,
    };
    let changes = Changes {
        create: vec![next],
        post: Vec::new(),
        notes: vec![NoteChange {
            key: Newest::key(id(1)),
            value: Some(newest.encode()),
        }],
    };
    Append {
        changes: Some(Box::new(changes)),
        ..ending(n, epoch, seq, EndKind::Continued)
    }
}

/// The letters to run 1 of these numbers, as they wait when they were numbered anew.
fn forwarded(numbers: impl IntoIterator<Item = u64>) -> Vec<Mail> {
    let letters = numbers.into_iter().map(|number| letter(1, number).body);
    let mail = (0..)
        .zip(letters)
        .map(|(number, body)| Mail { number, body });
    mail.collect()
}

async fn waiting(store: &dyn Store, n: u64) -> Vec<Mail> {
    store.mail(id(n), 0).await.expect("readable")
}

/// The letters that wait for a run go to the one that continues it: those that were not taken, in their order,
/// numbered from 0. After a restart they are still there, and once.
pub async fn waiting_letters_go_with_the_line(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    post(&*store, 1, 0..4).await;
    let mut last = continuing(1, epoch, 1);
    last.taken = 1;
    store.append(last).await.expect("ended");
    for again in [false, true, true] {
        if again {
            let Some(reopened) = harness.again(store).await else {
                return;
            };
            store = reopened;
            store.check().await.expect("sound");
        }
        assert_eq!(waiting(&*store, 1).await, Vec::new());
        assert_eq!(waiting(&*store, 2).await, forwarded(1..4));
        let gone_on = RunState::Ended(end(EndKind::Continued));
        assert_eq!(state(&*store, 1).await, gone_on);
    }
    let claim = store.claim(id(2), 0).await.expect("claimed");
    let claim = claim.expect("there");
    assert_eq!(claim.mail, forwarded(1..4));
    assert_eq!((claim.next_letter, claim.frames.len()), (3, 2));
}

/// Letters to others that are committed together with the append with which a run goes on stay theirs.
pub async fn letters_to_others_do_not_go_with_the_line(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let mut epoch = create(&*store, 1).await;
    create(&*store, 900).await;
    for n in 1..=20 {
        let last = continuing(n, epoch, if n == 1 { 1 } else { 2 });
        // The first is written alone while the others queue up, so that these are one group.
        let (alone, together, ended) = tokio::join!(
            store.commit(posting(vec![letter(900, 2 * n)])),
            store.commit(posting(vec![letter(900, 2 * n + 1)])),
            store.append(last),
        );
        for posted in [alone, together] {
            assert_eq!(posted.expect("an answer"), Committed::Done);
        }
        ended.expect("continued");
        assert_eq!(waiting(&*store, n + 1).await, Vec::new());
        epoch = Epoch::FIRST;
    }
    assert_eq!(waiting(&*store, 900).await.len(), 40);
}

/// A letter to any run of a line goes to the newest, in a commit and in an append, also if that sleeps; once the
/// line has ended it is refused or dropped like any other.
pub async fn a_letter_to_a_run_that_went_on_reaches_the_newest(harness: &dyn Harness) {
    let mut store = harness.fresh().await;
    let first = create(&*store, 1).await;
    let other = create(&*store, 9).await;
    store
        .append(continuing(1, first, 1))
        .await
        .expect("continued");
    post(&*store, 1, 0..1).await;
    assert_eq!(waiting(&*store, 2).await, forwarded(0..1));
    let second = continuing(2, Epoch::FIRST, 2);
    store.append(second).await.expect("continued");
    assert_eq!(waiting(&*store, 3).await, forwarded(0..1));
    let claim = store.claim(id(3), 0).await.expect("claimed");
    let mut taking = append(3, claim.expect("there").epoch, 2, vec![frame(3, 2, 9)]);
    taking.taken = 1;
    store.append(taking.clone()).await.expect("taken");
    let released = store.put_to_sleep(id(3), taking.epoch, None).await;
    released.expect("it sleeps");
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    post(&*store, 1, 1..2).await;
    let mut telling = append(9, other, 1, vec![frame(9, 1, 9)]);
    let to_second = Letter {
        to: id(2),
        ..letter(1, 2)
    };
    telling.changes = Some(Box::new(Changes {
        post: vec![to_second],
        ..Changes::default()
    }));
    store.append(telling).await.expect("told");
    if let Some(reopened) = harness.again(store).await {
        store = reopened;
        store.check().await.expect("sound");
    } else {
        return;
    }
    let claim = store.claim(id(3), 0).await.expect("claimed");
    let claim = claim.expect("there");
    let bodies: Vec<_> = claim.mail.iter().map(|mail| mail.body.clone()).collect();
    assert_eq!(bodies, [letter(1, 1).body, letter(1, 2).body]);
    let last = ending(3, claim.epoch, 3, EndKind::Completed);
    store.append(last).await.expect("ended");
    for n in 1..=3 {
        let late = posting(vec![Letter {
            to: id(n),
            ..letter(1, 5)
        }]);
        let refused = store.commit(late).await.expect("an answer");
        assert_eq!(refused, Committed::Refused(Refusal::Ended(id(n))));
        assert_eq!(waiting(&*store, n).await, Vec::new());
    }
}

/// Letters that are on their way while a run goes on as a new one all arrive, in the order of the calls.
pub async fn no_letter_is_lost_while_a_run_goes_on(harness: &dyn Harness) {
    const LETTERS: u64 = 60;
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    post(&*store, 1, 0..3).await;
    let mut posted = Vec::new();
    let mut ended = None;
    for number in 3..LETTERS {
        if number == LETTERS / 2 {
            let mut last = continuing(1, epoch, 1);
            last.taken = 2;
            ended = Some(store.append(last));
        }
        posted.push(store.commit(posting(vec![letter(1, number)])));
    }
    for answer in posted {
        assert_eq!(answer.await.expect("an answer"), Committed::Done);
    }
    ended.expect("it was asked for").await.expect("continued");
    assert_eq!(waiting(&*store, 2).await, forwarded(2..LETTERS));
    assert_eq!(waiting(&*store, 1).await, Vec::new());
}

/// A run that ends as one that went on, without a note that says where, is an ended run like any other.
pub async fn a_line_that_leads_nowhere_takes_no_letters(harness: &dyn Harness) {
    let store = harness.fresh().await;
    let epoch = create(&*store, 1).await;
    post(&*store, 1, 0..2).await;
    assert_eq!(waiting(&*store, 1).await, mail(1, 0..2));
    let last = ending(1, epoch, 1, EndKind::Continued);
    store.append(last).await.expect("ended");
    assert_eq!(waiting(&*store, 1).await, Vec::new());
    let refused = store.commit(posting(vec![letter(1, 2)])).await;
    let refusal = Refusal::Ended(id(1));
    assert_eq!(refused.expect("an answer"), Committed::Refused(refusal));
}
