//! Step control: what stands in for a body goes through the real retries, timeouts and journal.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use workflow_runtime::journal::{Event, Journal};
use workflow_runtime::testing::{TestEngine, TestEngineBuilder};
use workflow_runtime::{Error, Result, get_step_metadata, step, workflow};

use super::{failing_text, stays_silent};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) customer: String,
    pub(crate) cents: u64,
}

/// Stands for what a test does not have.
pub(crate) struct Payments;

#[step(max_attempts = 4, backoff = "1s..2s", timeout = "10s")]
pub(crate) async fn charge(
    #[resource] _payments: &Payments,
    customer: &str,
    cents: u64,
) -> Result<Receipt> {
    Ok(Receipt {
        customer: format!("{customer}, for real"),
        cents,
    })
}

#[step]
pub(crate) async fn lookup(customer: &str) -> Result<u64> {
    Ok(customer.len() as u64 * 100)
}

#[workflow]
pub(crate) async fn checkout(customer: String) -> Result<Receipt> {
    let cents = lookup(&customer).await?;
    charge(&customer, cents).await
}

pub(crate) fn receipt(customer: &str, cents: u64) -> Receipt {
    Receipt {
        customer: customer.into(),
        cents,
    }
}

fn shop() -> TestEngineBuilder {
    TestEngine::builder().register::<checkout>()
}

fn stubbed() -> TestEngineBuilder {
    shop().stub::<charge>(|(customer, cents)| Ok(Receipt { customer, cents }))
}

/// Runs one checkout to its end.
async fn ada(engine: &TestEngine) -> Result<Receipt, String> {
    let run = engine.start(checkout("ada".into())).await.unwrap();
    run.result().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_stub_answers_with_the_arguments_of_the_call_and_needs_no_resource() {
    let engine = stubbed().open().await.unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
    let calls = engine.calls::<charge>();
    calls.assert_inputs([("ada".to_owned(), 300)]);
    assert_eq!(calls.inputs(), [("ada".to_owned(), 300)]);
    assert!(calls.assert_called_once().is_stubbed());
    let looked_up = engine.calls::<lookup>();
    looked_up.assert_inputs(["ada".to_owned()]);
    assert!(!looked_up[0].is_stubbed());
}

/// The journal without what differs between runs of one seed: nothing.
fn story(journal: &Journal) -> String {
    let events = journal.records().iter().map(|record| format!("{record:?}"));
    events.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_journal_of_a_stubbed_run_is_that_of_a_real_one() {
    let real = shop().resource(Payments).open().await.unwrap();
    let stubbed = shop()
        .stub::<charge>(|(customer, cents)| {
            Ok(Receipt {
                customer: format!("{customer}, for real"),
                cents,
            })
        })
        .open()
        .await
        .unwrap();
    let mut stories = Vec::new();
    for engine in [real, stubbed] {
        let run = engine.start(checkout("ada".into())).key("one").await;
        let run = run.unwrap();
        run.result().await.unwrap();
        stories.push(story(&engine.journal(run.id()).await.unwrap()));
    }
    assert_eq!(stories[0], stories[1]);
}

#[tokio::test]
async fn a_stub_knows_which_step_it_stands_for() {
    let engine = shop()
        .stub::<charge>(|_| {
            let meta = get_step_metadata();
            assert_eq!((meta.step_name, meta.attempt), ("charge", 1));
            Ok(receipt(&meta.step_id.to_string(), 0))
        })
        .open()
        .await
        .unwrap();
    let receipt = ada(&engine).await.unwrap();
    let calls = engine.calls::<charge>();
    let call = calls.assert_called_once();
    assert_eq!(receipt.customer, call.step_id().to_string());
    assert_eq!(call.step_name(), "charge");
    let run = engine.runs().await.unwrap().runs[0].run;
    assert_eq!(call.run_id(), run);
    assert_eq!(call.attempts()[0].began_at, engine.now());
}

#[tokio::test]
async fn an_async_stub_waits_in_virtual_time() {
    let engine = shop()
        .stub_async::<charge>(|(customer, cents)| async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(Receipt { customer, cents })
        })
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
    assert!(engine.elapsed() >= Duration::from_secs(5));
    assert!(engine.elapsed() < Duration::from_secs(6));
}

#[tokio::test]
async fn an_async_stub_that_takes_too_long_times_out_as_the_body_would() {
    let engine = shop()
        .stub_async::<charge>(|_| std::future::pending())
        .open()
        .await
        .unwrap();
    let error = ada(&engine).await.unwrap_err();
    assert!(error.contains("took longer than its 10s"), "{error}");
    let calls = engine.calls::<charge>();
    assert_eq!(calls.assert_called_once().attempts().len(), 4);
    assert!(engine.elapsed() >= Duration::from_secs(40));
}

#[tokio::test]
async fn the_first_attempts_fail_and_the_next_goes_on_with_the_stub() {
    let engine = stubbed()
        .fail_times::<charge>(2, Error::new("the provider is down"))
        .open()
        .await
        .unwrap();
    let run = engine.start(checkout("ada".into())).await.unwrap();
    assert_eq!(run.result().await.unwrap(), receipt("ada", 300));
    let calls = engine.calls::<charge>();
    let numbers = calls.assert_called_once().attempts().iter();
    let numbers: Vec<_> = numbers.map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let journal = engine.journal(run.id()).await.unwrap();
    let failed = journal.records().iter().filter(
        |record| matches!(&record.event, Event::AttemptFailed(failed) if &*failed.name == "charge"),
    );
    assert_eq!(failed.count(), 2, "real failures are in the journal");
    assert!(
        engine.elapsed() >= Duration::from_secs(2),
        "and were backed off"
    );
}

#[tokio::test]
async fn failures_without_a_stub_go_on_with_the_body() {
    let engine = shop()
        .resource(Payments)
        .fail_times::<charge>(1, Error::new("the provider is down"))
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada, for real", 300)));
    let calls = engine.calls::<charge>();
    let stubbed: Vec<_> = calls[0].attempts().iter().map(|one| one.stubbed).collect();
    assert_eq!(stubbed, [true, false]);
    assert!(!calls[0].is_stubbed());
}

#[tokio::test]
async fn a_step_fails_as_often_as_it_is_told_whichever_call_it_is() {
    let engine = stubbed()
        .fail_times::<charge>(4, Error::new("down"))
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Err("down".into()), "4 attempts");
    assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
}

