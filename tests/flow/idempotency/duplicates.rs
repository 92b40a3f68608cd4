//! Duplicates on record: counted, with time, origin, and whether they asked for the same.

use workflow_runtime::store::NoteKey;
use workflow_runtime::store::memory::Surviving;
use workflow_runtime::{
    Duplicate, DuplicateBody, DuplicateKind, Duplicates, OnConflict, Retention, Sent,
};

use super::*;

fn bodies(duplicates: &Duplicates) -> Vec<DuplicateBody> {
    duplicates.recent().map(|seen| seen.body).collect()
}

#[tokio::test]
async fn every_suppressed_start_is_on_record_with_time_origin_and_body() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    let before = std::time::SystemTime::now().into();
    let run = engine.start(pay(1)).key("k").await.expect("starts");
    assert_eq!(
        run.duplicates().await.expect("reads"),
        Duplicates::default()
    );
    engine.start(pay(1)).key("k").await.expect("is found");
    let line = line!() - 1;
    engine.start(pay(2)).key("k").await.expect_err("conflicts");
    let start = engine.start(pay(2)).key("k").origin("the api");
    let existing = start.on_conflict(OnConflict::ReturnExisting).await;
    existing.expect("is given the first");

    let seen = run.duplicates().await.expect("reads");
    assert_eq!((seen.total(), seen.count(DuplicateKind::Start)), (3, 3));
    use DuplicateBody::{Other, Same};
    assert_eq!(bodies(&seen), [Same, Other, Other]);
    let all: Vec<&Duplicate> = seen.recent().collect();
    let here = format!("tests/flow/idempotency/duplicates.rs:{line}");
    assert!(all[0].origin.ends_with(&here[6..]), "{}", all[0].origin);
    assert_eq!(&*all[2].origin, "the api");
    assert!(all.is_sorted_by_key(|seen| seen.at));
    assert!(all.iter().all(|seen| seen.at >= before));
    assert_eq!(engine.duplicates_seen(DuplicateKind::Start), 3);
    assert_eq!(engine.duplicates_seen(DuplicateKind::Signal), 0);
}

#[tokio::test]
async fn a_replacement_is_no_duplicate() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    let old = engine.start(pay(1)).key("k").await.expect("starts");
    old.result().await.expect("ends well");
    let start = engine.start(pay(2)).key("k");
    let new = start
        .on_conflict(OnConflict::Replace)
        .await
        .expect("starts");
    for run in [old, new] {
        assert_eq!(run.duplicates().await.expect("reads").total(), 0);
    }
}

#[tokio::test]
async fn a_signal_that_is_sent_twice_is_on_record() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    let run = engine.start(held(1)).key("k").await.expect("starts");
    let send = |value: u32| run.signal("number", &value).key("first");
    assert_eq!(send(1).await.expect("sends"), Sent::Accepted);
    for value in [1, 2] {
        let sent = send(value).origin("a webhook").await.expect("sends");
        assert_eq!(sent, Sent::Duplicate);
    }
    run.signal("number", &1_u32).await.expect("has no key");
    let seen = run.duplicates().await.expect("reads");
    assert_eq!(seen.count(DuplicateKind::Signal), 2);
    assert_eq!(seen.total(), 2);
    assert_eq!(bodies(&seen), [DuplicateBody::Same, DuplicateBody::Other]);
    assert!(seen.recent().all(|seen| &*seen.origin == "a webhook"));
    assert_eq!(engine.duplicates_seen(DuplicateKind::Signal), 2);
}

#[tokio::test]
async fn a_signals_key_that_is_too_long_is_refused_with_the_way_out() {
    let engine = engine(&Ledger::shared()).open_in_memory().await;
    let engine = engine.expect("opens");
    let run = engine.start(held(1)).await.expect("starts");
    let refused = run.signal("number", &1).key("k".repeat(1024)).await;
    let problem = refused.expect_err("does not fit").to_string();
    assert!(
        problem.contains("`number`") && problem.contains("Key::hash"),
        "{problem}"
    );
    run.signal("number", &1)
        .key("k".repeat(700))
        .await
        .expect("fits");
}

