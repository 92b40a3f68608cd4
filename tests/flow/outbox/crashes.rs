//! Messages with a crash at every write: each is relayed at least once, under one id, and none of an attempt that has
//! no outcome on record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::sync::Notify;
use workflow_runtime::store::Durability;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, Error, RelayOptions, Result, get_step_metadata, outbox, step, wait_for,
    workflow,
};
use workflow_tests::{ids_of, steps, value};

use super::{Draws, Received, until_empty};

const CRASHES: [Fault; 3] = [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear];

/// Says something else whenever its body runs, and sometimes fails first.
#[step(max_attempts = 5, backoff = "1ms..2ms")]
async fn draw(#[resource] draws: &Draws, name: &str) -> Result<u64> {
    let drawn = draws.draw();
    for part in ["first", "second"] {
        outbox("mail").push(&format!("{name} {part} {drawn}"))?;
    }
    tokio::task::yield_now().await;
    match name == "two" && get_step_metadata().attempt == 1 {
        true => Err(Error::new("once more")),
        false => Ok(drawn),
    }
}

/// Steps at once, and messages of the workflow's own between their outcomes.
#[workflow]
async fn story() -> Result<(u64, u64, u64)> {
    outbox("mail").push("begins")?;
    let (one, two) = join(
        async {
            let one = draw("one").await?;
            outbox("mail").push(&format!("after one {one}"))?;
            Ok::<_, Error>(one)
        },
        draw("two"),
    )
    .await;
    outbox("mail").push("between")?;
    let three = draw("three").await?;
    outbox("mail").push("ends")?;
    Ok((one?, two?, three))
}

#[step]
async fn large(number: u32) -> Result<u32> {
    outbox("mail").push(
        &number
            .to_string()
            .repeat(200 * 1024 / number.to_string().len()),
    )?;
    Ok(number)
}

/// More messages in one poll than leave in one write.
#[workflow]
async fn crowd(count: u32) -> Result<u32> {
    let calls: Vec<_> = (0..count).map(large).collect();
    let all: Result<Vec<u32>> = join_all(calls).await.into_iter().collect();
    Ok(all?.into_iter().sum())
}

fn builder(draws: &Arc<Draws>) -> EngineBuilder {
    Engine::builder()
        .register::<story>()
        .register::<crowd>()
        .resource_arc(draws.clone())
}

fn relaying(builder: EngineBuilder, received: &Received) -> EngineBuilder {
    let received = received.clone();
    let options = RelayOptions::default()
        .concurrency(2)
        .backoff(Duration::from_millis(1), Duration::from_millis(2));
    builder.outbox_with("mail", options, move |message| {
        let received = received.clone();
        async move {
            received.take(&message)?;
            match message.id.as_bytes()[0].is_multiple_of(4) && message.attempt == 1 {
                true => Err(Error::new("taken, but the receipt is lost")),
                false => Ok(()),
            }
        }
    })
}

