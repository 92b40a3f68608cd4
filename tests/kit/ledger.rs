//! `Ledger`: an outside world that tells on duplicates.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use workflow_runtime::testing::{Answer, Ledger, LedgerError, TestEngine};
use workflow_runtime::{Result, get_step_metadata, step, workflow};

/// What a test fails with.
fn failure(assertion: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(assertion)).expect_err("it must fail");
    *panic.downcast::<String>().expect("a text")
}

#[test]
fn a_key_that_is_honoured_acts_once_and_gets_its_first_answer_again() {
    let ledger = Ledger::honouring_keys();
    let first = ledger.post("k", "charged").unwrap();
    let other = ledger.post("other", "mailed").unwrap();
    let again = ledger.post("k", "charged").unwrap();
    assert_eq!((first.receipt, first.is_new), (1, true));
    assert_eq!((other.receipt, other.is_new), (2, true));
    assert_eq!((again.receipt, again.is_new), (1, false));
    assert_eq!(ledger.entries(), ["charged", "mailed"]);
    assert_eq!(ledger.calls().len(), 3);
    assert!(ledger.duplicates().is_empty() && ledger.conflicts().is_empty());
    ledger.assert_each_once();
    ledger.assert_entries(["mailed", "charged"]);
}

#[test]
fn a_key_that_is_ignored_acts_every_time_and_is_told() {
    let ledger = Ledger::ignoring_keys();
    assert!(ledger.post("k", "charged").unwrap().is_new);
    assert!(ledger.post("k", "charged").unwrap().is_new);
    ledger.post_without_key("mailed").unwrap();
    let duplicates = ledger.duplicates();
    assert_eq!(duplicates.len(), 1);
    assert_eq!(duplicates[0].entry, "charged");
    assert_eq!(duplicates[0].calls.len(), 2);
    insta::assert_snapshot!(failure(|| ledger.assert_each_once()));
}

#[test]
fn two_keys_for_one_thing_and_no_key_at_all_are_told() {
    let ledger = Ledger::honouring_keys();
    ledger.post("a1b2", "charged").unwrap();
    ledger.post("c3d4", "charged").unwrap();
    ledger.post_without_key("mailed").unwrap();
    ledger.post_without_key("mailed").unwrap();
    insta::assert_snapshot!(failure(|| ledger.assert_each_once()));
}

#[test]
fn one_key_for_two_things_is_refused_and_told() {
    let ledger = Ledger::honouring_keys();
    ledger.post("k", ("charge", 500)).unwrap();
    let refused = ledger.post("k", ("charge", 700)).unwrap_err();
    assert!(matches!(refused, LedgerError::OtherEntry { .. }));
    assert_eq!(
        refused.to_string(),
        r#"the key k was used for ["charge", 500] before, and now for ["charge", 700]: a key is for one thing"#
    );
    ledger.assert_entries([("charge", 500)]);
    insta::assert_snapshot!(failure(|| ledger.assert_each_once()));
    let careless = Ledger::ignoring_keys();
    careless.post("k", "charged").unwrap();
    careless.post("k", "mailed").unwrap();
    assert_eq!(careless.conflicts().len(), 1);
}

#[test]
fn a_failing_call_does_nothing_and_a_lost_answer_hides_that_it_was_done() {
    let ledger = Ledger::honouring_keys();
    ledger.fail_next(1);
    ledger.lose_answers(2);
    assert_eq!(ledger.post("k", "charged"), Err(LedgerError::Failed));
    assert!(ledger.entries().is_empty());
    assert_eq!(ledger.post("k", "charged"), Err(LedgerError::AnswerLost));
    assert_eq!(ledger.entries(), ["charged"]);
    assert_eq!(ledger.post("k", "charged"), Err(LedgerError::AnswerLost));
    let known = ledger.post("k", "charged").unwrap();
    assert_eq!((known.receipt, known.is_new), (1, false));
    let answers: Vec<_> = ledger.calls().iter().map(|call| call.answer).collect();
    assert_eq!(
        answers,
        [
            Answer::Failed,
            Answer::DoneAnswerLost,
            Answer::KnownAnswerLost,
            Answer::Known
        ]
    );
    ledger.assert_each_once();
}

#[derive(Serialize)]
struct Mail<'a> {
    to: &'a str,
    lines: u32,
}

#[test]
fn entries_that_were_not_expected_are_told_with_every_call() {
    let ledger = Ledger::ignoring_keys();
    ledger
        .post(
            "m1",
            Mail {
                to: "ada",
                lines: 2,
            },
        )
        .unwrap();
    ledger
        .post(
            "m1",
            Mail {
                to: "ada",
                lines: 2,
            },
        )
        .unwrap();
    ledger.fail_next(1);
    let _ = ledger.post(
        "m2",
        Mail {
            to: "bob",
            lines: 3,
        },
    );
    let expected = [
        Mail {
            to: "ada",
            lines: 2,
        },
        Mail {
            to: "bob",
            lines: 3,
        },
    ];
    insta::assert_snapshot!(failure(|| ledger.assert_entries(expected)));
}

#[step(backoff = "1h..1h")]
async fn charge(#[resource] ledger: &Ledger) -> Result<u64> {
    Ok(ledger.post(get_step_metadata().step_id, "charged")?.receipt)
}

#[workflow]
async fn charging() -> Result<u64> {
    charge().await
}

#[tokio::test]
async fn a_call_of_a_step_is_dated_by_the_engines_clock_and_names_the_attempt() {
    let ledger = Ledger::honouring_keys();
    ledger.lose_answers(1);
    let engine = TestEngine::builder()
        .register::<charging>()
        .resource(ledger.clone())
        .open()
        .await
        .unwrap();
    let run = engine.start(charging()).key("order").await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1);
    let calls = ledger.calls();
    let steps: Vec<_> = calls
        .iter()
        .map(|call| call.step.as_ref().unwrap())
        .collect();
    assert_eq!(steps[0].step_id, steps[1].step_id);
    assert_eq!((steps[0].attempt, steps[1].attempt), (1, 2));
    assert_eq!(steps[0].run_id, run.id());
    let waited = calls[1].at.unwrap().since(calls[0].at.unwrap());
    assert!(waited.as_secs() >= 1, "{waited:?}");
    insta::assert_snapshot!(ledger.calls()[0]);
}
