//! `crash_everywhere`: what survives passes, what does not is caught, and the story says what went wrong.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::join;
use workflow_runtime::testing::{
    Crash, CrashEverywhere, CrashFailure, Ledger, TestEngineBuilder, crash_everywhere,
};
use workflow_runtime::{
    Error, Key, Result, Workflow, get_step_metadata, outbox, sleep, step, timeout, wait_for,
    workflow,
};

const DAY: Duration = Duration::from_secs(86_400);

/// Acts under the step's id, as it should be.
#[step(effect = "payment", backoff = "1m..1h")]
async fn charge(#[resource] ledger: &Ledger, who: &str, cents: u64) -> Result<u64> {
    let posted = ledger.post(get_step_metadata().step_id, ("charge", who, cents))?;
    Ok(posted.receipt)
}

#[step(effect = "message", backoff = "1m..1h")]
async fn mail(#[resource] ledger: &Ledger, who: &str, what: &str) -> Result<()> {
    ledger.post(get_step_metadata().step_id, format!("mailed {who}: {what}"))?;
    if get_step_metadata().attempt < 3 {
        return Err(Error::new("the mail server hung up after it took the mail"));
    }
    Ok(())
}

#[workflow]
async fn shipping(order: u64) -> Result<String> {
    charge("carrier", order).await?;
    sleep(3 * DAY).await;
    Ok(format!("parcel {order}"))
}

/// Everything at once: retries, a month of waiting, a race, a child, a signal.
#[workflow]
async fn order(who: String, cents: u64) -> Result<(u64, String, bool)> {
    let (receipt, mailed) = join!(charge(&who, cents), mail(&who, "thank you"));
    mailed?;
    sleep(30 * DAY).await;
    let approved: bool = wait_for("approved").await?;
    let late = timeout(DAY, wait_for::<bool>("never")).await.is_err();
    let parcel = shipping(7).await?;
    charge("tax office", 19).await?;
    Ok((receipt?, parcel, approved && late))
}

fn money(engine: TestEngineBuilder, ledger: &Ledger) -> TestEngineBuilder {
    engine.register::<shipping>().resource(ledger.clone())
}

#[tokio::test]
async fn a_workflow_that_hands_its_step_ids_over_survives_a_crash_at_every_write() {
    let report = crash_everywhere(|| order("ada".into(), 500))
        .engine(money)
        .drive(async |_, run| {
            run.signal("approved", &true).key("approval").await?;
            Ok(())
        })
        .run()
        .await;
    assert!(report.writes() > 12, "{report:#}");
    assert_eq!(report.cases(), 2 * report.writes());
    assert_eq!(report.missed(), 0, "{report:#}");
}

#[tokio::test]
async fn and_two_crashes() {
    let report = crash_everywhere(|| order("ada".into(), 500))
        .engine(money)
        .drive(async |_, run| {
            run.signal("approved", &true).key("approval").await?;
            Ok(())
        })
        .two_crashes()
        .run()
        .await;
    let (tried, possible) = report.pairs();
    assert_eq!(tried, possible.min(2_000), "{report}");
    assert_eq!(report.cases(), 2 * report.writes() + tried);
    assert!(possible > 500, "{report}");
}

#[tokio::test]
async fn the_report_names_every_write() {
    let report = crash_everywhere(|| shipping(7)).engine(money).run().await;
    let told = format!("{report:#}");
    let took = format!("{:.3} s", report.took().as_secs_f64());
    insta::assert_snapshot!(told.replace(&took, "no time"));
}

#[tokio::test]
async fn a_failure_of_the_workflow_is_a_result_like_any_other() {
    #[step(max_attempts = 1)]
    async fn refuse(#[resource] ledger: &Ledger) -> Result<()> {
        ledger.post(get_step_metadata().step_id, "asked")?;
        Err(Error::fatal("card declined"))
    }
    #[workflow]
    async fn declined() -> Result<()> {
        refuse().await
    }
    let report = crash_everywhere(declined)
        .engine(|engine, ledger| engine.resource(ledger.clone()))
        .two_crashes()
        .run()
        .await;
    assert_eq!(report.writes(), 3, "{report:#}");
}

