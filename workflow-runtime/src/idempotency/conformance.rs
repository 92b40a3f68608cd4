//! The contract of [`KeyStore`] as a suite that any implementation can run.
//!
//! Owns one function per rule; each makes its own fresh keys and panics when the rule is broken. Never looks behind the
//! trait. The macro [`key_store_conformance!`](crate::key_store_conformance) makes a `#[tokio::test]` of
//! each. Times are short and waits generous, so that a busy machine passes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Completion, Done, EntryState, KeyId, KeyStore, OwnerId, Reservation, Reserve, Ticket};
use crate::digest::Digest;
use crate::key::Key;
use crate::store::BoxFuture;

/// Makes keys for the suite.
pub trait Harness: Send + Sync {
    /// Makes keys in an empty place of their own.
    fn fresh(&self) -> BoxFuture<'_, Arc<dyn KeyStore>>;

    /// Opens the place of the keys that [`Self::fresh`] made last once more, after `old`, their last handle, was let go
    /// of. `None` if the place forgets.
    fn again(&self, old: Arc<dyn KeyStore>) -> BoxFuture<'_, Option<Arc<dyn KeyStore>>>;
}

/// Hands the names of all rules to another macro: the one list of them.
#[doc(hidden)]
#[macro_export]
macro_rules! __key_store_rules {
    ($callback:path { $($argument:tt)* }) => {
        $callback! {
            { $($argument)* }
            a_free_key_is_reserved_and_then_in_flight
            a_completed_key_answers_with_its_outcome
            another_body_is_refused_in_flight_and_done
            a_released_key_is_free_for_any_body
            an_abandoned_key_is_free_soon
            an_owner_that_asks_again_has_its_claim
            a_claim_that_is_not_extended_is_taken_over
            an_extended_claim_is_not_taken_over
            a_late_owner_is_refused_and_changes_nothing
            an_owner_whose_lease_ended_may_complete_if_nobody_has_the_key
            the_time_of_an_outcome_runs_from_its_completion
            an_expired_key_is_free_and_can_be_done_again
            outcomes_of_every_size_come_back
            keys_do_not_mix
            of_racing_callers_one_has_the_key
            looking_up_tells_how_a_key_stands
            who_waits_for_a_key_is_told
            outcomes_survive_restarts
        }
    };
}