#[tokio::test]
async fn a_closure_decides_which_attempts_of_each_call_fail() {
    let engine = stubbed()
        .fail_with::<charge>(|attempt| (attempt < 3).then(|| Error::new(attempt)))
        .open()
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
    }
    let calls = engine.calls::<charge>();
    let attempts: Vec<_> = calls.iter().map(|call| call.attempts().len()).collect();
    assert_eq!(attempts, [3, 3]);
}

#[tokio::test]
async fn a_fatal_failure_is_not_tried_again() {
    let engine = stubbed()
        .fail_times::<charge>(1, Error::fatal("the card is stolen"))
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Err("the card is stolen".into()));
    let calls = engine.calls::<charge>();
    assert_eq!(calls.assert_called_once().attempts().len(), 1);
}

#[tokio::test]
async fn a_delay_is_virtual_and_counts_into_the_timeout() {
    let engine = stubbed()
        .delay::<charge>(Duration::from_secs(9))
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
    assert!(engine.elapsed() >= Duration::from_secs(9));
    assert!(engine.elapsed() < Duration::from_secs(10));

    engine.delay::<charge>(Duration::from_secs(11));
    let error = ada(&engine).await.unwrap_err();
    assert!(error.contains("took longer than its 10s"), "{error}");
    assert!(engine.elapsed() >= Duration::from_secs(49));
}

#[tokio::test]
async fn a_delay_comes_before_the_body_too() {
    let engine = shop()
        .resource(Payments)
        .delay::<charge>(Duration::from_secs(7))
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada, for real", 300)));
    assert!(engine.elapsed() >= Duration::from_secs(7));
}

#[tokio::test]
async fn a_panic_is_the_bug_of_a_body() {
    let engine = shop()
        .panic_in::<charge>("index out of bounds")
        .open()
        .await
        .unwrap();
    let error = ada(&engine).await.unwrap_err();
    assert_eq!(error, "step `charge` panicked: index out of bounds");
    let calls = engine.calls::<charge>();
    assert_eq!(calls.assert_called_once().attempts().len(), 4, "retried");
}

