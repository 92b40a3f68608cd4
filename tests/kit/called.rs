//! What was asked of steps, and how a test is told that it was something else.

use workflow_runtime::testing::TestEngine;
use workflow_runtime::{Error, Result, step, workflow};

use super::failing_text;
use super::stubs::{Receipt, charge, checkout, lookup, receipt};

#[step]
async fn refund(customer: &str) -> Result<()> {
    unreachable!("{customer} is never refunded")
}

#[workflow]
async fn refunds(customer: String) -> Result<()> {
    refund(&customer).await
}

/// A shop in which ada has bought once, and the provider was down for one attempt.
async fn shop() -> TestEngine {
    let engine = TestEngine::builder()
        .register::<checkout>()
        .register::<refunds>()
        .stub::<charge>(|(customer, cents)| Ok(Receipt { customer, cents }))
        .fail_times::<charge>(1, Error::new("down"))
        .open()
        .await
        .unwrap();
    buy(&engine, "ada").await;
    engine
}

async fn buy(engine: &TestEngine, customer: &str) {
    let run = engine.start(checkout(customer.into())).await.unwrap();
    let cents = 100 * customer.len() as u64;
    assert_eq!(run.result().await.unwrap(), receipt(customer, cents));
}

#[tokio::test]
async fn attempts_of_one_call_are_one_call() {
    let engine = shop().await;
    let calls = engine.calls::<charge>();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls.assert_called_once().attempts().len(), 2);
    assert_eq!(calls[0].attempts()[1].number, 2);
    assert!(calls[0].attempts()[0].began_at < calls[0].attempts()[1].began_at);
}

#[tokio::test]
async fn calls_are_in_the_order_in_which_they_began() {
    let engine = shop().await;
    buy(&engine, "bob").await;
    let names: Vec<_> = engine
        .all_calls()
        .iter()
        .map(|call| call.step_name())
        .collect();
    assert_eq!(names, ["lookup", "charge", "lookup", "charge"]);
    let customers = engine.calls::<lookup>().inputs();
    assert_eq!(customers, ["ada", "bob"]);
}

#[test]
fn a_step_that_was_not_called_once_is_told_with_what_was_called() {
    let text = failing_text(async {
        let engine = shop().await;
        engine.calls::<refund>().assert_called_once();
    });
    insta::assert_snapshot!(text);
}

#[test]
fn a_step_that_was_called_too_often_is_told_with_its_calls() {
    let text = failing_text(async {
        let engine = shop().await;
        buy(&engine, "bob").await;
        engine.calls::<charge>().assert_called_once();
    });
    insta::assert_snapshot!(text);
}

#[test]
fn a_step_that_was_called_and_should_not_be_is_told_with_its_calls() {
    let text = failing_text(async {
        let engine = shop().await;
        engine.calls::<charge>().assert_not_called();
    });
    insta::assert_snapshot!(text);
}

#[test]
fn another_number_of_calls_is_told() {
    let text = failing_text(async {
        let engine = shop().await;
        engine.calls::<charge>().assert_called_times(3);
    });
    insta::assert_snapshot!(text);
}

#[test]
fn many_calls_are_not_all_shown() {
    let text = failing_text(async {
        let engine = shop().await;
        for _ in 0..30 {
            buy(&engine, "bob").await;
        }
        engine.calls::<charge>().assert_called_once();
    });
    assert!(text.contains("… and 11 more"), "{text}");
    assert_eq!(text.matches("charge(customer").count(), 20);
}

#[test]
fn other_inputs_are_told_with_the_first_that_differs() {
    let text = failing_text(async {
        let engine = shop().await;
        buy(&engine, "bob").await;
        let expected = [("ada".to_owned(), 300), ("bob".to_owned(), 301)];
        engine.calls::<charge>().assert_inputs(expected);
    });
    insta::assert_snapshot!(text);
}

#[test]
fn a_missing_call_is_told() {
    let text = failing_text(async {
        let engine = shop().await;
        let expected = [("ada".to_owned(), 300), ("bob".to_owned(), 300)];
        engine.calls::<charge>().assert_inputs(expected);
    });
    insta::assert_snapshot!(text);
}

#[test]
fn arguments_that_are_not_what_a_test_asks_for_are_told() {
    let text = failing_text(async {
        let engine = shop().await;
        engine.calls::<charge>()[0].input_as::<(u64, u64)>();
    });
    insta::assert_snapshot!(text);
}

// --- what cannot be stubbed by its type ----------------------------------------------------

#[step]
async fn store<T: serde::Serialize + Clone + Send + Sync>(thing: T) -> Result<()> {
    let _ = thing;
    Ok(())
}

#[workflow]
async fn stores() -> Result<()> {
    store(1).await?;
    store("two").await
}

#[tokio::test]
async fn the_calls_of_a_generic_step_are_recorded_too() {
    let engine = TestEngine::builder()
        .register::<stores>()
        .refuse_unstubbed()
        .run_for_real::<store>()
        .open()
        .await
        .unwrap();
    engine
        .start(stores())
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    let calls = engine.calls::<store>();
    calls.assert_called_times(2);
    assert_eq!(calls[0].input_as::<u32>(), 1);
    assert_eq!(calls[1].input_as::<String>(), "two");
}

/// Namesakes are told apart by where they are.
mod elsewhere {
    #[workflow_runtime::step]
    pub(super) async fn lookup(customer: &str) -> workflow_runtime::Result<u64> {
        Ok(customer.len() as u64)
    }
}

#[workflow]
async fn both() -> Result<(u64, u64)> {
    Ok((
        lookup("ada").await?,
        elsewhere::lookup("ada").key("other").await?,
    ))
}

#[tokio::test]
async fn steps_of_one_name_have_stubs_of_their_own() {
    let engine = TestEngine::builder()
        .register::<both>()
        .stub::<lookup>(|_| Ok(1))
        .stub::<elsewhere::lookup>(|_| Ok(2))
        .open()
        .await
        .unwrap();
    let run = engine.start(both()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (1, 2));
    engine.calls::<lookup>().assert_called_once();
    engine.calls::<elsewhere::lookup>().assert_called_once();
}
