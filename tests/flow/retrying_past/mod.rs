//! A failed run is tried again, and **a failure that its code has gone past stands**: what was called because of it may have
//! had its effect, under an id that it would be given again with another input, or never.

mod changed;
mod families;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, select};
use futures::join;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::timeout;
use workflow_runtime::journal::{Event, Outcome};
use workflow_runtime::store::ParkReason;
use workflow_runtime::store::memory::{Fault, FaultPlan, MemoryStore, Surviving};
use workflow_runtime::{
    Engine, EngineBuilder, EngineError, Error, Result, RunError, RunHandle, RunId, RunStatus,
    StepId, Workflow, WorkflowCall, outbox, patched, step, wait_for, workflow,
};
use workflow_tests::{Ledger, frames, ids_of, steps};

/// Longer than anything takes that does not hang.
const LONG: Duration = Duration::from_secs(60);

/// What of the outside world does not work.
#[derive(Default)]
struct World(Mutex<BTreeSet<String>>);

impl World {
    fn breaks(&self, what: &[&str]) {
        let mut broken = self.0.lock().expect("no panic");
        broken.extend(what.iter().map(ToString::to_string));
    }

    fn mend(&self) {
        self.0.lock().expect("no panic").clear();
    }

    fn works(&self, what: &str) -> bool {
        !self.0.lock().expect("no panic").contains(what)
    }
}

#[step]
async fn act(#[resource] ledger: &Ledger, what: &str) -> Result<String> {
    ledger.act(what);
    Ok(what.to_owned())
}

/// Has its effect, and fails if the world does not work.
#[step(max_attempts = 2, backoff = "1ms")]
async fn shaky(
    #[resource] ledger: &Ledger,
    #[resource] world: &World,
    what: &str,
) -> Result<String> {
    ledger.act(what);
    match world.works(what) {
        true => Ok(format!("{what} at last")),
        false => Err(Error::new(format!("{what} is broken"))),
    }
}

/// The same, with an input that follows from what was before.
#[step(max_attempts = 2, backoff = "1ms")]
async fn charge(
    #[resource] ledger: &Ledger,
    #[resource] world: &World,
    what: &str,
) -> Result<String> {
    ledger.act(what);
    match world.works("charge") {
        true => Ok(format!("charged {what}")),
        false => Err(Error::new("the bank is closed")),
    }
}