/// Acts without a key.
#[step(effect = "message")]
async fn blurt(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.post_without_key(what)?;
    Ok(())
}

#[workflow]
async fn blurting() -> Result<()> {
    charge("ada", 500).await?;
    blurt("shipped").await
}

async fn caught<W>(check: CrashEverywhere<W>) -> CrashFailure
where
    W: Workflow<Ok: PartialEq + Debug, Error: Debug>,
{
    match check.try_run().await {
        Ok(report) => panic!("it was not caught: {report}"),
        Err(failure) => failure,
    }
}

#[tokio::test]
async fn an_effect_without_a_key_is_caught() {
    let check = crash_everywhere(blurting).engine(money);
    let failure = caught(check).await;
    assert_eq!(failure.crashes(), [Crash::before(2)]);
    insta::assert_snapshot!(failure);
    let again = crash_everywhere(blurting).engine(money);
    let again = caught(again.only([Crash::before(2)])).await;
    assert_eq!(again.to_string(), failure.to_string());
    let other = crash_everywhere(blurting).engine(money);
    let report = other.only([Crash::after(2)]).run().await;
    assert_eq!(report.cases(), 1);
}

#[tokio::test]
async fn a_key_on_the_other_side_that_ignores_keys_is_caught() {
    let check = crash_everywhere(|| shipping(7)).engine(money);
    let failure = caught(check.ledger(Ledger::ignoring_keys)).await;
    insta::assert_snapshot!(failure);
}

#[step(effect = "message")]
async fn look_and_tell(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    if !ledger.entries().iter().any(|entry| entry == what) {
        ledger.post_without_key(what)?;
    }
    Ok(())
}

#[step(effect = "message", at_most_once)]
async fn tell_at_most_once(#[resource] ledger: &Ledger, what: &str) -> Result<()> {
    ledger.post_without_key(what)?;
    Ok(())
}

#[workflow]
async fn telling(looks: bool) -> Result<()> {
    match looks {
        true => look_and_tell("shipped").await,
        // That it was interrupted is fine with this one.
        false => tell_at_most_once("shipped").await.or(Ok(())),
    }
}

#[tokio::test]
async fn where_keys_are_ignored_a_step_that_looks_first_passes_and_at_most_once_may_be_never() {
    let check = |looks| {
        let check = crash_everywhere(move || telling(looks)).ledger(Ledger::ignoring_keys);
        check.engine(|engine, ledger| engine.resource(ledger.clone()))
    };
    check(true).two_crashes().run().await;
    let failure = caught(check(false)).await;
    assert_eq!(failure.crashes(), [Crash::after(1)], "after the intent");
    insta::assert_snapshot!(failure);
}

/// Never gives the same number twice.
#[derive(Default)]
struct Counter(AtomicU64);

#[step(effect = "payment")]
async fn charge_at_random(
    #[resource] ledger: &Ledger,
    #[resource] counter: &Counter,
) -> Result<u64> {
    let key = format!("payment-{}", counter.0.fetch_add(1, Ordering::Relaxed));
    Ok(ledger.post(key, "charged 500")?.receipt)
}

#[workflow]
async fn charging_at_random() -> Result<u64> {
    charge_at_random().await
}

#[tokio::test]
async fn a_key_that_is_another_one_in_every_attempt_is_caught() {
    let check = crash_everywhere(charging_at_random).engine(|engine, ledger| {
        let engine = engine.resource(Counter(AtomicU64::new(ledger.calls().len() as u64)));
        engine.resource(ledger.clone())
    });
    insta::assert_snapshot!(caught(check).await);
}

#[workflow]
async fn announcing() -> Result<()> {
    outbox("news").push("it is out")?;
    Ok(())
}

/// Publishes messages, with or without their ids as keys.
fn publishing(keyed: bool) -> CrashEverywhere<announcing> {
    crash_everywhere(announcing).engine(move |engine, ledger| {
        let ledger = ledger.clone();
        engine.configure(move |engine| {
            engine.outbox("news", move |message| {
                let ledger = ledger.clone();
                async move {
                    let text: String = message.decode()?;
                    match keyed {
                        true => ledger.post(message.id, text)?,
                        false => ledger.post_without_key(text)?,
                    };
                    Ok(())
                }
            })
        })
    })
}

