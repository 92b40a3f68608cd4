//! Driving runs from a test: wait until a run waits for something, then send it.

use std::time::{Duration, SystemTime};

use workflow_runtime::testing::{TestEngine, TestEngineBuilder};
use workflow_runtime::{
    Error, Queue, Result, abort, checkpoint, continue_as_new, hook, sleep, step, timeout, wait_for,
    workflow,
};

use super::{failing_text, stays_silent};

const DAY: Duration = Duration::from_secs(86_400);
const MINUTE: Duration = Duration::from_secs(60);

#[step(max_attempts = 3, backoff = "1d..1d")]
async fn ship() -> Result<()> {
    Err(Error::new("no parcels today"))
}

#[step]
async fn slow() -> Result<()> {
    tokio::time::sleep(DAY).await;
    Ok(())
}

#[step(blocking)]
fn crunch() -> u32 {
    std::thread::sleep(Duration::from_millis(20));
    6
}

#[workflow]
async fn approval() -> Result<String> {
    sleep(10 * MINUTE).await;
    wait_for::<String>("approved").await
}

#[workflow]
async fn payment(order: u64) -> Result<u64> {
    sleep(MINUTE).await;
    let mut payments = hook::<u64>(&format!("payment-{order}")).await?;
    payments.next().await
}

#[workflow]
async fn parcel(number: u32) -> Result<u32> {
    Ok(number + wait_for::<u32>("weight").await?)
}

#[workflow]
async fn order() -> Result<u32> {
    Ok(parcel(1).await? + parcel(2).await?)
}

#[workflow]
async fn at_once() -> Result<u32> {
    Ok(7)
}

#[workflow]
async fn parent_of_the_quick() -> Result<u32> {
    let quick = at_once().await?;
    sleep(DAY).await;
    Ok(quick)
}

#[workflow]
async fn reminder() -> Result<()> {
    sleep(30 * DAY).await;
    Ok(())
}

#[workflow]
async fn delivery() -> Result<()> {
    ship().await
}

#[workflow]
async fn fails() -> Result<()> {
    Err(Error::fatal("the card is stolen").context("checkout"))
}

#[workflow]
async fn gives_up() -> Result<()> {
    abort("edge expired").await
}

#[workflow]
async fn panics() -> Result<()> {
    panic!("a bug")
}

#[workflow]
async fn busy() -> Result<()> {
    slow().await
}

#[workflow]
async fn crunches() -> Result<u32> {
    Ok(crunch().await)
}

#[workflow]
async fn either() -> Result<bool> {
    let first = wait_for::<u32>("first");
    match timeout(2 * DAY, first).await {
        Ok(_) => Ok(true),
        Err(_) => Ok(false),
    }
}

#[workflow]
async fn endless(n: u32) -> Result<u32> {
    let plus = wait_for::<u32>("plus").await?;
    match n + plus {
        sum if sum > 5 => Ok(sum),
        sum => continue_as_new(endless(sum)).await,
    }
}

#[workflow]
async fn passes(n: u32) -> Result<u32> {
    let plus = wait_for::<u32>("plus").await?;
    match n + plus {
        sum if sum > 5 => Ok(sum),
        sum => checkpoint(&sum).await,
    }
}

fn builder() -> TestEngineBuilder {
    TestEngine::builder()
        .register::<approval>()
        .register::<payment>()
        .register::<parcel>()
        .register::<order>()
        .register::<at_once>()
        .register::<parent_of_the_quick>()
        .register::<reminder>()
        .register::<delivery>()
        .register::<fails>()
        .register::<gives_up>()
        .register::<panics>()
        .register::<busy>()
        .register::<crunches>()
        .register::<either>()
        .register::<endless>()
        .register::<passes>()
        .configure(|engine| engine.queue(Queue::named("one").concurrency(1)))
}

async fn engine() -> TestEngine {
    builder().open().await.unwrap()
}

#[tokio::test]
async fn a_run_is_sent_a_signal_when_it_waits_for_it() {
    let engine = engine().await;
    let run = engine.start(approval()).await.unwrap();
    engine.until_waiting_for_signal(&run, "approved").await;
    assert_eq!(engine.elapsed(), 10 * MINUTE, "no more time than it took");
    run.signal("approved", "ada").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "ada");
}

#[tokio::test]
async fn a_run_that_left_memory_is_found_waiting_all_the_same() {
    let engine = engine().await;
    let run = engine.start(approval()).await.unwrap();
    engine.advance(DAY).await;
    assert_eq!(engine.runs_in_memory(), 0);
    engine.until_waiting_for_signal(&run, "approved").await;
    assert_eq!(engine.elapsed(), DAY);
    run.signal("approved", "ada").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "ada");
}