#[tokio::test]
async fn stubs_are_changed_on_an_open_engine() {
    let engine = shop().resource(Payments).open().await.unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada, for real", 300)));
    engine.stub::<charge>(|_| Ok(receipt("the stub", 1)));
    assert_eq!(ada(&engine).await, Ok(receipt("the stub", 1)));
    engine.stub_async::<charge>(|(_, cents)| async move { Ok(receipt("the async stub", cents)) });
    assert_eq!(ada(&engine).await, Ok(receipt("the async stub", 300)));
    engine.fail_with::<charge>(|_| Some(Error::fatal("no")));
    assert_eq!(ada(&engine).await, Err("no".into()));
    engine.fail_times::<charge>(0, Error::new("no more"));
    engine.panic_in::<charge>("oh");
    assert!(ada(&engine).await.unwrap_err().contains("panicked: oh"));
    engine.run_for_real::<charge>();
    assert_eq!(ada(&engine).await, Ok(receipt("ada, for real", 300)));
    engine.calls::<charge>().assert_called_times(6);
    assert_eq!(engine.all_calls().len(), 12);
}

#[tokio::test]
async fn a_step_that_is_to_run_for_real_does_where_others_are_refused() {
    let engine = stubbed()
        .refuse_unstubbed()
        .run_for_real::<lookup>()
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
}

#[tokio::test]
async fn a_step_without_a_stub_is_refused_before_anything_of_it_is_journaled() {
    let text = failing_text(async {
        let engine = stubbed().refuse_unstubbed().open().await.unwrap();
        let error = ada(&engine).await.unwrap_err();
        assert!(error.contains("`lookup`"), "{error}");
        engine.calls::<lookup>().assert_not_called();
        let run = engine.runs().await.unwrap().runs[0].run;
        assert_eq!(engine.journal(run).await.unwrap().records().len(), 1);
    });
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn a_refused_step_fails_the_test_that_does_not_look_at_its_run() {
    let text = failing_text(async {
        let engine = shop().refuse_unstubbed().open().await.unwrap();
        let run = engine.start(checkout("ada".into())).await.unwrap();
        engine.advance(Duration::from_secs(1)).await;
        drop(run);
    });
    assert!(text.contains("has no stub"), "{text}");
}

#[tokio::test]
async fn a_stub_that_takes_something_else_fails_the_test() {
    let text = failing_text(async {
        let engine = shop()
            .stub_as::<charge, (u64, u64)>(|(_, cents)| Ok(receipt("nobody", cents)))
            .open()
            .await
            .unwrap();
        let error = ada(&engine).await.unwrap_err();
        assert!(
            !error.contains("ada"),
            "values are not in the report: {error}"
        );
    });
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn a_stub_may_take_less_than_the_step_does() {
    #[derive(Deserialize)]
    struct Name(String);
    let engine = shop()
        .stub_as::<charge, (Name, u64)>(|(name, cents)| Ok(receipt(&name.0, cents)))
        .open()
        .await
        .unwrap();
    assert_eq!(ada(&engine).await, Ok(receipt("ada", 300)));
    let calls = engine.calls::<charge>();
    assert_eq!(calls[0].input_as::<(String, f64)>(), ("ada".into(), 300.0));
}

#[tokio::test]
async fn a_stub_that_panics_fails_the_test() {
    let text = failing_text(async {
        let engine = shop()
            .stub::<charge>(|(_, cents)| panic!("no stub for {cents} cents"))
            .open()
            .await
            .unwrap();
        assert!(ada(&engine).await.is_err());
        let calls = engine.calls::<charge>();
        assert_eq!(
            calls.assert_called_once().attempts().len(),
            1,
            "not retried"
        );
    });
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn a_closure_that_panics_when_asked_for_a_failure_fails_the_test() {
    let text = failing_text(async {
        let engine = stubbed()
            .fail_with::<charge>(|attempt| panic!("asked for {attempt}"))
            .open()
            .await
            .unwrap();
        assert!(ada(&engine).await.is_err());
    });
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn a_fault_of_the_test_is_told_beside_another_failure() {
    let text = failing_text(async {
        let engine = shop().refuse_unstubbed().open().await.unwrap();
        let result = ada(&engine).await;
        assert_eq!(result, Ok(receipt("ada", 300)));
    });
    assert!(text.contains("assertion `left == right` failed"), "{text}");
}

#[tokio::test]
async fn an_engine_without_faults_goes_silently() {
    stays_silent(async {
        let engine = stubbed().open().await.unwrap();
        ada(&engine).await.unwrap();
    });
}