#[tokio::test]
async fn a_publisher_that_publishes_twice_is_caught_and_one_with_keys_passes() {
    let report = publishing(true).two_crashes().run().await;
    assert!(report.writes() > 2, "{report:#}");
    insta::assert_snapshot!(caught(publishing(false)).await);
}

/// Set in every life: somebody was charged before.
static CHARGED: AtomicBool = AtomicBool::new(false);

/// Goes another way when somebody was charged before, as code does that reads a database.
#[workflow(unchecked)]
async fn wavering() -> Result<u64> {
    match CHARGED.load(Ordering::Relaxed) {
        false => charge("ada", 500).await,
        true => charge("bob", 500).await,
    }
}

#[tokio::test]
async fn a_workflow_that_goes_another_way_in_replay_is_caught() {
    let check = || {
        crash_everywhere(wavering).engine(|engine, ledger| {
            CHARGED.store(!ledger.calls().is_empty(), Ordering::Relaxed);
            engine.resource(ledger.clone())
        })
    };
    assert_eq!(caught(check()).await.crashes(), [Crash::before(1)]);
    let parked = caught(check().only([Crash::after(1)])).await.to_string();
    assert!(parked.contains("found: parked: "), "{parked}");
}

#[workflow]
async fn waiting() -> Result<u64> {
    wait_for("go").await
}

#[tokio::test]
async fn a_run_that_nobody_drives_is_said_to_hang() {
    insta::assert_snapshot!(caught(crash_everywhere(waiting)).await);
}

#[tokio::test]
async fn driving_that_fails_is_told() {
    let check = crash_everywhere(waiting).within(DAY).drive(async |_, run| {
        run.signal("go", &1_u64).key("go").await?;
        Err(Error::new("the test itself is broken"))
    });
    insta::assert_snapshot!(caught(check).await);
}

#[tokio::test]
async fn a_call_with_another_input_in_every_life_is_told() {
    let counter = Arc::new(AtomicU64::new(0));
    let check = crash_everywhere(move || shipping(counter.fetch_add(1, Ordering::Relaxed)));
    let check = check.engine(money).only([Crash::after(0)]);
    let failure = caught(check).await.to_string();
    assert!(failure.contains("found: not started: "), "{failure}");
}

#[step(effect = "payment")]
async fn charge_what_is_left(#[resource] ledger: &Ledger) -> Result<u64> {
    let calls = ledger.calls().len();
    Ok(ledger
        .post(get_step_metadata().step_id, ("charge", calls))?
        .receipt)
}

#[workflow]
async fn charging_what_is_left() -> Result<u64> {
    charge_what_is_left().max_attempts(2).await
}

#[tokio::test]
async fn one_key_for_two_things_is_caught() {
    let check = crash_everywhere(charging_what_is_left);
    let check = check.engine(|engine, ledger| engine.resource(ledger.clone()));
    insta::assert_snapshot!(caught(check).await);
}

#[tokio::test]
#[should_panic(expected = "`blurting` does not survive a crash before write 2")]
async fn the_story_is_what_the_test_fails_with() {
    crash_everywhere(blurting).engine(money).run().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[should_panic(expected = "`#[tokio::test]` without `flavor`")]
async fn a_runtime_with_several_threads_is_refused() {
    crash_everywhere(waiting).run().await;
}

#[tokio::test]
async fn what_counts_as_the_same_result_can_be_said() {
    let check = crash_everywhere(|| keyed("eu".into()));
    let report = check.key(Key::of(("eu", 1))).same_result(|a, b| a.0 == b.0);
    report.run().await;
}

#[workflow]
async fn keyed(region: String) -> Result<(String, u64)> {
    static LIFE: AtomicU64 = AtomicU64::new(0);
    let key = workflow_runtime::get_workflow_metadata().key;
    assert_eq!(key.as_deref(), Some("=(eu,1)"));
    Ok((region, LIFE.fetch_add(1, Ordering::Relaxed)))
}