#[tokio::test]
async fn the_token_of_a_hook_is_found() {
    let engine = engine().await;
    let run = engine.start(payment(7)).await.unwrap();
    let token = engine.until_waiting_for_hook(&run).await;
    assert_eq!(token, "payment-7");
    engine.signal_token(&token, &500).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 500);
}

#[tokio::test]
async fn a_hook_is_no_step_that_a_test_could_refuse() {
    let engine = builder().refuse_unstubbed().open().await.unwrap();
    let run = engine.start(payment(7)).await.unwrap();
    let token = engine.until_waiting_for_hook(&run).await;
    engine.signal_token(&token, &500).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 500);
    assert!(engine.all_calls().is_empty());
}

#[tokio::test]
async fn children_are_driven_one_after_the_other() {
    let engine = engine().await;
    let run = engine.start(order()).await.unwrap();
    for (number, weight) in [(1, 10), (2, 20)] {
        let child = engine.child::<parcel>(&run).await;
        engine.until_waiting_for_signal(&child, "weight").await;
        child.signal("weight", &weight).await.unwrap();
        assert_eq!(child.result().await.unwrap(), number + weight);
    }
    assert_eq!(run.result().await.unwrap(), 33);
    assert_eq!(engine.children::<parcel>(&run).await.unwrap().len(), 2);
    assert!(engine.children::<at_once>(&run).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_sleep_says_when_it_is_due() {
    let engine = engine().await;
    let run = engine.start(reminder()).await.unwrap();
    let began: SystemTime = engine.now();
    assert_eq!(engine.until_sleeping(&run).await, began + 30 * DAY);
    assert_eq!(
        engine.elapsed(),
        Duration::ZERO,
        "no time is needed for that"
    );
    engine.advance(20 * DAY).await;
    assert_eq!(
        engine.until_sleeping(&run).await,
        began + 30 * DAY,
        "asleep"
    );
}

#[tokio::test]
async fn a_run_that_waits_for_two_things_waits_for_each() {
    let engine = engine().await;
    let run = engine.start(either()).await.unwrap();
    engine.until_waiting_for_signal(&run, "first").await;
    let due = engine.until_sleeping(&run).await;
    assert_eq!(due, engine.now() + 2 * DAY);
    run.signal("first", &1).await.unwrap();
    assert!(run.result().await.unwrap());
}

#[tokio::test]
async fn the_newest_run_of_a_line_is_driven() {
    let engine = engine().await;
    let run = engine.start(endless(0)).await.unwrap();
    for _ in 0..3 {
        engine.until_waiting_for_signal(&run, "plus").await;
        run.signal("plus", &2).await.unwrap();
        engine.until_idle().await;
    }
    assert_eq!(run.result().await.unwrap(), 6);
}

#[tokio::test]
async fn the_newest_pass_of_a_run_is_driven() {
    let engine = engine().await;
    let run = engine.start(passes(0)).await.unwrap();
    for _ in 0..3 {
        engine.until_waiting_for_signal(&run, "plus").await;
        run.signal("plus", &2).await.unwrap();
        engine.until_idle().await;
    }
    assert_eq!(run.result().await.unwrap(), 6);
}

#[tokio::test]
async fn an_idle_engine_has_done_all_that_needs_no_time() {
    let engine = engine().await;
    let quick = engine.start(at_once()).await.unwrap();
    let crunching = engine.start(crunches()).await.unwrap();
    let sleeping = engine.start(reminder()).await.unwrap();
    engine.until_idle().await;
    assert_eq!(engine.elapsed(), Duration::ZERO);
    let ended = workflow_runtime::RunStatus::Completed;
    assert_eq!(quick.status().await.unwrap(), ended);
    assert_eq!(
        crunching.status().await.unwrap(),
        ended,
        "a thread is waited for"
    );
    assert_ne!(sleeping.status().await.unwrap(), ended);
}

#[tokio::test]
async fn a_run_in_a_queue_is_not_begun_by_looking_at_it() {
    let engine = engine().await;
    let first = engine.start(approval()).queue("one").await.unwrap();
    let second = engine.start(approval()).queue("one").await.unwrap();
    engine.until_waiting_for_signal(&first, "approved").await;
    first.signal("approved", "ada").await.unwrap();
    engine.until_waiting_for_signal(&second, "approved").await;
    assert_eq!(engine.elapsed(), 20 * MINUTE, "one after the other");
}

// --- in vain ---------------------------------------------------------------------------------

macro_rules! in_vain {
    ($(#[$attribute:meta])* $name:ident, |$engine:ident| $body:block) => {
        #[test]
        $(#[$attribute])*
        fn $name() {
            let text = failing_text(async {
                let $engine = engine().await;
                $body
            });
            insta::assert_snapshot!(text);
        }
    };
}

in_vain!(a_run_that_completed_says_with_what, |engine| {
    let run = engine.start(at_once()).await.unwrap();
    engine.until_waiting_for_signal(&run, "approved").await;
});

in_vain!(a_run_that_failed_says_with_what, |engine| {
    let run = engine.start(fails()).await.unwrap();
    engine.until_sleeping(&run).await;
});

in_vain!(a_run_that_was_aborted_says_why, |engine| {
    let run = engine.start(gives_up()).await.unwrap();
    engine.until_waiting_for_hook(&run).await;
});

in_vain!(a_run_that_was_cancelled_says_so, |engine| {
    let run = engine.start(reminder()).await.unwrap();
    run.cancel().await.unwrap();
    engine.until_waiting_for_hook(&run).await;
});

in_vain!(a_parked_run_shows_its_report, |engine| {
    let run = engine.start(panics()).await.unwrap();
    engine.until_waiting_for_signal(&run, "approved").await;
});

in_vain!(a_run_that_waits_for_another_signal_says_so, |engine| {
    let run = engine.start(approval()).await.unwrap();
    engine.until_waiting_for_signal(&run, "aproved").await;
});

in_vain!(
    a_run_that_waits_for_a_hook_and_not_for_a_signal_says_so,
    |engine| {
        let run = engine.start(payment(7)).await.unwrap();
        engine.until_waiting_for_signal(&run, "approved").await;
    }
);

in_vain!(
    a_run_that_sleeps_longer_than_a_test_is_patient_says_until_when,
    |engine| {
        let run = engine.start(reminder()).await.unwrap();
        engine.until_waiting_for_hook(&run).await;
    }
);

in_vain!(a_run_whose_step_is_to_be_tried_again_says_when, |engine| {
    let run = engine.start(delivery()).await.unwrap();
    engine.until_sleeping(&run).await;
});

in_vain!(a_run_whose_body_takes_long_names_the_step, |engine| {
    let run = engine.start(busy()).await.unwrap();
    engine.until_sleeping(&run).await;
});

in_vain!(a_run_that_waits_for_its_child_names_it, |engine| {
    let run = engine.start(order()).await.unwrap();
    engine.until_waiting_for_signal(&run, "weight").await;
});

in_vain!(a_child_that_has_ended_is_told, |engine| {
    let run = engine.start(parent_of_the_quick()).await.unwrap();
    engine.child::<at_once>(&run).await;
});

in_vain!(a_run_without_a_child_says_what_it_waits_for, |engine| {
    let run = engine.start(approval()).await.unwrap();
    engine.child::<parcel>(&run).await;
});

in_vain!(a_run_that_waits_for_its_turn_says_so, |engine| {
    let _first = engine.start(approval()).queue("one").await.unwrap();
    let second = engine.start(approval()).queue("one").await.unwrap();
    engine.until_waiting_for_signal(&second, "approved").await;
});

in_vain!(a_run_that_is_to_start_later_says_when, |engine| {
    let start = engine.start(approval()).queue("one").delay(3 * DAY);
    let run = start.await.unwrap();
    engine.until_waiting_for_signal(&run, "approved").await;
});

#[test]
fn a_test_can_be_more_patient() {
    stays_silent(async {
        let engine = builder().patience(31 * DAY).open().await.unwrap();
        let run = engine.start(parent_of_the_quick()).await.unwrap();
        engine.until_sleeping(&run).await;
        let text_of = engine.start(either()).await.unwrap();
        engine.until_waiting_for_signal(&text_of, "first").await;
    });
    let text = failing_text(async {
        let engine = builder().patience(2 * MINUTE).open().await.unwrap();
        let run = engine.start(approval()).await.unwrap();
        engine.until_waiting_for_signal(&run, "approved").await;
    });
    assert!(text.contains("2 min of virtual time has passed"), "{text}");
    assert!(text.contains("due in 8 min"), "{text}");
}

#[workflow]
async fn restless() -> Result<()> {
    loop {
        tick().await;
    }
}

#[step]
async fn tick() {
    tokio::task::yield_now().await;
}

#[test]
fn an_engine_that_never_rests_is_told() {
    let text = failing_text(async {
        let engine = TestEngine::builder()
            .register::<restless>()
            .open()
            .await
            .unwrap();
        let _run = engine.start(restless()).await.unwrap();
        engine.until_idle().await;
    });
    insta::assert_snapshot!(text);
}
