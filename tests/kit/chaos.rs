//! Duplicates, shuffled completions, turned clocks: bad luck that follows from a seed.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use futures::join;
use workflow_runtime::journal::Event;
use workflow_runtime::testing::{
    Ledger, TestEngine, check_invariants, crash_everywhere, deliver_duplicates,
};
use workflow_runtime::{
    Result, get_step_metadata, now, signals, sleep, step, timeout, wait_for, workflow,
};

const DAY: Duration = Duration::from_secs(86_400);

#[step(effect = "create")]
async fn act(#[resource] ledger: &Ledger, what: String) -> Result<String> {
    ledger.post(get_step_metadata().step_id, &what)?;
    Ok(what)
}

/// Acts for two payments.
#[workflow]
async fn collecting() -> Result<Vec<u64>> {
    let mut payments = signals::<u64>("payment");
    let mut taken = Vec::new();
    while taken.len() < 2 {
        let cents = payments.next().await?;
        act(format!("took {cents}")).await?;
        taken.push(cents);
    }
    Ok(taken)
}

#[workflow]
async fn parcel(number: u64) -> Result<String> {
    act(format!("sent {number}")).await
}

#[tokio::test]
async fn starts_signals_and_events_that_come_three_times_make_no_difference() {
    let report = deliver_duplicates(collecting)
        .engine(|engine, ledger| engine.register::<parcel>().resource(ledger.clone()))
        .drive(async |engine, run| {
            engine
                .inbox("parcels")
                .accept("event-1")
                .start(parcel(1))
                .await?;
            run.signal("payment", &100_u64).key("p1").await?;
            run.signal("payment", &200_u64).key("p2").await?;
            Ok(())
        })
        .run()
        .await
        .to_string();
    assert!(report.contains("the same 3 entries every time"), "{report}");
}

#[tokio::test]
async fn a_signal_without_a_key_that_comes_three_times_is_caught() {
    let failure = deliver_duplicates(collecting)
        .engine(|engine, ledger| engine.resource(ledger.clone()))
        .drive(async |_, run| {
            run.signal("payment", &100_u64).await?;
            run.signal("payment", &200_u64).await?;
            Ok(())
        })
        .try_run()
        .await
        .expect_err("it makes a difference");
    insta::assert_snapshot!(failure);
}

#[tokio::test]
#[should_panic(expected = "cannot be checked: it goes wrong without any duplicate")]
async fn what_hangs_without_duplicates_is_not_compared() {
    let check = deliver_duplicates(collecting).within(DAY);
    check
        .engine(|engine, ledger| engine.resource(ledger.clone()))
        .run()
        .await;
}

/// Eight steps at once; their order is the result.
#[workflow]
async fn racing() -> Result<Vec<String>> {
    use futures::stream::{FuturesUnordered, StreamExt};
    let mut all: FuturesUnordered<_> = (0..8).map(|n| act(format!("step {n}"))).collect();
    let mut order = Vec::new();
    while let Some(done) = all.next().await {
        order.push(done?);
    }
    Ok(order)
}

/// The order in which the steps of a run end, and the run's whole journal.
async fn race(seed: Option<u64>) -> (Vec<String>, String) {
    let mut builder = TestEngine::builder()
        .register::<racing>()
        .resource(Ledger::honouring_keys());
    if let Some(seed) = seed {
        builder = builder.shuffle_completions(seed);
    }
    let engine = builder.open().await.unwrap();
    let run = engine.start(racing()).key("race").await.unwrap();
    let order = run.result().await.unwrap();
    (
        order,
        format!("{:?}", engine.journal(run.id()).await.unwrap()),
    )
}

#[test]
fn another_seed_is_another_order_and_the_same_seed_the_same_journal() {
    // Each in a runtime of its own, as tests are.
    let race = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(race(seed))
    };
    let orders: BTreeSet<_> = (0..20).map(|seed| race(Some(seed)).0).collect();
    assert!(orders.len() > 15, "{orders:?}");
    assert_eq!(race(Some(7)), race(Some(7)));
    let in_order: Vec<_> = (0..8).map(|n| format!("step {n}")).collect();
    assert_eq!(race(None).0, in_order, "without a seed nothing is delayed");
}

/// Is right only if the first of its steps ends first.
#[workflow]
async fn presuming() -> Result<String> {
    let (first, second) = (act("first".into()), act("second".into()));
    match futures::future::select(first, second).await {
        futures::future::Either::Left((done, _)) | futures::future::Either::Right((done, _)) => {
            done
        }
    }
}

