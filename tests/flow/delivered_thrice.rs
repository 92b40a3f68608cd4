//! Every start, signal, event and guarded request three times, in random order, with a crash somewhere: the
//! outside world acts once for each, and all answers to one are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, InboxError, Result, Sent, signals, step, workflow,
};
use workflow_tests::Ledger;

/// How many of each there are.
const EACH: u64 = 3;

#[step(effect = "create")]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<String> {
    ledger.act(what);
    Ok(format!("did {what}"))
}

#[workflow]
async fn order(number: u64) -> Result<String> {
    act(&format!("order {number}")).await
}

#[workflow]
async fn shipping(number: u64) -> Result<String> {
    act(&format!("shipping {number}")).await
}

/// Acts for every payment that it hears of, until it has heard of all.
#[workflow]
async fn accounting() -> Result<Vec<String>> {
    let mut payments = signals::<u64>("payment");
    let mut heard = Vec::new();
    while heard.len() < EACH as usize {
        let number = payments.next().await?;
        heard.push(act(&format!("payment {number}")).await?);
    }
    heard.sort();
    Ok(heard)
}

fn engine(ledger: &Arc<Ledger>) -> EngineBuilder {
    Engine::builder()
        .register::<order>()
        .register::<shipping>()
        .register::<accounting>()
        .resource_arc(ledger.clone())
}

/// Something that is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Delivery {
    Start(u64),
    Signal(u64),
    Event(u64),
    Request(u64),
}

/// All deliveries three times, in an order that follows from the seed.
fn deliveries(seed: u64) -> Vec<Delivery> {
    let all = (0..EACH).flat_map(|n| {
        [
            Delivery::Start(n),
            Delivery::Signal(n),
            Delivery::Event(n),
            Delivery::Request(n),
        ]
    });
    let mut deliveries: Vec<_> = all.flat_map(|one| [one; 3]).collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..deliveries.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        deliveries.swap(at, (state >> 33) as usize % (at + 1));
    }
    deliveries
}

type Answers = BTreeMap<Delivery, Vec<String>>;

/// Makes one delivery and returns what it is answered. `None`: the store has stopped, nobody knows.
async fn deliver(engine: &Engine, one: Delivery) -> Option<String> {
    let accounting = || engine.start(accounting()).key("accounting");
    let answer = match one {
        Delivery::Start(n) => {
            let run = engine.start(order(n)).key(n).await.ok()?;
            run.result().await.ok()?
        }
        Delivery::Signal(n) => {
            let run = accounting().await.ok()?;
            match run.signal("payment", &n).key(n).await {
                // To one whose end is known already it was delivered before.
                Ok(Sent::Accepted | Sent::Duplicate) | Err(EngineError::Ended(_)) => "heard".into(),
                Err(_) => return None,
            }
        }
        Delivery::Event(n) => {
            let event = engine.inbox("parcels").accept(n);
            match event.start(shipping(n)).await {
                Ok(accepted) => format!("{} at {}", accepted.run, accepted.accepted_at),
                Err(InboxError::Keys(_) | InboxError::Engine(_)) => return None,
                Err(other) => panic!("{other}"),
            }
        }
        Delivery::Request(n) => {
            let work = engine.once(format!("request {n}")).body(&n);
            work.run(async || Ok::<_, Error>(format!("response {n}")))
                .await
                .ok()?
        }
    };
    Some(answer)
}

/// Delivers everything through the crashes of a plan. Returns the number of writes.
async fn live_through(seed: u64, plan: FaultPlan) -> u64 {
    let ledger = Ledger::shared();
    let mut left = deliveries(seed);
    let mut answers = Answers::new();
    let mut store = MemoryStore::with_faults(plan);
    loop {
        let living = async {
            let engine = engine(&ledger).open_with(store.clone()).await;
            let engine = engine.expect("opens");
            while let Some(one) = left.last().copied() {
                let Some(answer) = deliver(&engine, one).await else {
                    std::future::pending::<()>().await; // until the crash is noticed
                    return;
                };
                answers.entry(one).or_default().push(answer);
                left.pop();
            }
            let accounting = engine.start(accounting()).key("accounting").await;
            let heard = accounting.expect("is there").result().await;
            assert_eq!(heard.expect("ends well").len(), EACH as usize);
            for run in engine.runs().await.expect("lists").runs {
                let run = engine.run::<shipping>(run.run).await;
                if let Ok(run) = run {
                    let _ = run.result().await;
                }
            }
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => break,
        }
        store = store.reopen(Surviving::Synced);
    }
    let mut expected: Vec<String> = ["order", "payment", "shipping"]
        .iter()
        .flat_map(|kind| (0..EACH).map(move |n| format!("{kind} {n}")))
        .collect();
    expected.sort();
    assert_eq!(ledger.effects(), expected, "seed {seed}");
    for (one, answers) in answers {
        assert_eq!(answers.len(), 3, "{one:?}, seed {seed}");
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{one:?}: {answers:?}, seed {seed}"
        );
    }
    store.writes()
}

#[tokio::test]
async fn what_is_delivered_three_times_in_any_order_is_done_once_and_answered_alike() {
    for seed in 0..40 {
        live_through(seed, FaultPlan::none()).await;
    }
}

#[tokio::test]
async fn a_crash_at_any_write_between_the_deliveries_changes_none_of_that() {
    let writes = live_through(1, FaultPlan::none()).await;
    assert!(writes >= 20, "{writes}");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            live_through(1 + write, FaultPlan::at(write, fault)).await;
        }
    }
}