/// Lives through the story and one crash per plan, until everything is relayed.
async fn live_through(plans: impl IntoIterator<Item = FaultPlan>) -> u64 {
    let (draws, received) = (Arc::default(), Received::default());
    let mut plans = plans.into_iter();
    let mut store = MemoryStore::with_faults(plans.next().unwrap_or_default());
    let (drawn, writes) = loop {
        let living = async {
            let engine = relaying(builder(&draws), &received);
            let engine = engine.open_with(store.clone()).await.expect("opens");
            let run = engine.start(story()).key("story").await.expect("starts");
            let drawn = run.result().await.expect("ends well");
            until_empty(&engine, "mail").await;
            assert!(
                engine
                    .outbox("mail")
                    .set_aside(9)
                    .await
                    .expect("lists")
                    .is_empty()
            );
            let journal = engine.journal(run.id()).await.expect("reads");
            let recorded: Vec<u64> = steps(&journal).iter().map(value).collect();
            assert_eq!(recorded.len(), 3);
            assert_eq!(ids_of(&journal, "draw").len(), 3);
            drawn
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            drawn = living => break (drawn, store.writes()),
        }
        store = store.reopen(Surviving::Synced);
        store.set_faults(plans.next().unwrap_or_default());
    };
    let (one, two, three) = drawn;
    let mut said = BTreeMap::new();
    let mut order = Vec::new();
    for (id, text) in received.list() {
        let first = said.entry(id).or_insert_with(|| {
            order.push(text.clone());
            text.clone()
        });
        assert_eq!(*first, text, "one id has one message");
    }
    let mut expected = vec!["begins".to_owned(), format!("after one {one}")];
    for (name, drawn) in [("one", one), ("two", two), ("three", three)] {
        expected.extend(["first", "second"].map(|part| format!("{name} {part} {drawn}")));
    }
    expected.extend(["between".to_owned(), "ends".to_owned()]);
    let mut texts: Vec<_> = said.into_values().collect();
    texts.sort();
    expected.sort();
    assert_eq!(texts, expected);
    // In the order of the journal: of the two at once either may be first.
    let place = |text: &str| {
        order
            .iter()
            .position(|one| one.starts_with(text))
            .expect("there")
    };
    let sorted = |texts: &[&str]| texts.windows(2).all(|two| place(two[0]) < place(two[1]));
    assert!(
        sorted(&[
            "begins",
            "one first",
            "one second",
            "after one",
            "between",
            "three first"
        ]),
        "{order:?}"
    );
    assert!(
        sorted(&[
            "two first",
            "two second",
            "between",
            "three first",
            "three second",
            "ends"
        ]),
        "{order:?}"
    );
    writes
}

#[tokio::test]
async fn a_crash_at_any_write_loses_no_message_and_sends_none_without_its_outcome() {
    let writes = live_through([]).await;
    assert!(writes >= 15, "{writes}");
    for write in 0..writes {
        for fault in CRASHES {
            let lived = live_through([FaultPlan::at(write, fault)]);
            let lived = tokio::time::timeout(Duration::from_secs(60), lived).await;
            lived.unwrap_or_else(|_| panic!("{write} {fault:?}: not everything is relayed"));
        }
    }
}

#[tokio::test]
async fn crash_upon_crash_comes_out_the_same() {
    for seed in 0..120u64 {
        // Two: after three in a row without progress a run is parked.
        let plans = (1..=2).map(|life| {
            let fault = CRASHES[(seed / life) as usize % 3];
            FaultPlan::at((seed * 7 / life) % 19, fault)
        });
        let lived = tokio::time::timeout(Duration::from_secs(60), live_through(plans));
        let lived = lived.await;
        lived.unwrap_or_else(|_| panic!("{seed}: not everything is relayed"));
    }
}

#[step]
async fn two() -> Result<()> {
    outbox("mail").push("poison")?;
    outbox("mail").push("fine")?;
    Ok(())
}

#[workflow]
async fn pair() -> Result<()> {
    two().await
}

/// Sets a message aside, mends what was wrong with it and has it retried, through one crash.
async fn set_aside_through(plan: FaultPlan) -> (u64, usize) {
    let (received, mended) = (Received::default(), Arc::new(AtomicBool::new(false)));
    let mut store = MemoryStore::with_faults(plan);
    let mut found = 0;
    loop {
        let living = async {
            let (list, is_mended) = (received.clone(), mended.clone());
            let options = RelayOptions::default()
                .max_attempts(2)
                .backoff(Duration::from_millis(1), Duration::from_millis(1));
            let engine = Engine::builder().register::<pair>();
            let engine = engine.outbox_with("mail", options, move |message| {
                let (list, is_mended) = (list.clone(), is_mended.clone());
                async move {
                    match message.decode::<String>()? == "poison"
                        && !is_mended.load(Ordering::SeqCst)
                    {
                        true => Err(Error::new("no such address")),
                        false => list.take(&message),
                    }
                }
            });
            let engine = engine.open_with(store.clone()).await.expect("opens");
            let run = engine.start(pair()).key("story").await.expect("starts");
            run.result().await.expect("ends well");
            let mail = engine.outbox("mail");
            loop {
                until_empty(&engine, "mail").await;
                let mut aside = mail.set_aside(9).await.expect("lists");
                assert!(aside.len() <= 1, "{aside:?}");
                let Some(one) = aside.pop() else {
                    return;
                };
                found += 1;
                assert_eq!(one.message.attempt, 2);
                mended.store(true, Ordering::SeqCst);
                mail.retry(one.message.id).await.expect("is put back");
            }
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => break,
        }
        store = store.reopen(Surviving::Synced);
    }
    let said: BTreeMap<_, _> = received.list().into_iter().collect();
    let mut said: Vec<_> = said.into_values().collect();
    said.sort();
    assert_eq!(said, ["fine", "poison"]);
    (store.writes(), found)
}