#[tokio::test]
async fn a_workflow_that_presumes_an_order_is_found_out() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        let engine = TestEngine::builder()
            .register::<presuming>()
            .resource(Ledger::honouring_keys())
            .shuffle_completions(seed);
        let engine = engine.open().await.unwrap();
        let run = engine.start(presuming()).await.unwrap();
        seen.insert(run.result().await.unwrap());
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[tokio::test]
async fn crashes_at_every_write_in_any_order_of_completion_change_no_entry() {
    for seed in 0..3 {
        let report = crash_everywhere(racing)
            .engine(move |engine, ledger| engine.resource(ledger.clone()).shuffle_completions(seed))
            .same_result(|first, again| {
                let sorted = |order: &[String]| order.iter().cloned().collect::<BTreeSet<_>>();
                sorted(first) == sorted(again)
            })
            .run()
            .await;
        assert!(report.writes() > 5, "{report:#}");
    }
}

/// Timers of all lengths, one of them lost in a race, beside steps and a wait that is given up.
#[workflow]
async fn timing() -> Result<(bool, SystemTime)> {
    let naps = join_all([1_u64, 5, 60, 3_600, 86_400].map(|seconds| async move {
        sleep(Duration::from_secs(seconds)).await;
        act(format!("woke after {seconds} s")).await
    }));
    let (naps, gave_up) = join!(naps, timeout(2 * DAY, wait_for::<u64>("never")));
    naps.into_iter().collect::<Result<Vec<_>>>()?;
    for _ in 0..3 {
        sleep(DAY).await;
        act(format!("again at {:?}", now() > SystemTime::UNIX_EPOCH)).await?;
    }
    Ok((gave_up.is_err(), now()))
}

/// Lives once with a clock that jumps. Returns the journal.
async fn jump(seed: u64) -> String {
    let ledger = Ledger::honouring_keys();
    let engine = TestEngine::builder()
        .register::<timing>()
        .resource(ledger.clone())
        .with_clock_jumps(seed);
    let engine = engine.open().await.unwrap();
    let run = engine.start(timing()).key("timing").await.unwrap();
    let (gave_up, _) = run.result().await.unwrap();
    assert!(gave_up, "seed {seed}");
    let violations = check_invariants(&engine).await.unwrap();
    assert!(violations.is_empty(), "seed {seed}: {violations:?}");
    assert_eq!(ledger.entries().len(), 8, "seed {seed}: {ledger}");
    let journal = engine.journal(run.id()).await.unwrap();
    let fired = journal
        .records()
        .iter()
        .filter(|record| matches!(record.event, Event::TimerFired(_)));
    assert_eq!(fired.count(), 9, "seed {seed}\n{journal}");
    format!("{journal:?}")
}

#[test]
fn a_clock_that_jumps_at_every_write_fires_no_timer_early_or_twice_and_loses_none() {
    let live = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(jump(seed))
    };
    let journals: BTreeSet<_> = (0..200).map(live).collect();
    assert!(journals.len() > 190);
    assert_eq!(live(3), live(3));
}

#[tokio::test]
async fn crashes_at_every_write_under_a_jumping_clock_change_nothing() {
    for seed in 0..5 {
        let report = crash_everywhere(timing)
            .engine(move |engine, ledger| engine.resource(ledger.clone()).with_clock_jumps(seed))
            .same_result(|first, again| first.0 == again.0)
            .run()
            .await;
        assert!(report.writes() > 15, "{report:#}");
    }
}

#[workflow]
async fn napping(number: u64) -> Result<u64> {
    sleep(Duration::from_secs(5)).await;
    Ok(number)
}

/// The first to wake writes, and so turns the clock back under those that were woken with it.
#[tokio::test]
async fn those_who_are_woken_together_under_a_clock_that_is_turned_back_wake_again_in_time() {
    for seed in 0..50 {
        let engine = TestEngine::builder()
            .register::<napping>()
            .configure(|engine| engine.evict_after(None)) // else that deadline wakes them all
            .with_clock_jumps(seed);
        let engine = engine.open().await.unwrap();
        let began = tokio::time::Instant::now();
        let mut runs = Vec::new();
        for number in 0..4 {
            runs.push(engine.start(napping(number)).await.unwrap());
        }
        for run in &runs {
            run.result().await.unwrap();
        }
        assert!(
            began.elapsed() < 30 * DAY,
            "seed {seed}: {:?}",
            began.elapsed()
        );
        assert_eq!(check_invariants(&engine).await.unwrap(), [], "seed {seed}");
    }
}