/// Begins, and does not end before the world works.
#[step]
async fn slow(#[resource] ledger: &Ledger, #[resource] world: &World, what: &str) -> Result<()> {
    ledger.act(what);
    while !world.works("slow") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

struct Scene {
    ledger: Arc<Ledger>,
    world: Arc<World>,
    store: MemoryStore,
}

impl Scene {
    fn with_broken(what: &[&str]) -> Self {
        let scene = Self {
            ledger: Ledger::shared(),
            world: Arc::default(),
            store: MemoryStore::new(),
        };
        scene.world.breaks(what);
        scene
    }

    fn builder<W: Workflow>(&self) -> EngineBuilder {
        Engine::builder()
            .register::<W>()
            .resource_arc(self.ledger.clone())
            .resource_arc(self.world.clone())
    }

    async fn open<W: Workflow>(&self) -> Engine {
        let store = self.store.clone();
        self.builder::<W>().open_with(store).await.expect("opens")
    }

    /// The ids under which something was done since this was asked last.
    fn took(&self) -> Vec<StepId> {
        let took = self.ledger.attempts().into_iter();
        let took = took.map(|(step, _)| step).collect();
        self.ledger.forget_asking();
        took
    }
}

/// The records that no longer count, one list per retry.
async fn voided(engine: &Engine, run: RunId) -> Vec<Vec<u64>> {
    let journal = engine.journal(run).await.expect("reads");
    let events = journal.records().iter().map(|record| &record.event);
    let reopened = events.filter_map(|event| match event {
        Event::RunReopened(reopened) => Some(reopened.voided.clone()),
        _ => None,
    });
    reopened.collect()
}

/// What the steps in here are given.
#[derive(serde::Deserialize)]
struct Input {
    what: String,
}

/// What the steps did, or that they were children, whose failures no longer count.
async fn tried_again(engine: &Engine, run: RunId) -> Vec<String> {
    let journal = engine.journal(run).await.expect("reads");
    let voided = voided(engine, run).await.concat();
    let records = journal.records().iter();
    let records = records.filter(|record| voided.contains(&record.seq));
    let names = records.filter_map(|record| match &record.event {
        Event::StepCompleted(step) => {
            let input = step.input.as_ref().expect("is kept");
            let input: Input = rmp_serde::from_slice(input).expect("one text");
            Some(input.what)
        }
        Event::ChildFinished(_) => Some("child".to_owned()),
        _ => None,
    });
    names.collect()
}

async fn fails<W: Workflow>(run: &RunHandle<W>) -> String
where
    W::Ok: std::fmt::Debug,
    W::Error: std::fmt::Debug + std::fmt::Display,
{
    let failed = timeout(LONG, run.result()).await.expect("ends");
    match failed {
        Err(RunError::Failed(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn ends_well<W: Workflow>(run: &RunHandle<W>) -> W::Ok
where
    W::Error: std::fmt::Debug + std::fmt::Display,
{
    let ended = timeout(LONG, run.result()).await.expect("ends");
    ended.map_err(|error| error.to_string()).expect("ends well")
}

#[workflow]
async fn with_fallback() -> Result<String> {
    let first = match shaky("first").await {
        Ok(first) => first,
        Err(_) => shaky("fallback").await?,
    };
    act("last").await?;
    Ok(first)
}

#[tokio::test]
async fn of_a_step_and_its_fallback_that_both_failed_the_fallback_runs_again_under_its_id() {
    let scene = Scene::with_broken(&["first", "fallback"]);
    let engine = scene.open::<with_fallback>().await;
    let run = engine.start(with_fallback()).await.expect("starts");
    assert_eq!(fails(&run).await, "fallback is broken");
    let before = scene.took();
    scene.world.mend();
    run.retry().await.expect("is retried");
    assert_eq!(ends_well(&run).await, "fallback at last");
    assert_eq!(tried_again(&engine, run.id()).await, ["fallback"]);
    let after = scene.took();
    assert_eq!(after[0], before[2], "the key of the fallback");
    assert_eq!(after.len(), 2, "the first one stays failed");
    assert_eq!(scene.ledger.effects(), ["fallback", "first", "last"]);
    let first = &steps(&engine.journal(run.id()).await.expect("reads"))[0];
    assert!(matches!(first.outcome, Outcome::Err(_)));
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_retried_fallback_changes_neither_result_nor_keys() {
    /// Fails, is mended and tried again, through a crash per plan; gives how many writes it took.
    async fn through(plans: Vec<FaultPlan>) -> u64 {
        let shown = format!("{plans:?}");
        let mut scene = Scene::with_broken(&["first", "fallback"]);
        let mut plans = plans.into_iter();
        loop {
            scene.store.set_faults(plans.next().unwrap_or_default());
            let living = async {
                let engine = scene.open::<with_fallback>().await;
                let run = engine.start(with_fallback()).key("one").await;
                let run = run.expect("starts");
                if run.result().await.is_err() {
                    scene.world.mend();
                    run.retry().await.expect("is retried");
                }
                let result = ends_well(&run).await;
                assert_eq!(result, "fallback at last", "{shown}");
                assert_eq!(
                    tried_again(&engine, run.id()).await,
                    ["fallback"],
                    "{shown}"
                );
                let verified = engine.verify().await.expect("verifies");
                assert!(verified.damaged.is_empty(), "{shown}");
            };
            tokio::select! {
                biased;
                () = scene.store.crashed() => {}
                done = timeout(LONG, living) => {
                    done.expect("does not hang");
                    // The ledger refuses another effect under one id by itself.
                    assert_eq!(scene.ledger.effects(), ["fallback", "first", "last"], "{shown}");
                    return scene.store.writes();
                }
            }
            scene.store = scene.store.reopen(Surviving::Synced);
        }
    }
    let writes = through(Vec::new()).await;
    for first in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            for second in 0..writes {
                let after = FaultPlan::at(second, Fault::CrashAfter);
                through(vec![FaultPlan::at(first, fault), after]).await;
            }
        }
    }
}

#[workflow(name = "tolerant fallback", changes = "tolerant")]
async fn tolerant_fallback() -> Result<String> {
    match shaky("first").await {
        Ok(first) => Ok(first),
        Err(_) => shaky("fallback").await,
    }
}

#[tokio::test]
async fn in_a_tolerant_run_a_failure_that_its_code_has_gone_past_stands_too() {
    let scene = Scene::with_broken(&["first", "fallback"]);
    let engine = scene.open::<tolerant_fallback>().await;
    let run = engine.start(tolerant_fallback()).await.expect("starts");
    fails(&run).await;
    scene.world.mend();
    run.retry().await.expect("is retried");
    assert_eq!(ends_well(&run).await, "fallback at last");
    assert_eq!(tried_again(&engine, run.id()).await, ["fallback"]);
}

/// What became of it, as a text.
async fn tried(what: &'static str) -> String {
    match shaky(what).await {
        Ok(_) => what.to_owned(),
        Err(_) => format!("no {what}"),
    }
}

/// Takes what its steps give in the order in which they end, and charges for that.
#[workflow]
async fn in_their_order() -> Result<String> {
    let all: FuturesUnordered<_> = ["one", "broken", "other"].into_iter().map(tried).collect();
    let order: Vec<String> = all.collect().await;
    charge(&order.join(", ")).await
}

#[tokio::test]
async fn a_failure_whose_place_in_the_order_decided_an_input_stands() {
    let scene = Scene::with_broken(&["broken", "charge"]);
    let engine = scene.open::<in_their_order>().await;
    let run = engine.start(in_their_order()).await.expect("starts");
    assert_eq!(fails(&run).await, "the bank is closed");
    let before = scene.took();
    scene.world.mend();
    run.retry().await.expect("is retried");
    // If "broken" ran again, it would be charged for under the id of the charge without it.
    assert_eq!(ends_well(&run).await, "charged one, other, no broken");
    assert_eq!(scene.took(), [*before.last().expect("the charge")]);
}

/// Fails early, and nothing comes of it.
async fn fails_early() -> Result<String> {
    shaky("early").await
}

/// Goes past a failure of its own.
async fn goes_on(what: &'static str, instead: &'static str) -> Result<String> {
    act("on its way").await?;
    match shaky(what).await {
        Ok(done) => Ok(done),
        Err(_) => act(instead).await,
    }
}

/// Plain functions, whose calls are counted together.
#[workflow]
async fn helpers() -> Result<String> {
    let (early, one, other) = join!(
        fails_early(),
        goes_on("one", "instead of one"),
        goes_on("other", "instead of other")
    );
    Ok([early?, one?, other?].join(", "))
}

#[tokio::test]
async fn a_failure_beside_others_that_the_code_has_gone_past_is_tried_again() {
    let scene = Scene::with_broken(&["early", "one", "other"]);
    let engine = scene.open::<helpers>().await;
    let run = engine.start(helpers()).await.expect("starts");
    assert_eq!(fails(&run).await, "early is broken");
    let early = scene.took()[0];
    scene.world.mend();
    run.retry().await.expect("is retried");
    let result = ends_well(&run).await;
    assert_eq!(result, "early at last, instead of one, instead of other");
    assert_eq!(tried_again(&engine, run.id()).await, ["early"]);
    assert_eq!(scene.took(), [early]);
}

/// Fails `helpers`, mends the world and tries it again, through one crash in what follows; gives how many writes that took.
async fn helpers_through(plan: FaultPlan) -> u64 {
    let shown = format!("{plan:?}");
    let mut scene = Scene::with_broken(&["early", "one", "other"]);
    let engine = scene.open::<helpers>().await;
    let run = engine.start(helpers()).await.expect("starts");
    fails(&run).await;
    let (run, early) = (run.id(), scene.took()[0]);
    engine.shutdown().await.expect("stops");
    scene.world.mend();
    scene.store = scene.store.reopen(Surviving::Synced);
    scene.store.set_faults(plan);
    loop {
        let living = async {
            let engine = scene.open::<helpers>().await;
            match engine.retry(run).await {
                // The crash came after the retry was durable.
                Ok(()) | Err(EngineError::NotFailed { .. }) => {}
                Err(error) => panic!("{shown}: {error}"),
            }
            let run = engine.run::<helpers>(run).await.expect("is there");
            let result = ends_well(&run).await;
            let expected = "early at last, instead of one, instead of other";
            assert_eq!(result, expected, "{shown}");
            assert_eq!(tried_again(&engine, run.id()).await, ["early"], "{shown}");
        };
        tokio::select! {
            biased;
            () = scene.store.crashed() => {}
            done = timeout(LONG, living) => break done.expect("does not hang"),
        }
        scene.store = scene.store.reopen(Surviving::Synced);
    }
    let took: BTreeSet<_> = scene.took().into_iter().collect();
    assert_eq!(took, BTreeSet::from([early]), "{shown}");
    scene.store.writes()
}

#[tokio::test]
async fn a_crash_at_any_write_of_a_retry_between_failures_that_stand_changes_nothing() {
    let writes = helpers_through(FaultPlan::none()).await;
    assert!(writes >= 3, "{writes}: it is taken up, a step, and its end");
    for write in 0..writes {
        for fault in [Fault::CrashBefore, Fault::CrashAfter, Fault::Tear] {
            helpers_through(FaultPlan::at(write, fault)).await;
        }
    }
}

/// Tells somebody of its failure.
#[workflow(name = "reporting")]
async fn reporting() -> Result<String> {
    match shaky("work").await {
        Ok(done) => Ok(done),
        Err(error) => {
            act("report").await?;
            Err(error)
        }
    }
}

/// The same, with code that goes on after it.
#[workflow(name = "reporting")]
async fn reporting_and_going_on() -> Result<String> {
    if shaky("work").await.is_err() {
        act("report").await?;
    }
    shaky("work again").await
}

#[tokio::test]
async fn a_retry_that_could_only_fail_again_is_refused_by_name_and_nothing_changes() {
    let mut scene = Scene::with_broken(&["work"]);
    let engine = scene.open::<reporting>().await;
    let run = engine.start(reporting()).await.expect("starts");
    fails(&run).await;
    scene.took();
    scene.world.mend();
    let before = frames(&scene.store, run.id()).await;
    let error = run.retry().await.expect_err("refused");
    assert!(
        matches!(&error, EngineError::FailsAgain { run: of, .. } if *of == run.id()),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.contains("the failure of `shaky` (record 2)"), "{text}");
    assert!(text.contains("engine.fork"), "{text}");
    assert_eq!(frames(&scene.store, run.id()).await, before);
    assert_eq!(run.status().await.expect("reads"), RunStatus::Failed);

    // The way out that it names: under an id of the fork's own.
    let journal = engine.journal(run.id()).await.expect("reads");
    let fork = engine.fork(run.id()).at(ids_of(&journal, "shaky")[0]).await;
    let fork = engine.run::<reporting>(fork.expect("is forked")).await;
    assert_eq!(ends_well(&fork.expect("is there")).await, "work at last");
    assert!(!before.is_empty() && scene.took()[0] != ids_of(&journal, "shaky")[0]);
    let run = run.id();
    drop(engine);

    // The other one: code that goes on from there.
    scene.store = scene.store.reopen(Surviving::Synced);
    let engine = scene.open::<reporting_and_going_on>().await;
    engine.retry(run).await.expect("is retried");
    let run = engine.run::<reporting_and_going_on>(run).await;
    let run = run.expect("is there");
    assert_eq!(ends_well(&run).await, "work again at last");
    assert_eq!(scene.took().len(), 1, "neither of the first two runs again");
}

/// Goes past a failure while something else fails, so that what it went on to is dropped under way.
#[workflow]
async fn dropped_under_way() -> Result<String> {
    let one = async {
        let what = shaky("price").await.unwrap_or_else(|_| "list price".into());
        slow(&what).await?;
        Ok(what)
    };
    let other = async {
        wait_for::<()>("go").await?;
        shaky("stock").await
    };
    futures::try_join!(one, other).map(|(one, _)| one)
}

#[tokio::test]
async fn a_failure_stands_if_what_came_of_it_was_under_way_and_left_no_record() {
    let scene = Scene::with_broken(&["price", "slow", "stock"]);
    let engine = scene.open::<dropped_under_way>().await;
    let run = engine.start(dropped_under_way()).await.expect("starts");
    while !scene.ledger.effects().contains(&"list price".to_owned()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    run.signal("go", &()).await.expect("sends");
    assert_eq!(fails(&run).await, "stock is broken");
    let journal = engine.journal(run.id()).await.expect("reads");
    assert_eq!(ids_of(&journal, "slow"), [], "{journal}");
    scene.world.mend();
    run.retry().await.expect("is retried");
    // With the price asked for again, another one would be given to the step that has begun.
    assert_eq!(ends_well(&run).await, "list price");
    assert_eq!(tried_again(&engine, run.id()).await, ["stock"]);
}

/// Sends a message because of a failure, from the workflow itself.
#[workflow]
async fn complaining() -> Result<String> {
    let done = shaky("work").await;
    let says = if done.is_ok() { "done" } else { "broken" };
    outbox("news").push(&says)?;
    shaky("after it").await?;
    done
}

#[tokio::test]
async fn a_failure_that_a_message_was_sent_for_stands() {
    let scene = Scene::with_broken(&["work", "after it"]);
    let said = Arc::new(Mutex::new(Vec::<String>::new()));
    let engine = scene.builder::<complaining>().outbox("news", {
        let said = said.clone();
        move |message: workflow_runtime::Message| {
            let said = said.clone();
            async move {
                said.lock().expect("no panic").push(message.decode()?);
                Ok::<_, Error>(())
            }
        }
    });
    let engine = engine.open_with(scene.store.clone()).await.expect("opens");
    let run = engine.start(complaining()).await.expect("starts");
    assert_eq!(fails(&run).await, "after it is broken");
    scene.world.mend();
    run.retry().await.expect("is retried");
    assert_eq!(
        fails(&run).await,
        "work is broken",
        "it was said, and stays"
    );
    assert_eq!(tried_again(&engine, run.id()).await, ["after it"]);
    while said.lock().expect("no panic").is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(*said.lock().expect("no panic"), ["broken"]);
}

/// How old a quote may be.
#[step(effect = "read", fresh_for = "20ms")]
async fn quote(#[resource] ledger: &Ledger) -> Result<String> {
    let asked = ledger.asked();
    ledger.act("quote");
    Ok(asked.to_string())
}

#[workflow]
async fn trade() -> Result<String> {
    let price = quote().await?;
    charge(&price).await
}

#[tokio::test]
async fn an_outcome_that_a_failed_step_was_given_is_not_asked_for_again_however_old() {
    let mut scene = Scene::with_broken(&["charge"]);
    let engine = scene.open::<trade>().await;
    let run = engine.start(trade()).await.expect("starts");
    fails(&run).await;
    let run = run.id();
    engine.shutdown().await.expect("stops");
    tokio::time::sleep(Duration::from_millis(40)).await;
    scene.store = scene.store.reopen(Surviving::Synced);
    scene.world.mend();
    let engine = scene.open::<trade>().await;
    engine.retry(run).await.expect("is retried");
    let run = engine.run::<trade>(run).await.expect("is there");
    assert_eq!(
        ends_well(&run).await,
        "charged 0",
        "what was charged before"
    );
    assert_eq!(scene.ledger.effects(), ["0", "quote"]);
}

/// Goes past so many failures, one after the other, and fails.
#[workflow]
async fn goes_past(many: u32) -> Result<String> {
    let beside = async {
        for n in 0..many {
            if shaky("each").key(n).await.is_err() {
                act("noted").key(n).await?;
            }
        }
        Ok::<_, Error>(())
    };
    let (early, ()) = futures::future::try_join(async { Ok(shaky("early").await) }, beside).await?;
    shaky("last").await?;
    early
}

#[tokio::test]
async fn the_last_failure_is_tried_again_however_many_stand_before_it() {
    let scene = Scene::with_broken(&["each", "early", "last"]);
    let engine = scene.open::<goes_past>().await;
    let run = engine.start(goes_past(300)).await.expect("starts");
    assert_eq!(fails(&run).await, "last is broken");
    scene.took();
    scene.world.mend();
    run.retry().await.expect("is retried");
    assert_eq!(fails(&run).await, "early is broken", "it went past that");
    assert_eq!(tried_again(&engine, run.id()).await, ["last"]);
    assert_eq!(scene.took().len(), 1);
}