#[tokio::test]
async fn a_crash_at_any_write_neither_loses_nor_doubles_what_is_set_aside() {
    let (writes, found) = set_aside_through(FaultPlan::none()).await;
    assert_eq!(found, 1);
    assert!(writes >= 8, "{writes}");
    for write in 0..writes {
        for fault in CRASHES {
            let lived = set_aside_through(FaultPlan::at(write, fault));
            let lived = tokio::time::timeout(Duration::from_secs(60), lived).await;
            let (_, found) = lived.unwrap_or_else(|_| panic!("{write} {fault:?}: it does not end"));
            assert!((1..=2).contains(&found), "{write} {fault:?}: {found}");
        }
    }
}

/// However an append is cut into portions, as many messages are there as outcomes.
#[tokio::test]
async fn what_leaves_in_portions_leaves_with_its_outcome() {
    let live = async |plan| {
        let draws = Arc::default();
        let store = MemoryStore::with_faults(plan);
        let living = async {
            let engine = builder(&draws)
                .open_with(store.clone())
                .await
                .expect("opens");
            let run = engine.start(crowd(60)).key("k").await.expect("starts");
            run.result().await.expect("ends well");
        };
        tokio::select! {
            biased;
            () = store.crashed() => {}
            () = living => {}
        }
        let writes = store.writes();
        // Nobody drives the run here: what is there is what the crash left.
        let engine = Engine::builder()
            .open_with(store.reopen(Surviving::Synced))
            .await;
        let engine = engine.expect("opens");
        let runs = engine.runs().await.expect("lists").runs;
        let outcomes = match runs.first() {
            Some(run) => steps(&engine.journal(run.run).await.expect("reads")).len(),
            None => 0,
        };
        let pending = engine.outbox("mail").pending().await.expect("counts");
        assert_eq!(pending, outcomes as u64);
        (writes, outcomes)
    };
    let (writes, outcomes) = live(FaultPlan::none()).await;
    assert_eq!(outcomes, 60);
    assert!(
        writes >= 4,
        "the outcomes leave in two writes at least: {writes}"
    );
    let mut halves = 0;
    for write in 0..writes {
        for fault in CRASHES {
            let (_, outcomes) = live(FaultPlan::at(write, fault)).await;
            halves += usize::from((1..60).contains(&outcomes));
        }
    }
    assert!(halves > 0, "a crash between two portions is among them");
}

#[step(durability = "buffered")]
async fn harmless() -> Result<u32> {
    outbox("mail").push("hello")?;
    Ok(1)
}

#[workflow]
async fn buffered() -> Result<u32> {
    let one = harmless().await?;
    wait_for::<()>("never").await?;
    Ok(one)
}

#[tokio::test]
async fn a_message_that_goes_out_is_of_an_outcome_that_survives_the_power() {
    let (store, taken) = (MemoryStore::new(), Arc::new(Notify::new()));
    let told = taken.clone();
    let engine = Engine::builder()
        .register::<buffered>()
        .durability(Durability::Buffered)
        .outbox("mail", move |_| {
            told.notify_one();
            std::future::pending() // what it would write next would sync all before it
        });
    let engine = engine.open_with(store.clone()).await.expect("opens");
    let run = engine.start(buffered()).await.expect("starts");
    let told = tokio::time::timeout(Duration::from_secs(30), taken.notified());
    told.await.expect("it goes out");
    store.crash();
    let store = store.reopen(Surviving::Synced);
    let engine = Engine::builder().open_with(store).await.expect("opens");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(steps(&journal).len(), 1);
    assert_eq!(engine.outbox("mail").pending().await.expect("counts"), 1);
}