#[tokio::test]
async fn sixteen_are_kept_and_all_are_counted_over_a_restart() {
    let ledger = Ledger::shared();
    let mut store = MemoryStore::new();
    let mut count = 0;
    for process in 0..3 {
        let engine = engine(&ledger).open_with(store.clone()).await;
        let engine = engine.expect("opens");
        let run = engine.start(pay(1)).key("k").await.expect("starts");
        run.result().await.expect("ends well");
        count += u64::from(process > 0);
        for n in 0..20 {
            let start = engine.start(pay(1)).key("k");
            let start = start.origin(&format!("{process}/{n}"));
            start.await.expect("is found");
            count += 1;
            if n == 10 {
                // As far as it is known, whether it is written or not.
                let seen = run.duplicates().await.expect("reads");
                assert_eq!(seen.total(), count);
            }
        }
        let seen = engine.duplicates(run.id()).await.expect("reads");
        assert_eq!(seen.total(), count);
        let kept: Vec<_> = seen.recent().map(|seen| seen.origin.to_string()).collect();
        let newest: Vec<_> = (4..20).map(|n| format!("{process}/{n}")).collect();
        assert_eq!(kept, newest);
        engine.shutdown().await.expect("stops");
        store = store.reopen(Surviving::Synced);
    }
}

#[tokio::test]
async fn what_was_seen_is_written_within_a_moment_and_survives_a_crash() {
    let ledger = Ledger::shared();
    let store = MemoryStore::new();
    let first = engine(&ledger).open_with(store.clone()).await;
    let first = first.expect("opens");
    let run = first.start(pay(1)).key("k").await.expect("starts");
    run.result().await.expect("ends well");
    first.start(pay(1)).key("k").await.expect("is found");
    let note = NoteKey::of_run(run.id(), &[b"duplicates"]);
    until("it is written", async || {
        store.note(note.clone()).await.expect("reads").is_some()
    })
    .await;
    store.crash();
    let store = store.reopen(Surviving::Synced);
    let second = engine(&ledger).open_with(store).await.expect("opens");
    let seen = second.duplicates(run.id()).await.expect("reads");
    assert_eq!(seen.total(), 1);
}

#[tokio::test]
async fn a_thousand_duplicates_cost_a_write_a_second_at_most() {
    let store = MemoryStore::new();
    let engine = engine(&Ledger::shared()).open_with(store.clone()).await;
    let engine = engine.expect("opens");
    let run = engine.start(pay(1)).key("k").await.expect("starts");
    run.result().await.expect("ends well");
    let (before, began) = (store.writes(), std::time::Instant::now());
    for _ in 0..1000 {
        engine.start(pay(1)).key("k").await.expect("is found");
    }
    let most = 1 + began.elapsed().as_secs();
    assert!(store.writes() - before <= most, "{}", store.writes());
    assert_eq!(run.duplicates().await.expect("reads").total(), 1000);
}

#[tokio::test]
async fn nothing_is_left_of_the_duplicates_of_a_deleted_run() {
    let store = MemoryStore::new();
    let builder = engine(&Ledger::shared())
        .retention(Retention::of(Duration::ZERO))
        .key_ttl(Duration::ZERO);
    let engine = builder.open_with(store.clone()).await.expect("opens");
    let start = || engine.start(held(1)).key("k");
    let run = start().await.expect("starts");
    start().await.expect("is found");
    run.signal("go on", &()).await.expect("sends");
    run.result().await.expect("ends well");
    assert_eq!(engine.sweep().await.expect("sweeps"), 1);
    let id = run.id();
    assert!(engine.duplicates(id).await.is_err(), "there is no such run");
    engine.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::Synced);
    let notes = store.notes(NoteKey::of_run(id, &[]), None, 10).await;
    assert!(notes.expect("reads").is_empty());
}