/// Makes one `#[tokio::test]` of every rule, for a harness expression.
///
/// ```ignore
/// workflow_runtime::key_store_conformance!(MyHarness::default());
/// ```
#[macro_export]
macro_rules! key_store_conformance {
    ($harness:expr) => {
        $crate::__key_store_rules! { $crate::__key_store_tests { $harness } }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __key_store_tests {
    ({ $harness:expr } $($rule:ident)*) => {
        $(
            #[tokio::test]
            async fn $rule() {
                $crate::idempotency::conformance::$rule(&$harness).await;
            }
        )*
    };
}

/// A lease that does not end within a test.
const LONG: Duration = Duration::from_secs(600);

/// A lease, or a time to live, that does.
const SHORT: Duration = Duration::from_millis(150);

const BODY: Digest = Digest::from_bytes([1; 16]);
const OTHER: Digest = Digest::from_bytes([2; 16]);

fn key(n: u64) -> KeyId {
    KeyId::derive("conformance", "", &Key::from(n))
}

fn asking(n: u64, lease: Duration) -> Reserve {
    Reserve {
        key: key(n),
        body: BODY,
        owner: OwnerId::next(),
        lease,
    }
}

async fn reserve(keys: &dyn KeyStore, request: Reserve) -> Reservation {
    keys.reserve(request).await.expect("an answer")
}

async fn take(keys: &dyn KeyStore, n: u64, lease: Duration) -> Ticket {
    match reserve(keys, asking(n, lease)).await {
        Reservation::New(ticket) => ticket,
        other => panic!("the key is not free: {other:?}"),
    }
}

async fn done(keys: &dyn KeyStore, n: u64) -> Done {
    match reserve(keys, asking(n, LONG)).await {
        Reservation::Done(done) => done,
        other => panic!("there is no outcome: {other:?}"),
    }
}

async fn complete(
    keys: &dyn KeyStore,
    ticket: &Ticket,
    outcome: &[u8],
    ttl: Duration,
) -> Completion {
    let outcome = Bytes::copy_from_slice(outcome);
    keys.complete(ticket, outcome, ttl)
        .await
        .expect("an answer")
}

/// Asks until a key is free, and takes it.
async fn take_when_free(keys: &dyn KeyStore, n: u64) -> Ticket {
    for _ in 0..1_000 {
        if let Reservation::New(ticket) = reserve(keys, asking(n, LONG)).await {
            return ticket;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the key is never free");
}

/// A free key is given to who asks first; the others hear since when it is in flight.
pub async fn a_free_key_is_reserved_and_then_in_flight(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let ticket = take(&*keys, 1, LONG).await;
    assert_eq!(ticket.key, key(1));
    assert!(ticket.until.since(ticket.since) >= LONG);
    match reserve(&*keys, asking(1, LONG)).await {
        Reservation::InFlight(busy) => {
            assert_eq!((busy.since, busy.until), (ticket.since, ticket.until));
        }
        other => panic!("{other:?}"),
    }
}

/// A completed key answers with its outcome, to everybody, again and again.
pub async fn a_completed_key_answers_with_its_outcome(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let ticket = take(&*keys, 1, LONG).await;
    let completion = complete(&*keys, &ticket, b"paid", LONG).await;
    assert_eq!(completion, Completion::Recorded);
    for _ in 0..3 {
        let done = done(&*keys, 1).await;
        assert_eq!(done.outcome, "paid");
        assert_eq!(done.expires_at.since(done.completed_at), LONG);
        assert!(done.completed_at >= ticket.since);
    }
}

/// Another body is refused, while the key is in flight and when it is done, with the first one's digest.
pub async fn another_body_is_refused_in_flight_and_done(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let ticket = take(&*keys, 1, LONG).await;
    for is_done in [false, true] {
        if is_done {
            complete(&*keys, &ticket, b"", LONG).await;
        }
        let other = Reserve {
            body: OTHER,
            ..asking(1, LONG)
        };
        let expected = Reservation::OtherBody {
            first: BODY,
            since: ticket.since,
        };
        assert_eq!(reserve(&*keys, other).await, expected, "done: {is_done}");
    }
}

/// A released key is free, for another body too.
pub async fn a_released_key_is_free_for_any_body(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let first = take(&*keys, 1, LONG).await;
    keys.release(&first).await.expect("an answer");
    let other = Reserve {
        body: OTHER,
        ..asking(1, LONG)
    };
    let Reservation::New(second) = reserve(&*keys, other).await else {
        panic!("it is not free");
    };
    assert!(
        second.fence > first.fence,
        "later claims have higher numbers"
    );
}

/// An abandoned key is free without anybody waiting for it.
pub async fn an_abandoned_key_is_free_soon(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let first = take(&*keys, 1, LONG).await;
    keys.abandon(first);
    let second = take_when_free(&*keys, 1).await;
    assert!(second.fence > first.fence);
}

/// An owner whose answer was lost asks again and has its claim, not somebody else's.
pub async fn an_owner_that_asks_again_has_its_claim(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let request = asking(1, LONG);
    let Reservation::New(first) = reserve(&*keys, request).await else {
        panic!("it is not free");
    };
    let Reservation::New(again) = reserve(&*keys, request).await else {
        panic!("its own claim is refused");
    };
    assert_eq!(again.fence, first.fence);
    let completion = complete(&*keys, &again, b"1", LONG).await;
    assert_eq!(completion, Completion::Recorded);
}

/// A claim without signs of life ends with its lease.
pub async fn a_claim_that_is_not_extended_is_taken_over(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let first = take(&*keys, 1, SHORT).await;
    let second = take_when_free(&*keys, 1).await;
    assert!(second.fence > first.fence);
    assert!(second.since >= first.until, "not before the lease ended");
}

/// A claim whose owner lives is nobody else's.
pub async fn an_extended_claim_is_not_taken_over(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let ticket = take(&*keys, 1, Duration::from_secs(5)).await;
    assert!(keys.extend(&ticket, LONG).await.expect("an answer"));
    match reserve(&*keys, asking(1, LONG)).await {
        Reservation::InFlight(busy) => assert!(busy.until > ticket.until),
        other => panic!("{other:?}"),
    }
    let completion = complete(&*keys, &ticket, b"1", LONG).await;
    assert_eq!(completion, Completion::Recorded);
}

/// An owner whose key was taken over neither completes, nor extends, nor frees it.
pub async fn a_late_owner_is_refused_and_changes_nothing(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let late = take(&*keys, 1, SHORT).await;
    let owner = take_when_free(&*keys, 1).await;
    for is_done in [false, true] {
        if is_done {
            complete(&*keys, &owner, b"second", LONG).await;
        }
        assert_eq!(
            complete(&*keys, &late, b"first", LONG).await,
            Completion::Refused
        );
        assert!(!keys.extend(&late, LONG).await.expect("an answer"));
        keys.release(&late).await.expect("an answer");
        keys.abandon(late);
        tokio::time::sleep(Duration::from_millis(20)).await;
        match reserve(&*keys, asking(1, LONG)).await {
            Reservation::InFlight(_) => assert!(!is_done),
            Reservation::Done(done) => assert_eq!(done.outcome, "second"),
            other => panic!("done: {is_done}: {other:?}"),
        }
    }
}

/// An owner whose lease ended either completes, if nobody has the key, or is told that it cannot: then it may
/// ask for the key again.
pub async fn an_owner_whose_lease_ended_may_complete_if_nobody_has_the_key(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let late = take(&*keys, 1, SHORT).await;
    tokio::time::sleep(2 * SHORT).await;
    if complete(&*keys, &late, b"1", LONG).await == Completion::Refused {
        let again = take(&*keys, 1, LONG).await;
        let completion = complete(&*keys, &again, b"1", LONG).await;
        assert_eq!(completion, Completion::Recorded);
    }
    assert_eq!(done(&*keys, 1).await.outcome, "1");
}

/// The time to live runs from the completion, however long the work took.
pub async fn the_time_of_an_outcome_runs_from_its_completion(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let ticket = take(&*keys, 1, LONG).await;
    tokio::time::sleep(2 * SHORT).await;
    complete(&*keys, &ticket, b"1", Duration::from_secs(5)).await;
    let done = done(&*keys, 1).await;
    assert!(done.completed_at.since(ticket.since) >= SHORT);
    assert_eq!(
        done.expires_at.since(done.completed_at),
        Duration::from_secs(5)
    );
}

/// An expired outcome is given to nobody; the key is free for another body, and its next outcome is its own.
pub async fn an_expired_key_is_free_and_can_be_done_again(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let first = take(&*keys, 1, LONG).await;
    complete(&*keys, &first, &vec![1; 300_000], SHORT).await;
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(keys.look_up(key(1)).await.expect("an answer"), None);
    let other = Reserve {
        body: OTHER,
        ..asking(1, LONG)
    };
    let Reservation::New(second) = reserve(&*keys, other).await else {
        panic!("it is not free");
    };
    assert!(second.fence > first.fence);
    assert_eq!(
        complete(&*keys, &first, b"late", LONG).await,
        Completion::Refused
    );
    complete(&*keys, &second, b"again", LONG).await;
    let Reservation::Done(done) = reserve(&*keys, other).await else {
        panic!("it is not done");
    };
    assert_eq!(done.outcome, "again");
}

/// Outcomes of every size, and of all bytes, come back.
pub async fn outcomes_of_every_size_come_back(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let sizes = [0, 1, 255, 4_000, 131_072, 131_073, 1_000_000, 3_000_000];
    let outcome = |n: u64, size: usize| -> Vec<u8> {
        let mut bytes = vec![0; size];
        blake3::Hasher::new()
            .update(&n.to_le_bytes())
            .finalize_xof()
            .fill(&mut bytes);
        bytes
    };
    for (n, size) in (0..).zip(sizes) {
        let ticket = take(&*keys, n, LONG).await;
        let completion = complete(&*keys, &ticket, &outcome(n, size), LONG).await;
        assert_eq!(completion, Completion::Recorded);
    }
    for (n, size) in (0..).zip(sizes) {
        assert!(done(&*keys, n).await.outcome == outcome(n, size), "{size}");
    }
}

/// What happens to one key happens to no other.
pub async fn keys_do_not_mix(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    let tickets = [take(&*keys, 0, LONG).await, take(&*keys, 1, LONG).await];
    keys.release(&tickets[0]).await.expect("an answer");
    complete(&*keys, &tickets[1], b"one", LONG).await;
    take(&*keys, 0, LONG).await;
    take(&*keys, 2, LONG).await;
    assert_eq!(done(&*keys, 1).await.outcome, "one");
    let swapped = Ticket {
        key: key(2),
        ..tickets[0]
    };
    assert_eq!(
        complete(&*keys, &swapped, b"x", LONG).await,
        Completion::Refused
    );
}

/// Of many that ask at once one has the key.
pub async fn of_racing_callers_one_has_the_key(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    for n in 0..20 {
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let keys = keys.clone();
                tokio::spawn(async move { reserve(&*keys, asking(n, LONG)).await })
            })
            .collect();
        let mut winners = 0;
        for task in tasks {
            match task.await.expect("no panic") {
                Reservation::New(_) => winners += 1,
                Reservation::InFlight(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(winners, 1);
    }
}

/// A look tells how a key stands and changes nothing.
pub async fn looking_up_tells_how_a_key_stands(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    assert_eq!(keys.look_up(key(1)).await.expect("an answer"), None);
    let ticket = take(&*keys, 1, LONG).await;
    let entry = keys.look_up(key(1)).await.expect("an answer");
    let entry = entry.expect("it is in flight");
    assert_eq!(entry.body, BODY);
    match entry.state {
        EntryState::InFlight(busy) => assert_eq!(busy.since, ticket.since),
        other @ EntryState::Done(_) => panic!("{other:?}"),
    }
    complete(&*keys, &ticket, b"1", LONG).await;
    let entry = keys.look_up(key(1)).await.expect("an answer");
    let entry = entry.expect("it is done");
    assert_eq!(entry.body, BODY);
    assert_eq!(entry.state, EntryState::Done(done(&*keys, 1).await));
}

/// Who waits for a key is told when it is completed or released, long before its patience ends.
pub async fn who_waits_for_a_key_is_told(harness: &dyn Harness) {
    let keys = harness.fresh().await;
    for n in 0..2 {
        let ticket = take(&*keys, n, LONG).await;
        let waiting = tokio::spawn({
            let keys = keys.clone();
            async move {
                while let Reservation::InFlight(_) = reserve(&*keys, asking(n, LONG)).await {
                    keys.changed(key(n), LONG).await;
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
        match n {
            0 => keys.release(&ticket).await.expect("an answer"),
            _ => drop(complete(&*keys, &ticket, b"1", LONG).await),
        }
        let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        told.expect("it is told").expect("no panic");
    }
    tokio::time::timeout(Duration::from_secs(60), keys.changed(key(9), LONG))
        .await
        .expect("nobody waits for a key that is free");
}

/// Recorded outcomes survive restarts, where the place does; claims need not.
pub async fn outcomes_survive_restarts(harness: &dyn Harness) {
    let mut keys = harness.fresh().await;
    for n in 0..3 {
        let ticket = take(&*keys, n, LONG).await;
        complete(&*keys, &ticket, &vec![7; 200_000 * n as usize], LONG).await;
        let Some(again) = harness.again(keys).await else {
            return;
        };
        keys = again;
        for n in 0..=n {
            assert_eq!(done(&*keys, n).await.outcome, vec![7; 200_000 * n as usize]);
        }
        take(&*keys, n + 1_000, LONG).await;
    }
}
